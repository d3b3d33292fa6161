"""The entry point of the training report: what a trainer's rewards were recorded as, in; a page, out."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa

from rubricflow.tasks.core.contracts.schema import Row
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.contracts.tables.reward import EdgeCases, HeldOutQuality, Rewards, TrainedCriteria
from rubricflow.tasks.core.publish import write_page
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.rewards.report.training.view import TrainingView, criterion_shares, judged_twice, page, paired


def write_training(run: Run) -> Path:
    """Write `<run>/training.html` from what was recorded until now; StoreError where nothing was."""
    rewards = run.read(run.ref(Rewards, "curves"), ["response_id", "aggregation", "reward", "marginals"])
    rows = run.read(run.ref(Responses, "trainer"), ["response_id", "item_id", "text", "groups"])
    steps = [groups.get("step") for groups in rows["groups"].to_pylist(maps_as_pydicts="strict")]
    responses = rows.drop_columns("groups").to_pandas()
    responses["step"] = pd.to_numeric(pd.Series(steps, dtype=object), errors="coerce")
    rollouts = paired(rewards.drop_columns("marginals").to_pandas(), responses)
    judged = _rows(run, Judgments, "trainer", ["response_id", "criterion_id", "decision", "verified"]).to_pandas()
    quoted = judged.dropna(subset=["verified"])
    unverified = (1 - quoted["verified"].astype(float)).groupby(quoted["response_id"]).mean()
    again = _rows(run, Judgments, "repeats", ["response_id", "criterion_id", "decision"]).to_pandas()
    criteria = _rows(run, TrainedCriteria, "criteria", ["item_id", "criterion_id", "text"]).to_pylist()
    view = TrainingView(
        run_id=run.run_id,
        rollouts=rollouts.assign(unverified=rollouts["response_id"].map(unverified)),
        cases=run.read(run.ref(EdgeCases, "curves"), ["response_id", "relation", "leaked"]).to_pandas(),
        shares=criterion_shares(rewards),
        twice=judged_twice(judged.drop(columns="verified"), again),
        quality=_rows(run, HeldOutQuality, "held_out", ["step", "item_id", "quality"]).to_pandas(),
        texts={(row["item_id"], row["criterion_id"]): row["text"] for row in criteria},
    )
    return write_page(run, "training.html", page(view))


def _rows(run: Run, table: type[Row], stage: str, columns: list[str]) -> pa.Table:
    """What a stage wrote of a table; without rows where it never ran."""
    if run.shards(stage):
        return run.read(run.ref(table, stage), columns)
    return pa.table({name: pa.array([], pa.string()) for name in columns})
