"""The door of annotate: annotators' judgments and final labels in, agreement and construction checks out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from prefect import task

from tasks.annotate.agreement import MISSING, agreements, levels_of
from tasks.annotate.inventory import constructions
from tasks.contracts.bundle import Rubric
from tasks.contracts.reference import TableRef
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.people import Agreements, Constructions
from tasks.stats.arrays import Floats, Ints
from tasks.stats.target import target_scores
from tasks.store.naming import named
from tasks.store.warehouse import Run

FINAL = "final"


class Compared(NamedTuple):
    """What compare writes."""

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
) -> Compared:
    """How far the annotators agree before anybody is asked, and how the inventories keep the construction criteria by
    what both say. annotated: annotator → its judgments."""

    def make() -> dict[Any, Any]:
        sheet = _sheet(run, study, items, responses, people, rubrics)
        (first, a), (second, b) = _annotators(run, sheet, annotated).items()
        built = _built(sheet, np.where(a == b, a, MISSING), "before")
        return {Agreements: agreements([(first, a), (second, b)], sheet.tops, "before"), Constructions: list(built)}

    run.once("compare", make)
    return Compared(run.ref(Agreements, "compare"), run.ref(Constructions, "compare"))


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
) -> Compared:
    """The same after people were asked: the persons among each other by their votes, every annotator by the final
    labels, and the construction criteria by those."""

    def make() -> dict[Any, Any]:
        sheet = _sheet(run, study, items, responses, people, rubrics)
        final, persons = _settled(run, sheet, labels)
        rows = agreements(list(persons.items()), sheet.tops, "after") if len(persons) > 1 else []
        for name, levels in _annotators(run, sheet, annotated).items():
            rows += agreements([(name, levels), (FINAL, final)], sheet.tops, "after")
        return {Agreements: rows, Constructions: list(_built(sheet, final, "after"))}

    run.once("compare-settled", make)
    return Compared(run.ref(Agreements, "compare-settled"), run.ref(Constructions, "compare-settled"))


@dataclass(frozen=True)
class _Sheet:
    """A study's responses and concepts."""

    response_ids: list[str]
    rubric_of: list[str]
    rubrics: Mapping[str, Rubric]
    tops: Mapping[str, int]
    """Concept of any rubric → its highest level."""
    grades: Floats
    """(n,) the human score that counts, NaN where there is none."""


def _sheet(run: Run, study: Study, items: TableRef, responses: TableRef, people: TableRef, rubrics: TableRef) -> _Sheet:
    known = {row["rubric_id"]: Rubric.model_validate_json(row["content"]) for row in run.read(rubrics).to_pylist()}
    rubric_of = {row["item_id"]: row["rubric_id"] for row in run.read(items, ["item_id", "rubric_id"]).to_pylist()}
    rows = run.read(responses, ["response_id", "item_id"]).sort_by("response_id").to_pylist()
    target = target_scores(run.read(people), study.evaluation.target)
    score = dict(zip(*(target[name].to_pylist() for name in ("response_id", "score")), strict=True))
    return _Sheet(
        response_ids=[row["response_id"] for row in rows],
        rubric_of=[rubric_of[row["item_id"]] for row in rows],
        rubrics=known,
        tops={criterion.id: criterion.top for rubric in known.values() for criterion in rubric.criteria},
        grades=np.array([score.get(row["response_id"]) for row in rows], np.float64),
    )


def _annotators(run: Run, sheet: _Sheet, annotated: Mapping[str, TableRef]) -> dict[str, Ints]:
    """Annotator → its levels (n, K)."""
    return {name: levels_of(run.read(ref), sheet.response_ids, list(sheet.tops)) for name, ref in annotated.items()}


def _settled(run: Run, sheet: _Sheet, labels: TableRef) -> tuple[Ints, dict[str, Ints]]:
    """The final levels (n, K), and person → the levels that they voted."""
    row = {name: at for at, name in enumerate(sheet.response_ids)}
    column = {name: at for at, name in enumerate(sheet.tops)}
    final = np.full((len(row), len(column)), MISSING)
    persons: dict[str, Ints] = {}
    for one in run.read(labels).to_pylist():
        at = row[one["response_id"]], column[one["criterion_id"]]
        final[at] = MISSING if one["level"] is None else one["level"]
        for step in one["history"]:
            if step["kind"] == "vote" and step["level"] is not None:
                persons.setdefault(step["who"], np.full(final.shape, MISSING))[at] = step["level"]
    return final, persons


def _built(sheet: _Sheet, levels: Ints, phase: str) -> Iterator[dict[str, Any]]:
    """Rows of `constructions`, rubric by rubric."""
    column = {name: at for at, name in enumerate(sheet.tops)}
    for name, rubric in sheet.rubrics.items():
        mine = [at for at, of in enumerate(sheet.rubric_of) if of == name]
        concepts = [column[criterion.id] for criterion in rubric.criteria]
        for row in constructions(rubric, levels[np.ix_(mine, concepts)], sheet.grades[mine]):
            yield row | {"phase": phase}
