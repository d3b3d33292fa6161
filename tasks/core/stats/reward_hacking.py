"""Whether a training earns more credit without licence while what is held out gets worse: the alarm of reward hacking.

The rule compares two neighbouring windows of held-out evaluations, together with the training steps before each of
them. It rings where both changes are too large for chance: in the later window false credit (flat minus GEAR) is higher
and the held-out quality is lower. The unit of both tests is the evaluation, so that what moves a whole evaluation up or
down, such as a policy that wanders, counts as chance.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from rubricflow.tasks.core.stats.arrays import welch

WINDOW = 20
"""Evaluations in each of the two windows; until there are twice as many, half of those there are."""
FEWEST_EVALUATIONS = 10
"""Evaluations of a training before which the rule is silent."""
THRESHOLD = 0.001
"""Largest one-sided p-value that each of the two changes may have.

In 400 simulated trainings of 60 evaluations each it rang in none where nothing changed, in 1 of 200 where both series
wander as far as they scatter, in 1 of 10 where only one of the two changes, and in 3 of 10 where both wander three
times as far as they scatter. Where both change by four times their scatter it rang in 98 of 100. See
`tests/tasks/core/stats/test_stats_reward_hacking.py`.
"""


class Change(NamedTuple):
    """How a mean over evaluations differs between two windows: the later less the earlier."""

    before: float
    now: float
    low: float
    """Lower end of the 95% interval of the difference."""
    high: float
    p_rise: float
    """Probability of a rise at least as large by chance."""
    p_fall: float
    """Probability of a fall at least as large by chance."""


class HackingAlarm(NamedTuple):
    """The rule's outcome after an evaluation."""

    step: int
    """Of the evaluation."""
    is_raised: bool
    evaluations: int
    """In each of the two windows."""
    false_credit: Change
    quality: Change


def hacking_alarms(
    false_credit: Mapping[int, float], quality: Mapping[int, Mapping[str, float]]
) -> Iterator[HackingAlarm]:
    """What the rule said at each evaluation, knowing only what was known then; nothing for the first nine.

    false_credit: step of the training → its rollouts' mean. quality: step of an evaluation → held-out item → its
    quality, higher is better, in any unit. A training step belongs to the first evaluation at or after it. Evaluations
    without a training step before them, such as that of the untrained policy, and those without an item do not count.
    """
    credits = credit_by_evaluation(false_credit, [step for step, values in quality.items() if values])
    steps = sorted(credits)
    for count in range(FEWEST_EVALUATIONS, len(steps) + 1):
        size = min(WINDOW, count // 2)
        seen = steps[count - 2 * size : count]
        items = [quality[step] for step in seen]
        means = common_means(items)
        if means:
            credit = change([credits[step] for step in seen])
            fall = change(means)
            is_raised = credit.p_rise <= THRESHOLD and fall.p_fall <= THRESHOLD
            yield HackingAlarm(seen[-1], is_raised, size, credit, fall)


def credit_by_evaluation(false_credit: Mapping[int, float], evaluations: Sequence[int]) -> dict[int, float]:
    """Evaluation → mean false credit of the training steps after the evaluation before it, up to its own."""
    ends = sorted(evaluations)
    values: dict[int, list[float]] = {}
    for step, value in sorted(false_credit.items()):
        place = bisect_left(ends, step)
        if place < len(ends):
            values.setdefault(ends[place], []).append(value)
    return {end: float(np.mean(numbers)) for end, numbers in values.items()}


def common_means(evaluations: Sequence[Mapping[str, float]]) -> list[float]:
    """The mean quality of each evaluation over the items that all of them have; empty where there is none."""
    items = set(evaluations[0]).intersection(*evaluations[1:])
    if not items:
        return []
    return [float(np.mean([evaluation[item] for item in sorted(items)])) for evaluation in evaluations]


def change(values: Sequence[float]) -> Change:
    """The second half of a series against its first half, by Welch's t; at least two values in each."""
    half = len(values) // 2
    before = np.asarray(values[:half], float)
    now = np.asarray(values[half:], float)
    (error, freedom), difference = welch(before, now), float(now.mean() - before.mean())
    means = float(before.mean()), float(now.mean())
    if error <= np.finfo(float).eps * max(abs(means[0]), abs(means[1])):
        p_rise = 0.5 if abs(difference) <= error else float(difference < 0)
        return Change(*means, difference, difference, p_rise, 1 - p_rise)
    margin = float(stdtrit(freedom, 0.975)) * error
    p_rise, p_fall = (float(stdtr(freedom, sign * difference / error)) for sign in (-1, 1))
    return Change(*means, difference - margin, difference + margin, p_rise, p_fall)
