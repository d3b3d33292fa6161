"""The entry point of the training report: what a trainer's rewards were recorded as, in; a page, out."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.schema import Row
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.contracts.tables.reward import EdgeCases, HeldOutQuality, Rewards, TrainedCriteria
from rubricflow.tasks.core.publish import write_page
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.rewards.report.training.curves import criterion_shares, judged_twice, unverified_shares
from rubricflow.tasks.rewards.report.training.view import TrainingView, page


def write_training(run: Run) -> Path:
    """Write `<run>/training.html` from what was recorded until now; StoreError where nothing was."""
    rewards = run.read(run.ref(Rewards, "curves"), ["response_id", "item_id", "aggregation", "reward", "marginals"])
    responses = run.read(run.ref(Responses, "trainer"), ["response_id", "item_id", "text", "groups"])
    view = TrainingView(
        run_id=run.run_id,
        rewards=rewards.drop_columns("marginals").to_pandas(),
        responses=_with_steps(responses.to_pylist(maps_as_pydicts="strict")),
        cases=run.read(run.ref(EdgeCases, "curves"), ["response_id", "relation", "leaked"]).to_pandas(),
        shares=criterion_shares(rewards),
        twice=_twice(run),
        unverified=unverified_shares(_rows(run, Judgments, "trainer", ["response_id", "verified"])),
        quality=_rows(run, HeldOutQuality, "held_out", ["step", "item_id", "quality"]),
        texts=_texts(_rows(run, TrainedCriteria, "criteria", ["item_id", "criterion_id", "text"])),
    )
    return write_page(run, "training.html", page(view))


def _rows(run: Run, table: type[Row], stage: str, columns: list[str]) -> pd.DataFrame:
    """What a stage wrote of a table; without rows where it never ran."""
    if not run.shards(stage):
        return pd.DataFrame({name: [] for name in columns})
    rows: pd.DataFrame = run.read(run.ref(table, stage), columns).to_pandas()
    return rows


def _twice(run: Run) -> pd.DataFrame:
    """Criteria of the rollouts that were judged twice."""
    columns = ["response_id", "criterion_id", "decision"]
    second = _rows(run, Judgments, "repeats", columns)
    if second.empty:
        return judged_twice(second, second)
    where = pc.field("response_id").isin(second["response_id"].unique())
    first = run.read(run.ref(Judgments, "trainer"), columns, where).to_pandas()
    return judged_twice(first, second)


def _texts(criteria: pd.DataFrame) -> dict[tuple[str, str], str]:
    """(item, criterion) → its text."""
    keys = zip(criteria["item_id"], criteria["criterion_id"], strict=True)
    return dict(zip(keys, criteria["text"], strict=True))


def _with_steps(rows: list[dict[str, object]]) -> pd.DataFrame:
    """Rollouts with the step of the training that each was made in, None where it is not known."""
    texts = [{name: row[name] for name in ("response_id", "item_id", "text")} for row in rows]
    steps = [dict(row["groups"]).get("step") for row in rows]  # type: ignore[call-overload]
    return pd.DataFrame(texts).assign(step=pd.to_numeric(pd.Series(steps, dtype=object), errors="coerce"))
