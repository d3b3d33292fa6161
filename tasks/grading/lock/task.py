"""The stage of lock: items and the study's rubrics in, rubrics and bundles out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts.bundle import Rubric, unlocked
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, JurorBundles, Rubrics
from rubricflow.tasks.core.llm.backend import Backend, KeyOf
from rubricflow.tasks.core.llm.encoder import require_encoder
from rubricflow.tasks.core.llm.opening import open_backend
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Rows, Run
from rubricflow.tasks.grading.lock.bundles import asks, finished, locked, types_of
from rubricflow.tasks.grading.lock.lint import lint
from rubricflow.tasks.grading.lock.people import refuse_off_scale, refuse_unfit, refuse_unknown_marks
from rubricflow.tasks.grading.lock.rubric import authored, rubrics_of


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
        authored_rubrics = authored(base / study.rubrics.file, induced) if study.rubrics.file else {}
        item_rows = run.read(items).to_pylist()
        rubrics = rubrics_of(item_rows, authored_rubrics, study.rubrics)
        rubric_of = {item["item_id"]: rubrics[item["rubric_id"]] for item in item_rows}
        refuse_off_scale(run, study, base, people, rubric_of)
        if marks.rows:
            refuse_unknown_marks(run, study, base, marks, run.read(responses, ["response_id", "item_id"]), rubric_of)
        replies = run.warehouse.replies if asks(study.rubrics) else ":memory:"

        def model_by(store: Replies) -> Backend:
            return open_backend(study.judge.lead, base, store, key_of)

        rubric_rows, bundle_rows = [], []
        for name, one in finished(study, rubrics, authored_rubrics, item_rows, replies, model_by).items():
            bundle = one.bundle
            rubric = one.judged.rubric
            warnings = lint(one.judged.rubric)
            content = rubric.model_dump(mode="json")
            found = [*warnings, *(remark.text for remark in one.unexplained)]
            row = {
                "rubric_id": rubric.rubric_id,
                "title": rubric.title,
                "origin": one.origin,
                "content": json.dumps(content, sort_keys=True, ensure_ascii=False),
                "lint": found,
                "calls": list(one.judged.calls),
            }
            rubric_rows.append(row)
            bundle_rows.append({"rubric_id": name, "bundle_id": bundle.bundle_id, "content": bundle.canonical()})
        return {Rubrics: rubric_rows, Bundles: bundle_rows}

    run.once("lock", make)
    return Locked(run.ref(Rubrics, "lock"), run.ref(Bundles, "lock"))


@task(task_run_name=named("lock"))
def lock_for_juror(run: Run, study: Study, judge: Judge, items: TableRef, rubrics: TableRef, stage: str) -> TableRef:
    """Lock the rubrics of a run, as they are, under the protocol of a juror. stage: under which name that is written.

    ContractError where the protocol cannot judge a rubric.
    """

    def make() -> dict[type[Row], Rows]:
        types = types_of(run.read(items, ["rubric_id", "type"]).to_pylist())
        rows = []
        for row in run.read(rubrics, ["rubric_id", "origin", "content"]).to_pylist():
            name = row["rubric_id"]
            rubric = Rubric.model_validate_json(row["content"])
            bundle = locked(study, judge, rubric, row["origin"], types[name])
            rows.append({"rubric_id": name, "bundle_id": bundle.bundle_id, "content": bundle.canonical()})
        return {JurorBundles: rows}

    run.once(stage, make)
    return run.ref(JurorBundles, stage)


@task(task_run_name=named("fit"))
def fit(run: Run, study: Study, base: Path, items: TableRef, people: TableRef, bundles: TableRef) -> None:
    """Hold human scores and the study's tolerance against the scales, where scores are to be released.

    InputError where a person's score lies between the steps of its scale, or where under the tolerance no score of a
    scale that people used could be wrong: both would be told as agreement. BackendError where the calibration to come
    asks for an encoder that is not installed.
    """
    if "embedding" in study.calibration.texts:
        require_encoder("calibration.features names 'embedding' (leave it out: features: [judge, characters])")
    rubric_of = {row["item_id"]: row["rubric_id"] for row in run.read(items, ["item_id", "rubric_id"]).to_pylist()}
    scales = {name: bundle.scale for name, bundle in unlocked(run.read(bundles).to_pylist()).items()}
    refuse_unfit(run, study, base, people, rubric_of, scales)
