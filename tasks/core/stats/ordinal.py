"""Whether the probabilities of ordered levels are those with which the levels come.

probabilities: (n, L >= 2), each row sums to 1; levels: (n,) integers 0 .. L - 1. For each threshold l = 1 .. L - 1 the
forecast is p = P(level >= l) and the event is y = [level >= l]. ValueError on another shape, on NaN, on rows that are
no probabilities and on levels off the scale. None without rows.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from rubricflow.tasks.core.stats.agreement import EMPTY, SLACK, Stat
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints

# Probabilities written with six digits still sum to 1.
ROUNDING = 1e-5


def ordinal_ece(probabilities: npt.ArrayLike, levels: npt.ArrayLike, bins: int = 10) -> Stat:
    """Expected calibration error of the thresholds, 0 .. 1: mean over l of the row-weighted gaps |mean p - mean y|.

    Bins are of equal width and half-open, [0, 1/bins), [1/bins, 2/bins), ...; the last one holds 1 too. Biased upwards
    in small samples, and 0 for a forecast that gives everybody the shares of the sample: read it beside `rps`.
    ValueError for bins < 1.
    """
    if bins < 1:
        raise ValueError(f"needs a bin, got {bins}")
    table, human = _checked(probabilities, levels)
    if not len(table):
        return Stat(None, EMPTY)
    gaps = np.empty((table.shape[1] - 1, bins))
    for threshold, p, y in _thresholds(table, human):
        # 0.1 + 0.7 arrives as 0.7999999999999999; the slack keeps it in the bin that 0.8 opens.
        place = np.minimum(np.floor(p * bins + SLACK).astype(np.int64), bins - 1)
        # The row-weighted gap of a bin is its sum of p - y over n.
        gaps[threshold - 1] = np.bincount(place, weights=p - y, minlength=bins)
    return Stat(float(np.abs(gaps).sum() / (len(table) * len(gaps))))


def rps(probabilities: npt.ArrayLike, levels: npt.ArrayLike) -> Stat:
    """Ranked probability score, 0 .. L - 1: mean over rows of the sum over l of (p - y)^2 (Epstein 1969)."""
    table, human = _checked(probabilities, levels)
    if not len(table):
        return Stat(None, EMPTY)
    scores = np.zeros(len(table))
    for _, p, y in _thresholds(table, human):
        scores += (p - y) ** 2
    return Stat(float(scores.mean()))


def _checked(probabilities: npt.ArrayLike, levels: npt.ArrayLike) -> tuple[Floats, Ints]:
    table, human = np.asarray(probabilities, dtype=np.float64), np.asarray(levels)
    if table.ndim != 2 or table.shape[1] < 2 or human.shape != table.shape[:1]:
        raise ValueError(f"needs probabilities (n, L >= 2) and levels (n,), got {table.shape} and {human.shape}")
    # NaN fails every comparison.
    if not ((table >= 0).all() and (np.abs(table.sum(axis=1) - 1) <= ROUNDING).all()):
        raise ValueError("every row of probabilities must be >= 0 and sum to 1")
    grid = np.arange(table.shape[1])
    if not np.isin(human, grid).all():
        raise ValueError(f"levels must be integers 0 .. {grid[-1]}")
    return table, human


def _thresholds(table: Floats, human: Ints) -> Iterator[tuple[int, Floats, Bools]]:
    """(l, p, y) from the highest on, p and y (n,): all at once would take many times the room of the table."""
    p = np.zeros(len(table))
    for threshold in range(table.shape[1] - 1, 0, -1):
        p = p + table[:, threshold]
        yield threshold, p, human >= threshold
