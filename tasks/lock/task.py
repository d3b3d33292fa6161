"""The door of lock: items and the study's rubrics in, rubrics and bundles out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from prefect import task

from tasks.contracts.errors import InputError
from tasks.contracts.study import Study
from tasks.contracts.tables import Bundles, Rubrics, TableRef
from tasks.lock.lint import lint
from tasks.lock.lock import lock as lock_rubric
from tasks.lock.rubric import authored, derived, refuse_off_scale
from tasks.store.warehouse import Run


class Locked(NamedTuple):
    """What lock writes."""

    rubrics: TableRef
    bundles: TableRef


@task
def lock(run: Run, study: Study, base: Path, items: TableRef, people: TableRef) -> Locked:
    """Find or make the rubric of every item, lint it, and lock it under the study's protocol.

    InputError where an item names no known rubric, or a human score lies off the scale of its item's rubric.
    """

    def make() -> dict:
        known = authored(base / study.rubrics.file) if study.rubrics.file else {}
        protocol = study.judge.as_protocol()
        rubrics, bundles, scales = [], [], {}
        for item in {row["rubric_id"]: row for row in run.read(items).to_pylist()}.values():
            rubric_id, plan = item["rubric_id"], study.rubrics.derive
            if rubric_id not in known and plan is None:
                raise InputError(f"item '{item['item_id']}' names an unknown rubric '{rubric_id}'", file=study.rubrics.file)
            rubric = known.get(rubric_id) or derived(item, plan)
            bundle = lock_rubric(rubric, protocol)
            origin = "authored" if rubric_id in known else plan.origin
            content = json.dumps(rubric.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
            rubrics.append(
                {"rubric_id": rubric_id, "title": rubric.title, "origin": origin, "content": content, "lint": lint(rubric)}
            )
            bundles.append({"rubric_id": rubric_id, "bundle_id": bundle.bundle_id, "content": bundle.canonical()})
            scales[rubric_id] = bundle.scale
        by_item = {row["item_id"]: scales[row["rubric_id"]] for row in run.read(items).to_pylist()}
        refuse_off_scale(run.read(people, ["response_id", "item_id", "rater_id", "score"]).to_pylist(), by_item)
        return {Rubrics: rubrics, Bundles: bundles}

    run.once("lock", make)
    return Locked(run.ref(Rubrics, "lock"), run.ref(Bundles, "lock"))
