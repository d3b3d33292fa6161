"""Three-way verdicts on an interval, and how many more labels would settle an open one."""

from __future__ import annotations

from math import ceil, floor
from typing import NamedTuple

from rubricflow.tasks.core.contracts.tables.evaluation import Outcome
from rubricflow.tasks.core.stats.agreement import SLACK

# An estimate with what the bootstrap says of it.


class Estimate(NamedTuple):
    """A statistic with its 95% percentile interval and bootstrap standard error; None where undefined, `note` says
    why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    se: float | None = None
    clusters: int | None = None
    """How many were resampled."""
    n: int = 0
    """Responses it rests on."""
    note: str = ""


_MOST = 10**9


def verdict(
    estimate: float | None,
    low: float | None,
    high: float | None,
    least: float | None = None,
    most: float | None = None,
) -> Outcome:
    """Whether the interval low .. high lies inside least .. most.

    pass: all of it (a bound itself is inside); fail: none of it; undecided: part of it; unknown: no estimate, no
    interval or nothing to hold it against.
    """
    if estimate is None or low is None or high is None or (least is None and most is None):
        return "unknown"
    floor_, top = _range(least, most)
    if low >= floor_ and high <= top:
        return "pass"
    return "fail" if high < floor_ or low > top else "undecided"


def margin(estimate: float | None, least: float | None = None, most: float | None = None) -> float:
    """How far an estimate lies inside its bounds, below 0 outside; infinite without an estimate or bounds."""
    floor_, top = _range(least, most)
    return float("inf") if estimate is None else min(estimate - floor_, top - estimate)


def labels_needed(
    estimate: float | None,
    low: float | None,
    high: float | None,
    n: int,
    least: float | None = None,
    most: float | None = None,
) -> int | None:
    """Further labels, >= 1, after which an undecided interval would lie on one side, if the estimate stayed.

    n: labels behind the interval; its ends are taken to approach the estimate with 1 / sqrt(n). None for every other
    verdict, and where the estimate lies on a bound, or so near that it takes more than 10⁹: no number of labels
    that anybody could give settles that.
    """
    if verdict(estimate, low, high, least, most) != "undecided" or estimate is None or low is None or high is None:
        return None
    floor_, top = _range(least, most)
    if estimate in (floor_, top):
        return None
    if floor_ <= estimate <= top:
        below = (estimate - floor_) / (estimate - low) if low < floor_ else 1.0
        above = (top - estimate) / (high - estimate) if high > top else 1.0
        labels = ceil(n / min(below, above) ** 2 * (1 - SLACK)) - n
    else:  # ending on the bound is not outside yet
        shrink = (floor_ - estimate) / (high - estimate) if estimate < floor_ else (estimate - top) / (estimate - low)
        labels = floor(n / shrink**2 * (1 + SLACK)) + 1 - n
    return labels if labels <= _MOST else None


def _range(least: float | None, most: float | None) -> tuple[float, float]:
    return float("-inf") if least is None else least, float("inf") if most is None else most
