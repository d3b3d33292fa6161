"""Tables of a run as a sheet of responses by concepts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from rubricflow.tasks.core.contracts.bundle import Rubric
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.people.annotate.agreement import MISSING, levels_of
from rubricflow.tasks.people.annotate.inventory import constructions


@dataclass(frozen=True)
class Sheet:
    """A study's responses and concepts."""

    response_ids: list[str]
    rubric_of: list[str]
    rubrics: Mapping[str, Rubric]
    tops: Mapping[str, int]
    """Concept of any rubric → its highest level."""
    grades: Floats
    """(n,) the human score that counts, NaN where there is none."""


def sheet_of(
    run: Run, study: Study, items: TableRef, responses: TableRef, people: TableRef, rubrics: TableRef
) -> Sheet:
    """The sheet of a run. people: gradings of the data."""
    by_id = {row["rubric_id"]: Rubric.model_validate_json(row["content"]) for row in run.read(rubrics).to_pylist()}
    criteria = chain.from_iterable(rubric.criteria for rubric in by_id.values())
    rubric_of = {row["item_id"]: row["rubric_id"] for row in run.read(items, ["item_id", "rubric_id"]).to_pylist()}
    rows = run.read(responses, ["response_id", "item_id"]).sort_by("response_id").to_pylist()
    target = target_scores(run.read(people), study.evaluation.target)
    score = dict(zip(*(target[name].to_pylist() for name in ("response_id", "score")), strict=True))
    response_ids = [row["response_id"] for row in rows]
    grades = [score.get(name) for name in response_ids]
    return Sheet(
        response_ids=response_ids,
        rubric_of=[rubric_of[row["item_id"]] for row in rows],
        rubrics=by_id,
        tops={criterion.id: criterion.top for criterion in criteria},
        grades=np.array(grades, np.float64),
    )


def annotators(run: Run, sheet: Sheet, annotated: Mapping[str, TableRef]) -> dict[str, Ints]:
    """Annotator → its levels (n, K)."""
    return {name: levels_of(run.read(ref), sheet.response_ids, list(sheet.tops)) for name, ref in annotated.items()}


def settled(run: Run, sheet: Sheet, labels: TableRef) -> tuple[Ints, Ints, dict[str, Ints]]:
    """The final levels (n, K), those of them that people settled, and person → the levels that they voted."""
    row_of = {name: row for row, name in enumerate(sheet.response_ids)}
    column_of = {name: column for column, name in enumerate(sheet.tops)}
    final = np.full((len(row_of), len(column_of)), MISSING)
    by_people = final.copy()
    persons: dict[str, Ints] = {}
    for label in run.read(labels).to_pylist():
        cell = row_of[label["response_id"]], column_of[label["criterion_id"]]
        final[cell] = MISSING if label["level"] is None else label["level"]
        by_people[cell] = MISSING if label["settled_by"] == "annotators" else final[cell]
        for step in label["history"]:
            if step["kind"] == "vote" and step["level"] is not None:
                persons.setdefault(step["who"], np.full(final.shape, MISSING))[cell] = step["level"]
    return final, by_people, persons


def construction_rows(sheet: Sheet, levels: Ints, phase: str) -> Iterator[dict[str, Any]]:
    """Rows of `constructions`, rubric by rubric."""
    column_of = {name: column for column, name in enumerate(sheet.tops)}
    for name, rubric in sheet.rubrics.items():
        rows = [row for row, rubric_id in enumerate(sheet.rubric_of) if rubric_id == name]
        columns = [column_of[criterion.id] for criterion in rubric.criteria]
        for construction in constructions(rubric, levels[np.ix_(rows, columns)], sheet.grades[rows]):
            yield construction | {"phase": phase}
