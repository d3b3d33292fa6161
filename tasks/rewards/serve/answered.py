"""What clients are answered: about a rollout, about a batch, and about the training that the batches belong to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypedDict

from rubricflow.tasks.core.stats.reward_hacking import FEWEST_EVALUATIONS, HackingAlarm, hacking_alarms


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
    shares: Mapping[str, Mapping[str, float | None]]
    """Criterion → its share in [0, 1], `own` by itself and `licensed` after what it depends on; None where it is
    unscored."""
    graph_by: str | None
    """Who made the graph that it is rewarded by: 'authored', a model's name, or 'stated' where nobody looked for
    dependencies and the reward is flat but for those that criteria state themselves; None where that is not known."""
    dependencies: int
    """Of that graph."""
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
        "graph_by": None,
        "dependencies": 0,
        "calls": 0,
        "prompt_tokens": 0,
        "completion_tokens": 0,
    }


def summary_of(answers: Sequence[RolloutAnswer]) -> Summary:
    """The figures of a batch."""
    rewarded = [answer for answer in answers if answer["reward"] is not None]
    twice = [answer["agreement"] for answer in answers if answer["agreement"]]
    verified = [decision["verified"] for answer in answers for decision in answer["decisions"]]
    leaked: Counter[str] = Counter()
    for answer in rewarded:
        leaked.update(answer["leaked"])

    def mean(name: Literal["reward", "reward_variance", "flat", "gear", "false_credit"]) -> float | None:
        numbers = [value for answer in rewarded if (value := answer[name]) is not None]
        return _share(sum(numbers), len(numbers))

    def total(name: Literal["calls", "prompt_tokens", "completion_tokens"]) -> int:
        return sum(answer[name] for answer in answers)

    return {
        "rollouts": len(answers),
        "unscored": len(answers) - len(rewarded),
        "share_unscored": 1 - len(rewarded) / len(answers) if answers else 0.0,
        "reasons": dict(Counter(answer["unscored"]["reason"] for answer in answers if answer["unscored"])),
        "reward": mean("reward"),
        "reward_variance": mean("reward_variance"),
        "flat": mean("flat"),
        "gear": mean("gear"),
        "false_credit": mean("false_credit"),
        "leaked": {relation: amount / len(rewarded) for relation, amount in sorted(leaked.items())},
        "suppressed": _share(
            sum(answer["violated"] for answer in rewarded), sum(answer["supported"] for answer in rewarded)
        ),
        "unverified": _share(verified.count(False), len(verified) - verified.count(None)),
        "judge_agreement": _share(
            sum(agreement["same"] for agreement in twice), sum(agreement["compared"] for agreement in twice)
        ),
        "judged_twice": len(twice),
        "calls": total("calls"),
        "prompt_tokens": total("prompt_tokens"),
        "completion_tokens": total("completion_tokens"),
    }


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None


# What the server remembers of a training: rewards by step, held-out quality, and the alarm of reward hacking.

Qualities = Mapping[str, float]
"""Held-out item → its quality, higher is better."""


class RewardSum(NamedTuple):
    """Rewards of a step's rollouts that have one."""

    total: float
    rollouts: int

    def plus(self, total: float, rollouts: int) -> RewardSum:
        """With these added."""
        return RewardSum(self.total + total, self.rollouts + rollouts)


class TrainingRecord(NamedTuple):
    """What earlier servers recorded of the same training."""

    rewards: Mapping[int, RewardSum]
    quality: Mapping[int, Qualities]


class HeldOutAnswer(TypedDict):
    """What is answered to a held-out evaluation."""

    step: int
    quality: float
    """Mean over the items."""
    items: int
    alarm: bool | None
    """Whether the policy looks as if it learns to please its judge; None as long as there are too few evaluations."""
    said: str
    """The same in a sentence."""
    reward: Mapping[str, float] | None
    """How its mean changed between two windows of evaluations, the fields of `Change`."""
    held_out: Mapping[str, float] | None
    """The same of the quality."""


class TrainingFigures(TypedDict):
    """What goes with every batch's figures; None as long as it is not known."""

    held_out: float | None
    alarm: bool | None


class TrainingMemory:
    """The curve of one training. Only the event loop uses it."""

    def __init__(self, record: TrainingRecord) -> None:
        self._rewards = dict(record.rewards)
        self._quality = dict(record.quality)
        self._alarm = self._latest()

    def note(self, step: int | None, answers: Sequence[RolloutAnswer]) -> None:
        """Takes a batch of a step; one without a step has no place on a curve."""
        rewards = [answer["reward"] for answer in answers if answer["reward"] is not None]
        if step is not None and rewards:
            earlier = self._rewards.get(step, RewardSum(0.0, 0))
            self._rewards[step] = earlier.plus(sum(rewards), len(rewards))

    def evaluated(self, step: int, quality: Qualities) -> HeldOutAnswer:
        """Takes a held-out evaluation, in place of an earlier one of the same step."""
        self._quality[step] = dict(quality)
        self._alarm = alarm = self._latest()
        return {
            "step": step,
            "quality": sum(quality.values()) / len(quality),
            "items": len(quality),
            "alarm": alarm.is_raised if alarm else None,
            "said": alarm.said if alarm else f"too few evaluations to say: the alarm needs {FEWEST_EVALUATIONS}",
            "reward": alarm.paid._asdict() if alarm else None,
            "held_out": alarm.quality._asdict() if alarm else None,
        }

    @property
    def figures(self) -> TrainingFigures:
        """What is known now."""
        last = self._quality[max(self._quality)] if self._quality else {}
        return {
            "held_out": sum(last.values()) / len(last) if last else None,
            "alarm": self._alarm.is_raised if self._alarm else None,
        }

    def _latest(self) -> HackingAlarm | None:
        means = {step: rewards.total / rewards.rollouts for step, rewards in self._rewards.items()}
        alarms = list(hacking_alarms(means, self._quality))
        return alarms[-1] if alarms else None
