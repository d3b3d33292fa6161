"""A batch of rollouts: what is judged, what became of it, what it cost, and its rows as they are recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from flows.failures import Trouble
from flows.prepared import PreparedItem
from tasks.judge.rows import Case, Graded
from tasks.llm.ask import Wave
from tasks.reward.local import Locals


@dataclass(frozen=True)
class Cost:
    """What one batch took."""

    rollouts: int
    unscored: int
    """Rollouts without a reward."""
    calls: int
    """Calls to the judge; replies from the store and those shared by identical rollouts are none."""
    prompt_tokens: int
    """Of the calls, as far as the backend counts them."""
    completion_tokens: int
    seconds: float


class PosedRollout(NamedTuple):
    """A rollout with the item that it answers."""

    item: PreparedItem
    text: str
    step: int | None = None
    """The step of the training that it was made in."""


class JudgedBatch(NamedTuple):
    """What became of a batch, in the order of its rollouts."""

    cases: Sequence[Case]
    graded: Graded
    local: Locals
    """What each criterion is worth on its own; its responses are the cases, in their order."""
    rewards: list[float | None]
    variances: list[float | None]
    """Of the rewards, by the judge's own doubts; None where nothing is known of them."""
    missing: list[Trouble | None]
    """Why there is no reward, where there is none."""
    cost: Cost
    repeats: Graded | None = None
    """The second judging of the rollouts that were judged twice."""


def cost_of(rewards: Sequence[float | None], waves: Sequence[Wave], seconds: float) -> Cost:
    """The cost of a batch by its rewards, None where there is none, and the waves of its calls."""
    return Cost(
        rollouts=len(rewards),
        unscored=sum(reward is None for reward in rewards),
        calls=sum(wave.asked for wave in waves),
        prompt_tokens=sum(wave.prompt_tokens for wave in waves),
        completion_tokens=sum(wave.completion_tokens for wave in waves),
        seconds=seconds,
    )


def without(rewards: pa.Table, failed: Sequence[str]) -> pa.Table:
    """The rows, with no reward for these responses: what the judge did not get to is neither met nor missed, whatever
    the bundle says of criteria that it answered in vain."""
    gone = pc.is_in(rewards["response_id"], pa.array(failed, pa.string()))
    for name in ("reward", "low", "high", "reward_variance"):
        at = rewards.schema.get_field_index(name)
        rewards = rewards.set_column(at, rewards.field(at), pc.if_else(gone, None, rewards[name]))
    return rewards


def responses(cases: Sequence[Case], steps: Sequence[int | None]) -> list[dict[str, Any]]:
    """Rollouts as rows of the table `responses`, with the step that each was made in."""
    return [
        {
            "response_id": case.response_id,
            "item_id": case.item_id,
            "author_id": None,
            "text": case.text,
            "split": "train",
            "groups": {} if step is None else {"step": str(step)},
        }
        for case, step in zip(cases, steps, strict=True)
    ]
