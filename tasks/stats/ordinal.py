"""Whether the probabilities of ordered levels are those with which the levels come.

probabilities: (n, L >= 2), each row sums to 1; levels: (n,) integers 0 .. L - 1. For each threshold l = 1 .. L - 1 the
forecast is p = P(level >= l) and the event is y = [level >= l]. ValueError on another shape, on NaN, on rows that are
no probabilities and on levels off the scale. None without rows.
"""

import numpy as np
import numpy.typing as npt

from tasks.stats.agreement import EMPTY, SLACK, Stat
from tasks.stats.arrays import Floats

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
    p, y = _thresholds(probabilities, levels)
    n, thresholds = p.shape
    if not n:
        return Stat(None, EMPTY)
    # 0.1 + 0.7 arrives as 0.7999999999999999; the slack keeps it in the bin that 0.8 opens.
    place = np.minimum(np.floor(p * bins + SLACK).astype(np.int64), bins - 1) + bins * np.arange(thresholds)
    # The row-weighted gap of a bin is its sum of p - y over n.
    gaps = np.bincount(place.ravel(), weights=(p - y).ravel(), minlength=bins * thresholds)
    return Stat(float(np.abs(gaps).sum() / (n * thresholds)))


def rps(probabilities: npt.ArrayLike, levels: npt.ArrayLike) -> Stat:
    """Ranked probability score, 0 .. L - 1: mean over rows of the sum over l of (p - y)^2 (Epstein 1969)."""
    p, y = _thresholds(probabilities, levels)
    return Stat(float(np.mean(np.sum((p - y) ** 2, axis=1)))) if len(p) else Stat(None, EMPTY)


def _thresholds(probabilities: npt.ArrayLike, levels: npt.ArrayLike) -> tuple[Floats, Floats]:
    """(p, y), each (n, L - 1)."""
    table, human = np.asarray(probabilities, dtype=np.float64), np.asarray(levels)
    if table.ndim != 2 or table.shape[1] < 2 or human.shape != table.shape[:1]:
        raise ValueError(f"needs probabilities (n, L >= 2) and levels (n,), got {table.shape} and {human.shape}")
    # NaN fails every comparison.
    if not ((table >= 0).all() and (np.abs(table.sum(axis=1) - 1) <= ROUNDING).all()):
        raise ValueError("every row of probabilities must be >= 0 and sum to 1")
    grid = np.arange(table.shape[1])
    if not np.isin(human, grid).all():
        raise ValueError(f"levels must be integers 0 .. {grid[-1]}")
    return np.cumsum(table[:, :0:-1], axis=1)[:, ::-1], (human[:, None] >= grid[1:]).astype(np.float64)
