"""A run of the warehouse as a command takes it up again: found, brought up to date with people's marks, and read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts import Record, ScaleBounds
from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.errors import StoreError, UserError
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.store.catalogue import read_manifest
from rubricflow.tasks.core.store.manifest import study_of
from rubricflow.tasks.core.store.warehouse import ARMS, EXPERIMENTS, Run, Warehouse, pairs


def find_run(folder: str, run_id: str | None) -> Run:
    """The run of this id, also one that did not finish; without an id the last that finished and is no experiment's
    arm. UserError where there is none; asking makes no warehouse where there is none."""
    from rubricflow.tasks.core.store.catalogue import follow_move

    warehouse = Warehouse.open(folder) if Path(folder).is_dir() else None
    finished = []
    if warehouse:
        follow_move(warehouse)
        finished = warehouse.runs()
        if run_id in warehouse.begun():
            return warehouse.run(str(run_id))
        own_runs = [name for name in finished if name not in warehouse.arms()]
        if own_runs and not run_id:
            return warehouse.run(own_runs[-1])
    label = f"run {run_id!r}" if run_id else "finished run"
    place = warehouse.place if warehouse else folder
    raise UserError(f"no {label} in {place}; finished are: {', '.join(finished) or 'none'}")


def keep_arms(warehouse: Warehouse, name: str, runs: Mapping[str, Run]) -> None:
    """Notes the runs of an experiment, so that none of them is taken for the latest run of the warehouse."""
    ids = {arm_name: run.run_id for arm_name, run in runs.items()}
    warehouse.write(warehouse.root / EXPERIMENTS / name / ARMS, json.dumps(ids).encode())


def is_finished(run: Run) -> bool:
    """Whether a run has its manifest, which is written last."""
    return run.fetched("manifest.json").is_file() and bool(read_manifest(run))


def settle_scores(run: Run, study: Study | None = None) -> None:
    """Bring marks and votes into the run's tables; prints how many votes do not count any more.

    study: the one that the run is of as study, data and code are now; None for a run of any time, whose manifest holds
    what its marks are. A run that did not finish has none, and its marks decide nothing yet.
    """
    from rubricflow.tasks.core.store.catalogue import manifest_of
    from rubricflow.tasks.people.review.settled_scores import keep_settled_scores

    plan: Record = {"marks": "calibrate"}
    with suppress(StoreError):
        plan |= study.model_dump() if study else manifest_of(run)["identity"]["study"]
    target = plan["evaluation"]["target"] if plan["marks"] == "grade" else None
    stale = keep_settled_scores(run, run.run_id.rpartition("-")[0], target, keep=study is not None)
    if stale:
        rule = "do not count: the answer or its scale has changed since"
        print(f"{stale:,} {'vote' if stale == 1 else 'votes'} on scores {rule}", file=sys.stderr)


class FinishedRun(NamedTuple):
    """What a finished run measures its scores by."""

    study: Study
    scores: Iterator[Any]
    """What its score frame is made from."""
    scales: dict[str, ScaleBounds]
    """Item → (lowest score, highest score, step)."""


def read_finished(run: Run) -> FinishedRun:
    """A finished run's study, scores and scales; StoreError where it did not finish."""
    from rubricflow.tasks.core.store.ordered import read_scores

    study = study_of(run)
    scores = read_scores(
        run,
        run.ref(Items, "ingest"),
        run.ref(Responses, "ingest"),
        people=run.ref(Gradings, "ingest"),
        gradings=run.ref(Gradings, "judge"),
        predictions=run.ref(Predictions, "calibrate"),
    )
    return FinishedRun(study, scores, {item: bundle.scale.bounds for item, bundle in item_bundles(run).items()})


def item_bundles(run: Run) -> dict[str, Bundle]:
    locked = unlocked(run.table(Bundles, "lock").to_pylist())
    rubric_of = pairs(run.table(Items, "ingest", ["item_id", "rubric_id"]))
    return {item: locked[rubric] for item, rubric in rubric_of}
