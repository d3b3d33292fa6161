"""The commands `rubric check` and `rubric revise`: what is the matter with a study's rubrics, and a proposal of better
ones. No Prefect run: the same run gives the same answer."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import typer

from rubricflow.flows.command_line import (
    DEFAULT_WAREHOUSE,
    DollarLimit,
    Limit,
    RubricTo,
    StudyFile,
    TokenLimit,
    WarehouseFolder,
    arguments,
    print_rows,
)
from rubricflow.flows.compare import agreement_gaps
from rubricflow.flows.finished_runs import find_run, read_finished
from rubricflow.flows.plan import Plan, plan
from rubricflow.tasks.core.contracts import Record, ScaleBounds
from rubricflow.tasks.core.contracts.backends import is_generative
from rubricflow.tasks.core.contracts.bundle import Bundle, Rubric, unlocked
from rubricflow.tasks.core.contracts.errors import ContractError, InputError, UserError
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.llm.budget import kept_budget
from rubricflow.tasks.core.llm.opening import open_backend
from rubricflow.tasks.core.llm.reply_store import open_replies
from rubricflow.tasks.core.monitor.runs import credential
from rubricflow.tasks.core.publish import write_page
from rubricflow.tasks.core.stats.scores import score_frame
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.core.text.formulas import cell
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.lock.bundles import asks
from rubricflow.tasks.grading.lock.bundles import lock as lock_rubric
from rubricflow.tasks.grading.lock.lint import unreachable
from rubricflow.tasks.grading.lock.rubric import authored, broken
from rubricflow.tasks.grading.lock.task import lock
from rubricflow.tasks.grading.rubrics.asked import ReviewedRubric, Reviewer, critiques, revisions
from rubricflow.tasks.grading.rubrics.findings import RubricFinding, findings, merged
from rubricflow.tasks.grading.rubrics.item_analysis import (
    MarkedAnswer,
    held_back,
    mark_findings,
    marked_answers,
    marks_of,
)
from rubricflow.tasks.grading.rubrics.level_worth import with_worths, worth_findings, worths_of
from rubricflow.tasks.grading.rubrics.page import COLUMNS, page, row, sentence
from rubricflow.tasks.grading.rubrics.revision import CHANGES, as_yaml, changes, mended, study_of_proposal

NAME = "rubric-check"
"""Of the page and of the table in the run's folder."""
Ask = Annotated[bool, typer.Option("--ask", help="Ask the study's judge about each rubric, too.")]


def check(
    study: StudyFile,
    ask: Ask = False,
    against: Annotated[
        str | None, typer.Option(metavar="RUN", help="Compare with this run of another rubric, on answers held back.")
    ] = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
    token_budget: TokenLimit = None,
    budget_usd: DollarLimit = None,
) -> None:
    """Prints a row for each finding; writes them as a page and a CSV into the run's folder."""
    read = read_rubrics(study, warehouse, limit)
    run = read.job.run
    name = read.job.study.name
    marks, missing = marks_of(run, read.job.study.evaluation, read.bundles, lambda author: True)
    found = [one for rubric in read.rubrics.values() for one in findings(rubric, unreachable(rubric))]
    if ask:
        with asking(read, token_budget, budget_usd) as judge:
            found += critiques([read.subject(rubric, rubric) for rubric in read.rubrics.values()], judge)
    for rubric_id, of_rubric in marks.items():
        found += mark_findings(rubric_id, of_rubric)
    found += worth_findings(worths_of(run, read.job.study.evaluation, read.bundles, lambda author: True))
    found = merged(found)
    rows = [row(finding) for finding in found]
    print_rows(COLUMNS, rows)
    beside = compared(read, against) if against else []
    path = write_page(run, f"{NAME}.html", rendered(page(name, found, len(read.rubrics), marks, missing, beside)))
    table = io.StringIO(newline="")
    csv.writer(table, lineterminator="\n").writerows([map(cell, cells) for cells in [COLUMNS, *rows]])
    run.warehouse.write(run.folder / f"{NAME}.csv", table.getvalue().encode())
    said = [f"{sentence(found, len(read.rubrics))}.", f"marks: {missing}" if missing else "", *beside]
    print(*filter(None, said), f"report: {run.warehouse.shown(path)}", sep="\n", file=sys.stderr)


def revise(
    study: StudyFile,
    to: RubricTo,
    ask: Ask = False,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
    token_budget: TokenLimit = None,
    budget_usd: DollarLimit = None,
) -> None:
    """Writes the proposal and a study of it next to it; prints every change with its reason, and the commands that tell
    whether it agrees better. InputError where a file is there already: somebody may have edited it."""
    beside = to.with_name(f"{to.stem}-study.yaml")
    for path in (to, beside):
        if path.exists():
            raise InputError("is there already, and somebody may have edited it", file=path)
    read = read_rubrics(study, warehouse, limit, with_marks=ask)
    problem = partial(problem_of, read.job.study)
    revised = []
    made = []
    worths = worths_of(read.job.run, read.job.study.evaluation, read.bundles, lambda author: not held_back(author))
    for rubric in read.rubrics.values():
        base, mends = mended(rubric, problem)
        base, paid = with_worths(base, worths)
        revised.append(base)
        made += mends + paid
    if ask:
        marks, _ = marks_of(read.job.run, read.job.study.evaluation, read.bundles, lambda author: not held_back(author))
        with asking(read, token_budget, budget_usd) as judge:
            subjects = []
            for rubric, base in zip(read.rubrics.values(), revised, strict=True):
                of_marks = {"marks": marks.get(rubric.rubric_id), "marked": read.marked.get(rubric.rubric_id, ())}
                subjects.append(read.subject(rubric, base, **of_marks))
            remarks = critiques(subjects, judge)
            proposals = revisions([_told(subject, remarks) for subject in subjects], judge, problem)
        for base, (rubric, reasons) in zip(revised, proposals, strict=True):
            made += changes(base, rubric, reasons)
        revised = [rubric for rubric, _ in proposals]
    settings = read.job.study.rubrics
    own = authored(read.job.base / settings.file, settings.induce is not None) if settings.file else {}
    # The guide of an item follows on a rubric's own text when the study is read: it is not written down with it.
    revised = [one.model_copy(update={"text": own.get(one.rubric_id, one).text}) for one in revised]
    write_atomically(to, as_yaml(revised, made).encode())
    write_atomically(beside, study_of_proposal(Path(study), beside, to.name).encode())
    header = ("rubric", "before", "after", "what", "by", "why")
    rows = [(one.rubric_id, *map(", ".join, one[1:3]), CHANGES[one.what], one.by, one.why) for one in made]
    print_rows(header, rows)
    changed = sum(one.what != "kept" for one in made)
    graded = read.job.run.done("evaluate", "all")
    words = arguments(beside, warehouse, limit)
    commands = [] if graded else [f"  rubricflow grade {arguments(study, warehouse, limit)}"]
    commands += [f"  rubricflow grade {words}", f"  rubricflow rubric check {words} --against {read.job.run.run_id}"]
    question = f"{changed} changes in {to}. Do they agree better with people? Ask both rubrics:"
    print(question, *commands, sep="\n", file=sys.stderr)


def _told(subject: ReviewedRubric, remarks: Sequence[RubricFinding]) -> ReviewedRubric:
    """The subject with all that is the matter with its rubric, in answers that a reviser may see."""
    name = subject.rubric.rubric_id
    seen = [*findings(subject.base, unreachable(subject.base)), *(one for one in remarks if one.rubric_id == name)]
    of_marks = mark_findings(name, subject.marks) if subject.marks else ()
    return replace(subject, findings=(*seen, *of_marks))


def problem_of(study: Study, rubric: Rubric) -> str | None:
    """Why a study could not judge by a rubric, or no answer could get its top; None where neither is so."""
    if problem := broken(rubric):
        return problem
    if rubric.scale.max in unreachable(rubric):
        return f"no answer can get {rubric.scale.max:g} by its counts"
    try:
        lock_rubric(rubric, study.judge.as_protocol())
    except ContractError as error:
        return str(error)
    return None


@contextmanager
def asking(read: StudyRubrics, tokens: int | None, usd: float | None) -> Iterator[Reviewer]:
    """The study's judge, to be asked about rubrics within a budget. InputError where it is no language model."""
    judge = read.job.study.judge.lead
    base = read.job.base
    if not is_generative(judge):
        rule = f"backend '{judge.backend}' says nothing about rubrics; name a language model"
        raise InputError(rule, field="judge.backend", hint="backend: openai, hosted or vllm with an engine")
    kept_in = read.job.run.warehouse
    name = f"rubrics {read.job.run.run_id}"
    with open_replies(kept_in.replies) as replies, kept_budget(kept_in, name, tokens, usd):
        with redirect_stdout(sys.stderr):  # what it says of this machine is none of the table
            backend = open_backend(judge, base, replies, credential)
        yield Reviewer(backend, replies, judge.sampling, not judge.engine or judge.engine.structured)


def compared(read: StudyRubrics, against: str) -> list[str]:
    """How far the study's run agrees with people, and another run, by their rubrics alone, on the answers of the
    calibration split that no reviser was shown; a line for each statistic. InputError where the study is not graded,
    UserError where there is no such run, or it has other scales."""
    job = read.job
    if not job.run.done("evaluate", "all"):
        raise InputError(f"{job.study.name} is not graded, as study, data and code are now", field="--against")
    scales = dict[str, ScaleBounds]()
    frames = []
    for run in (find_run(str(job.run.warehouse.root), against), job.run):
        study, scores, bounds = read_finished(run)
        if any(bounds[item] != scales[item] for item in bounds.keys() & scales.keys()):
            raise UserError("the two runs score the same items on different scales")
        scales |= bounds
        frame = score_frame(scores, study.evaluation.target, CALIBRATES).frame
        who = frame["author_id"].fillna(frame["response_id"]).astype(str)
        frames.append(frame[who.map(held_back).astype(bool)].assign(calibrated=lambda rows: rows["raw"]))
    other, own = frames
    lines = []
    for gap in agreement_gaps(other, own, scales, job.study.evaluation, ([], [])):
        is_qwk = gap.statistic.startswith("qwk") and gap.statistic != "qwk_continuous"
        if is_qwk and gap.estimate is not None:
            ends = "" if gap.low is None or gap.high is None else f" [{gap.low:+.3f}, {gap.high:+.3f}]"
            about = f"{gap.responses} answers that no reviser was shown, scale {gap.scale}"
            lines.append(f"{gap.statistic}: this rubric less that of {against} {gap.estimate:+.3f}{ends}, on {about}")
    return lines or ["no answer that was held back has a score by both rubrics and by people"]


class StudyRubrics(NamedTuple):
    """A study's rubrics as they are judged."""

    job: Plan
    rubrics: dict[str, Rubric]
    """With the guide that their item carries in their text."""
    bundles: dict[str, Bundle]
    items: list[Record]
    """Rows of `items`."""
    marked: dict[str, tuple[MarkedAnswer, ...]]
    """Answers with people's scores that a reviser may see; empty where they were not asked for."""

    def subject(self, rubric: Rubric, base: Rubric, **more: Any) -> ReviewedRubric:
        """What a judge is asked about; with the question where one item alone has the rubric."""
        asked = [str(item["question"]) for item in self.items if item["rubric_id"] == rubric.rubric_id]
        return ReviewedRubric(rubric, asked[0] if len(asked) == 1 else "", base, **more)


def read_rubrics(study_file: str, warehouse: str, limit: int | None, with_marks: bool = False) -> StudyRubrics:
    """The rubrics of a study, from its run where they are locked there. InputError where a model has yet to make
    them."""
    job = plan(study_file, warehouse, limit)
    is_locked = job.run.done("lock", "all")
    if asks(job.study.rubrics) and not is_locked:
        hint = f"rubricflow grade {arguments(study_file, warehouse, limit)}"
        raise InputError("a model has yet to make these rubrics", file=study_file, field="rubrics", hint=hint)
    with TemporaryDirectory() as folder:
        run = job.run if is_locked else Warehouse.open(folder).run("rubrics")
        data = ingest.fn(run, job.study, job.base, limit if is_locked or with_marks else 1)
        locked = lock.fn(run, job.study, job.base, data.items, data.responses, data.gradings, data.judgments)
        rubrics = [Rubric.model_validate(json.loads(row["content"])) for row in run.read(locked.rubrics).to_pylist()]
        bundles = unlocked(run.read(locked.bundles).to_pylist())
        marked = marked_answers(run, job.study.evaluation.target) if with_marks else {}
        items = run.read(data.items).to_pylist()
        return StudyRubrics(job, {one.rubric_id: one for one in rubrics}, bundles, items, marked)
