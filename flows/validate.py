"""A study checked without a model: what it would ask, and whether data, rubrics, verifier and prompts hold."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rubricflow.flows.earlier_runs import locked_before, opened, proved
from rubricflow.tasks.core.contracts.backends import BACKENDS, Choice, is_generative
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.settings.engine import MOST_LOGPROBS
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.needs import release_needs
from rubricflow.tasks.core.llm.backends.scripted import Scripted
from rubricflow.tasks.core.llm.foreign import foreign_rows
from rubricflow.tasks.core.llm.opening import cpu_warnings, this_machine
from rubricflow.tasks.core.stats.promise import MarkedAnswers
from rubricflow.tasks.core.store.ordered import read_marked
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.draft.drafted import UNWRITTEN
from rubricflow.tasks.grading.ingest.sources import read_as
from rubricflow.tasks.grading.ingest.task import ingest, warning_sentences
from rubricflow.tasks.grading.judge.grade import asks_nobody, first_requests
from rubricflow.tasks.grading.judge.levels import widest
from rubricflow.tasks.grading.judge.prove import prove_bundle
from rubricflow.tasks.grading.judge.rows import Case, Rater, cases_of
from rubricflow.tasks.grading.judge.teaching import People, teaching_of
from rubricflow.tasks.grading.lock.bundles import asks
from rubricflow.tasks.grading.lock.meaning import unexplained
from rubricflow.tasks.grading.lock.task import fit, lock
from rubricflow.tasks.rewards.graph.subject import authored, subjects
from rubricflow.tasks.rewards.graph.votes import read_votes

_CHARACTERS_PER_TOKEN = 4
_NOBODY = Rater("nobody", "llm", Scripted([]))


class StudyToValidate(NamedTuple):
    """Items with their bundles and cases."""

    study: Study
    items: list[tuple[dict[str, Any], Bundle, list[Case]]]
    lint: list[tuple[str, str]]
    guessed: bool
    """Whether its rubrics will be made by a model, which is not asked here."""
    warnings: list[str]
    """What is odd about the responses."""
    marked: list[MarkedAnswers]
    """Of every item."""


def planned_calls(study_file: Path, limit: int | None = None) -> list[tuple[str, int, int, int, int]]:
    """(item, responses, settled without a call, calls, prompt tokens at four characters each); sums in the last row."""
    rows: list[tuple[str, int, int, int, int]] = []
    for item, _, cases in _read_study(study_file, limit).items:
        to_judge = [case for case in cases if not asks_nobody(case)]
        requests = list(chain.from_iterable(first_requests(case, _NOBODY) for case in to_judge))
        messages = chain.from_iterable(request.messages for request in requests)
        tokens = sum(len(message.content) for message in messages) // _CHARACTERS_PER_TOKEN
        rows.append((item["item_id"], len(cases), len(cases) - len(to_judge), len(requests), tokens))
    counts = [row[1:] for row in rows]
    responses, settled, calls, tokens = map(sum, zip(*counts, strict=True))
    return [*rows, ("all", responses, settled, calls, tokens)]


def study_cases(study_file: Path, limit: int | None = None) -> tuple[Study, Iterator[Case]]:
    """The study and every case as its judge would get it; InputError where data or rubrics are broken."""
    checked = _read_study(study_file, limit)
    return checked.study, chain.from_iterable(cases for _, _, cases in checked.items)


def prove(study_file: Path, limit: int | None = None, warehouse: Path | None = None) -> Iterator[tuple[str, str, str]]:
    """(kind, what, message) with kind 'ok', 'warning' or 'wrong'; broken data and rubrics raise when they are read.

    warehouse: where the study's run is kept, for the rubrics that it has locked already, the run that its judge keeps
    of, and the replies that it replays.
    """
    house = opened(warehouse)
    checked = _read_study(study_file, limit, house=house)
    count = sum(len(cases) for _, _, cases in checked.items)
    for file, words in read_as(checked.study.data, study_file.parent).items():
        yield "ok", file, f"read as {words}"
    yield "ok", "data", f"{len(checked.items)} items, {count} responses"
    yield from (("warning", "answers", words) for words in checked.warnings)
    if checked.study.releases:
        yield from release_needs(checked.study, checked.marked)
    if checked.guessed:
        yield "warning", "rubrics", "made by rules of thumb here; the judge's model makes them when the study is graded"
    if foreign := checked.study.judge.foreign:
        yield "ok", "recorded replies", f"{len(foreign_rows(foreign, study_file.parent))} replies"
    cases = list(chain.from_iterable(cases for _, _, cases in checked.items))
    yield from proved(checked.study.judge, study_file.parent, house, cases)
    yield from _proved_graphs(checked, study_file.parent)
    yield from _few_alternatives(checked)
    yield from _linted(checked)
    yield from _unwritten(checked)
    yield from _harmful(checked.study, study_file.parent)
    yield from _proved_bundles(checked, "item")
    if checked.study.annotation:
        yield from _proved_bundles(_read_study(study_file, limit, checked.study.annotation.asked), "annotators, item")


def _harmful(study: Study, base: Path) -> Iterator[tuple[str, str, str]]:
    """Settings of the study's models that do harm on this machine."""
    models: dict[str, Choice] = {"judge": study.judge, "graph": study.graph}
    models["judge, repairs"] = study.judge.model_copy(update={"engine": study.judge.repair_engine})
    for name, choice_of_annotator in study.annotation.annotators.items() if study.annotation else ():
        models[f"annotator {name}"] = choice_of_annotator
    for name, choice in models.items():
        yield from (("warning", name, line) for line in cpu_warnings(choice, base, this_machine()))


def _linted(checked: StudyToValidate) -> Iterator[tuple[str, str, str]]:
    """Each remark once, with all the rubrics that it is about; wrong where a language model would have to guess."""
    about: dict[str, list[str]] = {}
    for rubric_id, remark in checked.lint:
        about.setdefault(remark, []).append(rubric_id)
    bundles = {bundle.bundle_id: bundle for _, bundle, _ in checked.items}.values()
    judge = checked.study.judge
    asks_model = is_generative(judge) and judge.foreign is None
    remarks = chain.from_iterable(map(unexplained, bundles))
    blind = {remark.text for remark in remarks if remark.blind}
    for remark, names in about.items():
        kind = "wrong" if remark in blind and asks_model else "warning"
        yield kind, f"rubric {names[0]}" if len(names) == 1 else f"rubrics {', '.join(names)}", remark


def _unwritten(checked: StudyToValidate) -> Iterator[tuple[str, str, str]]:
    """Where a file that `init` drafted still waits for words; wrong where a language model would read the mark."""
    kind = "wrong" if is_generative(checked.study.judge) and checked.study.judge.foreign is None else "warning"
    for item, bundle, _ in checked.items:
        rubric = (bundle.text, *(criterion.text for criterion in bundle.criteria))
        if UNWRITTEN in item["question"]:
            yield kind, f"question {item['item_id']}", f"its wording still says {UNWRITTEN}"
        if any(UNWRITTEN in text for text in rubric):
            yield kind, f"rubric {item['rubric_id']}", f"it still says {UNWRITTEN}: say what a full answer says"


def _proved_bundles(checked: StudyToValidate, label: str) -> Iterator[tuple[str, str, str]]:
    for item, bundle, _ in checked.items:
        name = f"{label} {item['item_id']}"
        problems = prove_bundle(bundle, item["question"], item["context"], item["reference_answer"])
        for problem in problems:
            yield "wrong", name, problem
        if not problems:
            yield "ok", name, f"bundle {bundle.bundle_id[:12]}: prompt, contract and verifier hold"


def _few_alternatives(checked: StudyToValidate) -> Iterator[tuple[str, str, str]]:
    """Whether a model reports fewer alternatives of a token than a decision has values."""
    engine = checked.study.judge.engine
    most = max((widest(bundle) for _, bundle, _ in checked.items), default=0)
    if engine and 0 < engine.logprobs < min(most, MOST_LOGPROBS):
        shortfall = f"{engine.logprobs} alternatives of a decision that has up to {most} values"
        yield "warning", "log-probabilities", f"{shortfall}; set judge.engine.logprobs: {min(most, MOST_LOGPROBS)}"


def _proved_graphs(checked: StudyToValidate, base: Path) -> Iterator[tuple[str, str, str]]:
    """What people wrote about graphs: the graphs and the votes; broken ones raise."""
    plan = checked.study.graph
    bundle_of = {item["rubric_id"]: bundle for item, bundle, _ in checked.items}
    rubric_subjects = subjects((item for item, *_ in checked.items), bundle_of)
    written = authored(base / plan.file, rubric_subjects) if plan.file else {}
    for name, authored_graph in written.items():
        yield "ok", f"graph of rubric {name}", f"{len(authored_graph.graph.edges)} edges, no circle"
    if plan.votes:
        yield "ok", "votes on graphs", f"{len(read_votes(base / plan.votes, rubric_subjects))} votes"


def _read_study(
    study_file: Path, limit: int | None, judge: Judge | None = None, house: Warehouse | None = None
) -> StudyToValidate:
    """judge: in place of the study's own; house: where its run may have locked rubrics that a model made."""
    study, base = load_study(study_file), study_file.parent
    study = study.model_copy(update={"judge": judge or study.judge})
    by_model = asks(study.rubrics) and BACKENDS[study.judge.backend].reads_prose
    before = locked_before(study_file, house, limit) if by_model else None
    if by_model:
        study = study.model_copy(update={"judge": study.judge.model_copy(update={"backend": "embedded"})})
    with TemporaryDirectory() as folder:
        run = Warehouse.open(Path(folder) / "validation").run("validation")
        data = ingest.fn(run, study, base, limit)
        locked = lock.fn(run, study, base, data.items, data.responses, data.gradings, data.judgments)
        if study.releases:
            fit.fn(run, study, base, data.items, data.gradings, locked.bundles)
        bundles = {row["rubric_id"]: row for row in before or run.read(locked.bundles).to_pylist()}
        people = People(data.gradings, data.judgments, study.evaluation.target)
        teaching = teaching_of(run, study.judge.examples, data.items, data.responses, locked.bundles, people)
        items = []
        for item in sorted(run.read(data.items).to_pylist(), key=lambda row: say.in_order(row["item_id"])):
            cases = teaching(cases_of(run, data.responses, item, bundles[item["rubric_id"]]))
            items.append((item, Bundle.model_validate_json(bundles[item["rubric_id"]]["content"]), cases))
        lint = list[tuple[str, str]]()
        for row in run.read(locked.rubrics).to_pylist():
            lint += [(row["rubric_id"], warning) for warning in row["lint"]]
        marked = read_marked(run, data.responses, data.gradings, study.evaluation.target)
        return StudyToValidate(
            study=study,
            items=items,
            lint=lint,
            guessed=by_model and before is None,
            warnings=warning_sentences(run, data.input_warnings),
            marked=marked,
        )
