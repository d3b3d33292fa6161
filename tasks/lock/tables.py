"""What people gave held against the rubrics, and a rubric as a row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tasks.contracts.bundle import Rubric
from tasks.contracts.errors import InputError
from tasks.contracts.reference import TableRef
from tasks.contracts.settings.study import Study
from tasks.lock.contract import MadeRubric
from tasks.lock.lint import lint
from tasks.lock.people import mark_place, off_scale, score_place, unknown_mark
from tasks.store.warehouse import Run


def refuse_off_scale(run: Run, study: Study, base: Path, people: TableRef, rubric_of: Mapping[str, Rubric]) -> None:
    """InputError for a score off the scale of its item's rubric or the range of its trait."""
    for batch in run.batches(people, ["response_id", "item_id", "rater_id", "rater_kind", "score", "trait_scores"]):
        given = pa.Table.from_batches([batch])
        # What a machine recorded is on a scale of its own.
        offence = off_scale(given.filter(pc.not_equal(given["rater_kind"], "replayed")), rubric_of)
        if offence:
            place = score_place(study.data, base, offence)
            raise InputError(offence.rule, **(place._asdict() if place else {"field": offence.part or "score"}))


def refuse_unknown_marks(
    run: Run, study: Study, base: Path, marks: TableRef, answered: pa.Table, rubric_of: Mapping[str, Rubric]
) -> None:
    """InputError for a mark of a criterion or level that its rubric does not have."""
    for batch in run.batches(marks, ["response_id", "criterion_id", "rater_id", "decision"]):
        offence = unknown_mark(pa.Table.from_batches([batch]), answered, rubric_of)
        if offence:
            place = mark_place(study.data, base, offence)
            raise InputError(offence.rule, **(place._asdict() if place else {"field": "level"}))


def rubric_row(made: MadeRubric, origin: str) -> dict[str, Any]:
    """A row of `rubrics`."""
    content = json.dumps(made.rubric.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
    return {
        "rubric_id": made.rubric.rubric_id,
        "title": made.rubric.title,
        "origin": origin,
        "content": content,
        "lint": lint(made.rubric),
        "calls": list(made.calls),
    }
