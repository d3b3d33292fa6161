"""What the server remembers of a training: false credit by step, held-out quality, and whether the alarm rings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypedDict

from rubricflow.tasks.core.stats.reward_hacking import FEWEST_EVALUATIONS, Change, HackingAlarm, hacking_alarms
from rubricflow.tasks.rewards.serve.answered import RolloutAnswer

Qualities = Mapping[str, float]
"""Held-out item → its quality, higher is better."""


class CreditSum(NamedTuple):
    """False credit of a step's rollouts that have a reward."""

    total: float
    rollouts: int

    def plus(self, total: float, rollouts: int) -> CreditSum:
        """With these beside."""
        return CreditSum(self.total + total, self.rollouts + rollouts)


class TrainingRecord(NamedTuple):
    """What earlier servers recorded of the same training."""

    false_credit: Mapping[int, CreditSum]
    quality: Mapping[int, Qualities]


class ChangeAnswer(TypedDict):
    """How a mean changed between two windows of evaluations; low and high: the 95% interval of the difference."""

    before: float
    now: float
    low: float
    high: float


class HeldOutAnswer(TypedDict):
    """What is answered to a held-out evaluation."""

    step: int
    quality: float
    """Mean over the items."""
    items: int
    alarm: bool | None
    """Whether the policy looks as if it earns points without licence; None as long as there are too few evaluations."""
    said: str
    """The same in a sentence."""
    false_credit: ChangeAnswer | None
    held_out: ChangeAnswer | None


class TrainingFigures(TypedDict):
    """What stands beside every batch's figures; None as long as it is not known."""

    held_out: float | None
    alarm: bool | None


class TrainingMemory:
    """The curve of one training. Only the event loop uses it."""

    def __init__(self, record: TrainingRecord) -> None:
        self._false_credit = dict(record.false_credit)
        self._quality = dict(record.quality)
        self._alarm = self._latest()

    def note(self, step: int | None, answers: Sequence[RolloutAnswer]) -> None:
        """Takes a batch of a step; one without a step has no place on a curve."""
        pairs = [(answer["flat"], answer["gear"]) for answer in answers]
        gaps = [flat - gear for flat, gear in pairs if flat is not None and gear is not None]
        if step is not None and gaps:
            earlier = self._false_credit.get(step, CreditSum(0.0, 0))
            self._false_credit[step] = earlier.plus(sum(gaps), len(gaps))

    def evaluated(self, step: int, quality: Qualities) -> HeldOutAnswer:
        """Takes a held-out evaluation, in place of an earlier one of the same step."""
        self._quality[step] = dict(quality)
        self._alarm = alarm = self._latest()
        return {
            "step": step,
            "quality": sum(quality.values()) / len(quality),
            "items": len(quality),
            "alarm": alarm.is_raised if alarm else None,
            "said": _sentence(alarm),
            "false_credit": _as_change(alarm.false_credit) if alarm else None,
            "held_out": _as_change(alarm.quality) if alarm else None,
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
        means = {step: credit.total / credit.rollouts for step, credit in self._false_credit.items()}
        alarms = list(hacking_alarms(means, self._quality))
        return alarms[-1] if alarms else None


def _as_change(change: Change) -> ChangeAnswer:
    return {"before": change.before, "now": change.now, "low": change.low, "high": change.high}


def _sentence(alarm: HackingAlarm | None) -> str:
    if alarm is None:
        return f"too few evaluations to say: the alarm needs {FEWEST_EVALUATIONS}"
    credit = f"false credit {alarm.false_credit.before:.3f} → {alarm.false_credit.now:.3f}"
    quality = f"held-out quality {alarm.quality.before:.3f} → {alarm.quality.now:.3f}"
    figures = f"{credit}, {quality}, over {alarm.evaluations} evaluations each"
    if alarm.is_raised:
        return f"the policy looks as if it learns to earn points without licence: {figures}"
    return f"no sign of reward hacking: {figures}"
