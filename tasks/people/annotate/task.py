"""The stage entry points of annotate: annotators' judgments and final labels in; agreement and checks out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.bundle import Rubric
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.people import Agreements, Constructions
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run, pairs
from rubricflow.tasks.people.annotate.agreement import MISSING, agreements, levels_of
from rubricflow.tasks.people.annotate.inventory import constructions

FINAL = "final"


class ComparedTables(NamedTuple):
    agreements: TableRef
    constructions: TableRef


@task(task_run_name=named("compare"))
def compare(
    run: Run,
    study: Study,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    rubrics: TableRef,
    annotated: Mapping[str, TableRef],
) -> ComparedTables:
    """How far the annotators agree before anybody is asked, and how the inventories keep the construction criteria by
    what both say. annotated: annotator → its judgments."""

    def make() -> dict[Any, Any]:
        sheet = _sheet(run, study, items, responses, people, rubrics)
        (first, a), (second, b) = _annotators(run, sheet, annotated).items()
        rows = agreements([(first, a), (second, b)], sheet.tops, "before")
        agreed = np.where(a == b, a, MISSING)
        return {Agreements: rows, Constructions: list(_construction_rows(sheet, agreed, "before"))}

    run.once("compare", make)
    return ComparedTables(run.ref(Agreements, "compare"), run.ref(Constructions, "compare"))


@task(task_run_name=named("compare-settled"))
def compare_settled(
    run: Run,
    study: Study,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    rubrics: TableRef,
    annotated: Mapping[str, TableRef],
    labels: TableRef,
) -> ComparedTables:
    """The same after people were asked: the persons among each other by their votes, every annotator by the final
    labels that people settled, and the construction criteria by all of them. A label that the annotators settled agrees
    with them by itself: it is compared with nobody."""

    def make() -> dict[Any, Any]:
        sheet = _sheet(run, study, items, responses, people, rubrics)
        final, by_people, persons = _settled(run, sheet, labels)
        rows = agreements(list(persons.items()), sheet.tops, "after") if len(persons) > 1 else []
        if (by_people != MISSING).any():
            for name, levels in _annotators(run, sheet, annotated).items():
                rows += agreements([(name, levels), (FINAL, by_people)], sheet.tops, "after")
        return {Agreements: rows, Constructions: list(_construction_rows(sheet, final, "after"))}

    run.once("compare-settled", make)
    return ComparedTables(run.ref(Agreements, "compare-settled"), run.ref(Constructions, "compare-settled"))


@dataclass(frozen=True)
class _Sheet:
    """A study's responses and concepts."""

    row_of: Mapping[str, int]
    """Response → its row, of n in the order of their ids."""
    rubric_of: list[str]
    """(n,)."""
    rubrics: Mapping[str, Rubric]
    tops: Mapping[str, int]
    """Concept of any rubric → its highest level, in the order of the columns."""
    grades: Floats
    """(n,) the human score that counts, NaN where there is none."""


def _sheet(run: Run, study: Study, items: TableRef, responses: TableRef, people: TableRef, rubrics: TableRef) -> _Sheet:
    """The sheet of a run. people: gradings of the data."""
    by_id = {row["rubric_id"]: Rubric.model_validate_json(row["content"]) for row in run.read(rubrics).to_pylist()}
    criteria = chain.from_iterable(rubric.criteria for rubric in by_id.values())
    rubric_of = dict(pairs(run.read(items, ["item_id", "rubric_id"])))
    rows = run.read(responses, ["response_id", "item_id"]).sort_by("response_id").to_pylist()
    score = dict(pairs(target_scores(run.read(people), study.evaluation.target)))
    grades = [score.get(row["response_id"]) for row in rows]
    return _Sheet(
        row_of={row["response_id"]: place for place, row in enumerate(rows)},
        rubric_of=[rubric_of[row["item_id"]] for row in rows],
        rubrics=by_id,
        tops={criterion.id: criterion.top for criterion in criteria},
        grades=np.array(grades, np.float64),
    )


def _annotators(run: Run, sheet: _Sheet, annotated: Mapping[str, TableRef]) -> dict[str, Ints]:
    """Annotator → its levels (n, K)."""
    return {name: levels_of(run.read(ref), list(sheet.row_of), list(sheet.tops)) for name, ref in annotated.items()}


def _settled(run: Run, sheet: _Sheet, labels: TableRef) -> tuple[Ints, Ints, dict[str, Ints]]:
    """The final levels (n, K), those of them that people settled, and person → the levels that they voted."""
    column_of = {name: column for column, name in enumerate(sheet.tops)}
    final = np.full((len(sheet.row_of), len(column_of)), MISSING)
    by_people = final.copy()
    persons: dict[str, Ints] = {}
    for label in run.read(labels).to_pylist():
        cell = sheet.row_of[label["response_id"]], column_of[label["criterion_id"]]
        final[cell] = MISSING if label["level"] is None else label["level"]
        by_people[cell] = MISSING if label["settled_by"] == "annotators" else final[cell]
        for step in label["history"]:
            if step["kind"] == "vote" and step["level"] is not None:
                persons.setdefault(step["who"], np.full(final.shape, MISSING))[cell] = step["level"]
    return final, by_people, persons


def _construction_rows(sheet: _Sheet, levels: Ints, phase: str) -> Iterator[Record]:
    column_of = {name: column for column, name in enumerate(sheet.tops)}
    for name, rubric in sheet.rubrics.items():
        rows = [row for row, rubric_id in enumerate(sheet.rubric_of) if rubric_id == name]
        columns = [column_of[criterion.id] for criterion in rubric.criteria]
        for construction in constructions(rubric, levels[np.ix_(rows, columns)], sheet.grades[rows]):
            yield construction | {"phase": phase}
