"""Scores that no answer can get, where a rubric counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from tasks.contracts.bundle import Criterion, Rubric
from tasks.contracts.exclusion import together

_MOST = 100_000
"""Sums beyond which a rubric is taken to reach what it likes."""


def unreachable(rubric: Rubric) -> list[float]:
    """Scores of the scale that no levels of a rubric with a count add up to by weighted points, lowest first.

    None where nothing is counted or nothing earns. Exclusions are passed over: they only leave fewer sums.
    """
    upper = [criterion for criterion in rubric.criteria if criterion.parent is None]
    full = together([criterion for criterion in upper if criterion.weight > 0])
    if not full or not any(criterion.count for criterion in rubric.criteria):
        return []
    parts: dict[str, list[Criterion]] = {}
    for criterion in rubric.criteria:
        if criterion.parent is not None:
            parts.setdefault(criterion.parent, []).append(criterion)
    sums = _sums(upper, parts)
    if sums is None:
        return []
    low, high, step = rubric.scale.bounds
    reached = {math.floor(_clipped(points / full) * (high - low) / step + 0.5 + 1e-9) for points in sums}
    return [round(low + number * step, 12) for number in range(rubric.scale.levels) if number not in reached]


def _sums(criteria: Iterable[Criterion], parts: Mapping[str, Sequence[Criterion]]) -> set[float] | None:
    """All that criteria together can add to the points; None where that is too much."""
    sums = {0.0}
    for criterion in criteria:
        added = _points(criterion, parts)
        if added is None or len(sums) * len(added) > _MOST:
            return None
        sums = {round(before + points, 9) for before, points in product(sums, added)}
    return sums


def _points(criterion: Criterion, parts: Mapping[str, Sequence[Criterion]]) -> set[float] | None:
    """All that a criterion can add to the points; None where that is too much."""
    if criterion.count:
        most = round(together(parts[criterion.id], counted=True))
        points, last = criterion.count.points, len(criterion.count.points) - 1
        met = range(len(criterion.count.needs), most + 1)
        return {0.0} | {math.copysign(points[min(number, last)], criterion.weight) for number in met}
    if criterion.id in parts:
        sums = _sums(parts[criterion.id], parts)
        return sums and {_clipped(earned / criterion.weight) * criterion.weight for earned in sums}
    return {criterion.weight * level / criterion.top for level in range(criterion.top + 1)}


def _clipped(share: float) -> float:
    return min(1.0, max(0.0, share))
