"""A batch of rollouts: what is judged, what became of it, and what it cost."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import NamedTuple

from rubricflow.flows.failures import Trouble
from rubricflow.flows.prepared import PreparedItem
from rubricflow.tasks.core.llm.calls import PENDING, InFlight
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.grading.judge.rows import Called, Graded
from rubricflow.tasks.rewards.reward.local import Locals


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
    paid: tuple[Reply, ...] = ()
    """Replies to calls that were made for it before, where it is judged for another time."""


class UnfinishedRollout(NamedTuple):
    """A rollout with calls that its batch did not wait for."""

    awaited: Sequence[Future[Reply]]
    """Their replies."""
    paid: tuple[Reply, ...]
    """The replies to its other calls."""


class JudgedBatch(NamedTuple):
    """What became of a batch, in the order of its rollouts."""

    graded: Graded
    local: Locals
    """What each criterion is worth on its own."""
    rewards: list[float | None]
    variances: list[float | None]
    """Of the rewards, by the judge's own doubts; None where nothing is known of them."""
    missing: list[Trouble | None]
    """Why there is no reward, where there is none."""
    cost: Cost
    repeats: Graded | None = None
    """The second judging of the rollouts that were judged twice."""


def unfinished(several: Sequence[Graded], in_flight: InFlight) -> dict[str, UnfinishedRollout]:
    """Response → what its judgings, of which there may be several, still wait for; those that wait for something."""
    awaited: dict[str, list[Future[Reply]]] = {}
    paid: dict[str, list[Reply]] = {}
    for called in (called for graded in several for called in graded.called):
        name, attempts = called.case.response_id, called.answer.attempts
        paid.setdefault(name, []).extend(made(called))
        if attempts[-1].reply.error == PENDING:
            reply = in_flight.reply_of(attempts[-1].digest)
            awaited.setdefault(name, []).extend([reply] if reply else [])
    return {name: UnfinishedRollout(replies, tuple(paid[name])) for name, replies in awaited.items()}


def made(called: Called) -> list[Reply]:
    """The replies to the calls that were made for a part of a rollout."""
    return [one.reply for one in called.answer.attempts if not one.stored and one.reply.error != PENDING]


def finished(graded: Graded, names: Collection[str]) -> Graded:
    """What became of all but these responses."""
    return replace(
        graded,
        judged=[judged for judged in graded.judged if judged.case.response_id not in names],
        gradings=[grading for grading in graded.gradings if grading.case.response_id not in names],
        called=[called for called in graded.called if called.case.response_id not in names],
    )
