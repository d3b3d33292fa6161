"""What clients are answered, and what a batch of answers comes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypedDict


class QuoteAnswer(TypedDict):
    """A quote that the judge offered."""

    quote: str
    start: int | None
    """Where it stands in the completion; None where it does not."""
    end: int | None
    status: str
    """What the verifier found; see the table `judgments`."""


class DecisionAnswer(TypedDict):
    """What the judge decided on one criterion."""

    criterion_id: str
    text: str
    weight: float
    level: int | None
    """None where it is unscored."""
    top: int
    """The highest level."""
    probabilities: list[float] | None
    """Of each level, where the judge gives them."""
    verified: bool | None
    unscored: str | None
    evidence: list[QuoteAnswer]


class ShareAnswer(TypedDict):
    """How far a criterion counts, in [0, 1]; None where it is unscored."""

    own: float | None
    """By itself."""
    licensed: float | None
    """After what it depends on."""


class UnscoredAnswer(TypedDict):
    """Why there is no reward."""

    reason: str
    said: str
    """The error, or the start of the reply that could not be used."""


class AgreementAnswer(TypedDict):
    """How far two judgings of a rollout agree."""

    same: int
    """Criteria that both put on the same level."""
    compared: int
    """Criteria that both decided."""


class RolloutAnswer(TypedDict):
    """All that is known of one rollout."""

    item_id: str
    reward: float | None
    """By the server's aggregation; None with a reason in `unscored`."""
    reward_variance: float | None
    """How far the reward would vary if the judge's own doubts were settled one way or the other; None where the judge
    gives no probabilities, of gates, and of graphs too wide for it."""
    flat: float | None
    gear: float | None
    false_credit: float | None
    """Credit that the flat sum pays without licence, as a share of the positive points; at least 0."""
    leaked: dict[str, float]
    """Relation → what the flat sum pays for children whose parent fails, as a share of the positive points."""
    supported: int
    """Dependencies whose child is supported by itself."""
    violated: int
    """Of these, those whose parent is not."""
    agreement: AgreementAnswer | None
    """None where it was judged once, as most are."""
    unscored: UnscoredAnswer | None
    decisions: list[DecisionAnswer]
    shares: dict[str, ShareAnswer]
    calls: int
    prompt_tokens: int
    completion_tokens: int


class Summary(TypedDict):
    """What a batch comes to, for a training's curves. Means are over the rollouts that have a reward; None where there
    is none."""

    rollouts: int
    unscored: int
    share_unscored: float
    reasons: dict[str, int]
    """Reason → rollouts without a reward."""
    reward: float | None
    reward_variance: float | None
    flat: float | None
    gear: float | None
    false_credit: float | None
    leaked: dict[str, float]
    """Relation → mean per rollout."""
    suppressed: float | None
    """Share of the supported dependencies whose parent fails; None where no dependency is supported."""
    unverified: float | None
    """Share of the levels above 0, of criteria that need a quote, whose quotes are not in the completion; None where
    there is no such level."""
    judge_agreement: float | None
    """Share of the criteria that the second judging of a rollout left as they were; None where none was judged
    twice."""
    judged_twice: int
    """Rollouts."""
    calls: int
    prompt_tokens: int
    completion_tokens: int


def unscored_answer(item_id: str, reason: str, said: str) -> RolloutAnswer:
    """A rollout that was not judged."""
    return {
        "item_id": item_id,
        "reward": None,
        "reward_variance": None,
        "flat": None,
        "gear": None,
        "false_credit": None,
        "leaked": {},
        "supported": 0,
        "violated": 0,
        "agreement": None,
        "unscored": {"reason": reason, "said": said},
        "decisions": [],
        "shares": {},
        "calls": 0,
        "prompt_tokens": 0,
        "completion_tokens": 0,
    }


def summary_of(answers: Sequence[RolloutAnswer]) -> Summary:
    """The figures of a batch."""
    rewarded = [answer for answer in answers if answer["reward"] is not None]
    unscored = [answer["unscored"] for answer in answers if answer["unscored"]]
    supported = sum(answer["supported"] for answer in rewarded)
    violated = sum(answer["violated"] for answer in rewarded)
    twice = [answer["agreement"] for answer in answers if answer["agreement"]]
    same = sum(agreement["same"] for agreement in twice)
    compared = sum(agreement["compared"] for agreement in twice)
    decisions = (decision for answer in answers for decision in answer["decisions"])
    verified = [decision["verified"] for decision in decisions if decision["verified"] is not None]
    leaked: Counter[str] = Counter()
    for answer in rewarded:
        leaked.update(answer["leaked"])
    return {
        "rollouts": len(answers),
        "unscored": len(answers) - len(rewarded),
        "share_unscored": 1 - len(rewarded) / len(answers) if answers else 0.0,
        "reasons": dict(Counter(cause["reason"] for cause in unscored)),
        "reward": _mean([answer["reward"] for answer in rewarded]),
        "reward_variance": _mean([answer["reward_variance"] for answer in rewarded]),
        "flat": _mean([answer["flat"] for answer in rewarded]),
        "gear": _mean([answer["gear"] for answer in rewarded]),
        "false_credit": _mean([answer["false_credit"] for answer in rewarded]),
        "leaked": {relation: total / len(rewarded) for relation, total in sorted(leaked.items())},
        "suppressed": violated / supported if supported else None,
        "unverified": sum(not holds for holds in verified) / len(verified) if verified else None,
        "judge_agreement": same / compared if compared else None,
        "judged_twice": len(twice),
        "calls": sum(answer["calls"] for answer in answers),
        "prompt_tokens": sum(answer["prompt_tokens"] for answer in answers),
        "completion_tokens": sum(answer["completion_tokens"] for answer in answers),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
