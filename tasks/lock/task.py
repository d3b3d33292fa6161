"""The door of lock: items and the study's rubrics in, rubrics and bundles out."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from prefect import task

from tasks.contracts.bundle import Rubric
from tasks.contracts.errors import InputError
from tasks.contracts.reference import TableRef
from tasks.contracts.schema import Row
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.rubrics import Bundles, Rubrics
from tasks.llm.opening import KeyOf, open_backend
from tasks.lock.bundles import finished
from tasks.lock.contract import MadeRubric
from tasks.lock.lint import lint
from tasks.lock.people import mark_place, off_scale, score_place, unknown_mark
from tasks.lock.rubric import authored, rubrics_of
from tasks.store.naming import named
from tasks.store.warehouse import Rows, Run


class Locked(NamedTuple):
    """What lock writes."""

    rubrics: TableRef
    bundles: TableRef


@task(task_run_name=named("lock"))
def lock(
    run: Run,
    study: Study,
    base: Path,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    marks: TableRef,
    key_of: KeyOf = os.environ.get,
) -> Locked:
    """Find or make the rubric of every item, lint it, and lock it under the study's protocol.

    people, marks: gradings and judgments of the data. key_of: name of a credential → its value, see `Engine.key`, for a
    model that makes rubrics. InputError where an item names no known rubric, a human score lies off the scale of its
    item's rubric or the range of its trait, a mark names a criterion or level that the rubric, as its author wrote it,
    does not have, or a model that is to make a rubric gives nothing usable.
    """

    def make() -> dict[type[Row], Rows]:
        induced = study.rubrics.induce is not None
        known = authored(base / study.rubrics.file, induced) if study.rubrics.file else {}
        asked = run.read(items).to_pylist()
        found = rubrics_of(asked, known, study.rubrics)
        rubric_of = {item["item_id"]: found[item["rubric_id"]] for item in asked}
        _refuse_off_scale(run, study, base, people, rubric_of)
        if marks.rows:
            _refuse_unknown_marks(run, study, base, marks, run.read(responses, ["response_id", "item_id"]), rubric_of)
        replies = run.warehouse.replies
        locked = finished(
            study, found, known, asked, replies, lambda store: open_backend(study.judge, base, store, key_of)
        )
        return {
            Rubrics: [_rubric_row(one.made, one.origin) for one in locked.values()],
            Bundles: [
                {"rubric_id": name, "bundle_id": one.bundle.bundle_id, "content": one.bundle.canonical()}
                for name, one in locked.items()
            ],
        }

    run.once("lock", make)
    return Locked(run.ref(Rubrics, "lock"), run.ref(Bundles, "lock"))


def _refuse_off_scale(run: Run, study: Study, base: Path, people: TableRef, rubric_of: Mapping[str, Rubric]) -> None:
    for batch in run.batches(people, ["response_id", "item_id", "rater_id", "rater_kind", "score", "trait_scores"]):
        given = pa.Table.from_batches([batch])
        # What a machine recorded is on a scale of its own.
        offence = off_scale(given.filter(pc.not_equal(given["rater_kind"], "replayed")), rubric_of)
        if offence:
            place = score_place(study.data, base, offence)
            raise InputError(offence.rule, **(place._asdict() if place else {"field": offence.part or "score"}))


def _refuse_unknown_marks(
    run: Run, study: Study, base: Path, marks: TableRef, answered: pa.Table, rubric_of: Mapping[str, Rubric]
) -> None:
    for batch in run.batches(marks, ["response_id", "criterion_id", "rater_id", "decision"]):
        offence = unknown_mark(pa.Table.from_batches([batch]), answered, rubric_of)
        if offence:
            place = mark_place(study.data, base, offence)
            raise InputError(offence.rule, **(place._asdict() if place else {"field": "level"}))


def _rubric_row(made: MadeRubric, origin: str) -> dict[str, Any]:
    content = json.dumps(made.rubric.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
    return {
        "rubric_id": made.rubric.rubric_id,
        "title": made.rubric.title,
        "origin": origin,
        "content": content,
        "lint": lint(made.rubric),
        "calls": list(made.calls),
    }
