"""What is recorded of a training beside its batches, and what a server that starts again reads of it."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.flows.prepared import PreparedItem
from rubricflow.flows.recorder import gather
from rubricflow.flows.rollouts import CURVES
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.reward import Rewards
from rubricflow.tasks.core.contracts.tables.training import HeldOutQuality, TrainedCriteria
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.rewards.serve.answered import CreditSum, Qualities, TrainingRecord

HELD_OUT = "held_out"
"""The stage of a recorded run that holds the evaluations."""
CRITERIA = "criteria"
"""The stage that holds what is looked for."""
NOTHING = TrainingRecord({}, {})


def record_quality(run: Run, step: int, quality: Qualities) -> None:
    """Write an evaluation, in place of an earlier one of the same step."""
    rows = [{"step": step, "item_id": item_id, "quality": value} for item_id, value in sorted(quality.items())]
    run.commit(HELD_OUT, f"{step:09d}", {HeldOutQuality: rows})


def record_criteria(run: Run, items: Mapping[str, PreparedItem], shard: str = "all") -> None:
    """Write what items are rewarded by, so that a report can say it in words."""
    rows: list[dict[str, object]] = []
    for item_id, item in items.items():
        rows += [
            {"item_id": item_id, "criterion_id": criterion.id, "text": criterion.text, "weight": criterion.weight}
            for criterion in item.bundle.criteria
        ]
    run.commit(CRITERIA, shard, {TrainedCriteria: rows})


def read_record(run: Run | None) -> TrainingRecord:
    """False credit and held-out quality by step, as far as they were recorded."""
    if run is None:
        return NOTHING
    gather(run)
    credits = _credits(run) if run.shards(CURVES) else {}
    quality = read_quality(run) if run.shards(HELD_OUT) else {}
    return TrainingRecord(credits, quality)


def read_quality(run: Run) -> dict[int, dict[str, float]]:
    """Step → held-out item → its quality."""
    quality: dict[int, dict[str, float]] = {}
    for row in run.read(run.ref(HeldOutQuality, HELD_OUT)).to_pylist():
        quality.setdefault(row["step"], {})[row["item_id"]] = row["quality"]
    return quality


def _credits(run: Run) -> Mapping[int, CreditSum]:
    """Step → flat minus GEAR of its rollouts."""
    rewards = run.read(run.ref(Rewards, CURVES), ["response_id", "aggregation", "reward"])
    flat, gear = (_rewards(rewards, name) for name in ("flat", "gear"))
    responses = run.read(run.ref(Responses, "trainer"), ["response_id", "groups"])
    credits: dict[int, CreditSum] = {}
    for response, groups in zip(responses["response_id"].to_pylist(), responses["groups"].to_pylist(), strict=True):
        step = dict(groups).get("step")
        pair = flat.get(response), gear.get(response)
        if step is None or pair[0] is None or pair[1] is None:
            continue
        credits[int(step)] = credits.get(int(step), CreditSum(0.0, 0)).plus(pair[0] - pair[1], 1)
    return credits


def _rewards(rewards: pa.Table, aggregation: str) -> dict[str, float | None]:
    rows = rewards.filter(pc.field("aggregation") == aggregation)
    return dict(zip(rows["response_id"].to_pylist(), rows["reward"].to_pylist(), strict=True))
