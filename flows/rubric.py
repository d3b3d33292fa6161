"""The commands `rubric check` and `rubric revise`: what is the matter with a study's rubrics, and a proposal of better
ones. No Prefect run: the same run gives the same answer."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rubricflow.flows.command_line import (
    DEFAULT_WAREHOUSE,
    Limit,
    StudyFile,
    WarehouseFolder,
    arguments,
    print_rows,
)
from rubricflow.flows.plan import Plan, plan
from rubricflow.tasks.core.contracts.backends import install, is_missing
from rubricflow.tasks.core.contracts.bundle import Bundle, Rubric, unlocked
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.publish import write_page
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.core.text.formulas import cell
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.lock.bundles import asks
from rubricflow.tasks.grading.lock.lint import unreachable
from rubricflow.tasks.grading.lock.task import lock
from rubricflow.tasks.grading.rubrics.findings import findings, merged
from rubricflow.tasks.grading.rubrics.item_analysis import FEWEST, MarksOfRubric, analysed, mark_findings
from rubricflow.tasks.grading.rubrics.page import COLUMNS, page, row, sentence
from rubricflow.tasks.grading.rubrics.task import scored_answers

NAME = "rubric-check"
"""Of the page and of the table in the run's folder."""


def check(study: StudyFile, warehouse: WarehouseFolder = DEFAULT_WAREHOUSE, limit: Limit = None) -> None:
    """Prints a row for each finding; writes them as a page and a CSV into the run's folder."""
    read = read_rubrics(study, warehouse, limit)
    found = [one for rubric in read.rubrics.values() for one in findings(rubric, unreachable(rubric))]
    marks, missing = marks_of(read, lambda author: True)
    for name, of_rubric in marks.items():
        found += mark_findings(name, of_rubric)
    found = merged(found)
    rows = [row(finding) for finding in found]
    print_rows(COLUMNS, rows)
    run, rubrics = read.job.run, len(read.rubrics)
    path = write_page(run, f"{NAME}.html", rendered(page(read.job.study.name, found, rubrics, marks, missing)))
    table = io.StringIO(newline="")
    csv.writer(table, lineterminator="\n").writerows([map(cell, cells) for cells in [COLUMNS, *rows]])
    run.warehouse.write(run.folder / f"{NAME}.csv", table.getvalue().encode())
    said = [f"{sentence(found, rubrics)}.", f"marks: {missing}" if missing else ""]
    print(*filter(None, said), f"report: {run.warehouse.shown(path)}", sep="\n", file=sys.stderr)


def marks_of(read: StudyRubrics, is_wanted: Callable[[str], bool]) -> tuple[dict[str, MarksOfRubric], str]:
    """Rubric → what marks say of it, on the calibration split of the study's finished run; and in words why nothing is
    said, or not all. is_wanted: whether an author's answers may be looked at."""
    run, study = read.job.run, read.job.study
    if not run.done("evaluate", "all"):
        return {}, "the study is not graded as it is now, so no criterion is held against people's scores"
    encode = None if is_missing("embedded") else minilm()
    marks = {}
    for name, answers in scored_answers(run, study.evaluation.target, read.bundles).items():
        wanted = [place for place, cluster in enumerate(answers.clusters) if is_wanted(cluster)]
        marks[name] = analysed(answers.of(wanted), encode, study.evaluation.draws, study.evaluation.seed)
    few = [name for name in read.rubrics if name not in marks or not marks[name].items]
    why = []
    if few:
        why.append(f"fewer than {FEWEST} answers of the calibration split have scores: {', '.join(few)}")
    if encode is None:
        why.append(f"what no criterion names is not looked for, which needs the extra: {install('embedded')}")
    return marks, "; ".join(why)


class StudyRubrics(NamedTuple):
    """A study's rubrics as they are judged."""

    job: Plan
    rubrics: dict[str, Rubric]
    """With the guide that their item carries in their text."""
    bundles: dict[str, Bundle]
    items: list[dict[str, Any]]
    """Rows of `items`."""


def read_rubrics(study_file: str, warehouse: str, limit: int | None) -> StudyRubrics:
    """The rubrics of a study, from its run where they are locked there. InputError where a model has yet to make
    them."""
    job = plan(study_file, warehouse, limit)
    is_locked = job.run.done("lock", "all")
    if asks(job.study.rubrics) and not is_locked:
        hint = f"rubricflow grade {arguments(study_file, warehouse, limit)}"
        raise InputError("a model has yet to make these rubrics", file=study_file, field="rubrics", hint=hint)
    with TemporaryDirectory() as folder:
        run = job.run if is_locked else Warehouse.open(folder).run("rubrics")
        data = ingest.fn(run, job.study, job.base, limit if is_locked else 1)
        locked = lock.fn(run, job.study, job.base, data.items, data.responses, data.gradings, data.judgments)
        rubrics = [Rubric.model_validate(json.loads(row["content"])) for row in run.read(locked.rubrics).to_pylist()]
        bundles = unlocked(run.read(locked.bundles).to_pylist())
        return StudyRubrics(job, {one.rubric_id: one for one in rubrics}, bundles, run.read(data.items).to_pylist())
