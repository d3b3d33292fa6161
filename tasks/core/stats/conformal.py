"""Intervals for another human's score. They rest on exchangeable rows: labelled responses drawn as the new ones."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import ArrayLike

from rubricflow.tasks.core.stats.agreement import SLACK, checked_pair, level_count, to_levels
from rubricflow.tasks.core.stats.arrays import Floats

TIDY = 1e9
"""Ends are written in units of 1 / TIDY; in floats, 3 steps of 0.1 are off by NOISE of a unit or less."""
NOISE = 1e-3


def quantile_rank(n: int, alpha: float) -> int:
    """Rank, from 1, of the residual that bounds the interval: ceil((n + 1) (1 - alpha)) (Vovk et al. 2005).

    n: residuals; alpha: share of new scores that may be missed. Above n the whole scale is needed. alpha is taken as it
    is written (0.1 is a tenth): in floats, 10 times 0.9 and its like land one rank too high or too low.
    """
    return ceil((n + 1) * (1 - Fraction(str(float(alpha)))))


def conformal_quantile(residuals: ArrayLike, alpha: float) -> float:
    """The absolute residual of rank `quantile_rank`, infinite where the rank exceeds their number.

    residuals: (n,) finite, of rows that the score was not fitted on. The interval covers a new score with probability
    1 - alpha or more, on average over exchangeable rows, not for each level or group (Lei et al. 2018).
    """
    values = np.abs(np.asarray(residuals, dtype=np.float64))
    rank = quantile_rank(len(values), alpha)
    return float(np.partition(values, rank - 1)[rank - 1]) if rank <= len(values) else float("inf")


def interval(score: ArrayLike, q: ArrayLike, scale: tuple[float, float, float], grain: float) -> tuple[Floats, Floats]:
    """(lowest, highest) of the human scores within q of the score and of the score's nearest level.

    score: any shape, score units, unrounded; q: of a shape that goes with it, score units, >= 0, may be infinite;
    scale: (low, high, step); grain: steps between neighbouring human scores, a whole part of 1, or 0 where they lie
    anywhere. A human score on that grid is held where score ± q holds it, so that the ends cost no coverage; a wider
    grid than that of the human scores would. Ends lie on the scale and are rounded outward to nine digits.
    """
    low, high, step = scale
    top = level_count(low, high, step) - 1
    values, reach = np.broadcast_arrays(np.asarray(score, dtype=np.float64), np.asarray(q, dtype=np.float64))
    nearest = to_levels(values, low, high, step)
    first, last = (values - reach - low) / step, (values + reach - low) / step
    if grain:  # the ends move inward to its multiples
        parts = round(1 / grain)
        first, last = np.ceil(first * parts - SLACK) / parts, np.floor(last * parts + SLACK) / parts
    ends = np.where(first > last, nearest, [np.minimum(first, nearest), np.maximum(last, nearest)])
    lowest, highest = low + step * np.clip(ends, 0, top)
    return np.floor(lowest * TIDY + NOISE) / TIDY, np.ceil(highest * TIDY - NOISE) / TIDY


# Risk and coverage: what the mean loss would be if only the most confident scores were kept.


def risk_coverage(loss: ArrayLike, confidence: ArrayLike) -> Floats:
    """The risk-coverage curve: R(k) for k = 1 .. n rows covered, (n,), in the unit of the loss (El-Yaniv and Wiener
    2010). ValueError without rows."""
    loss, confidence = checked_pair(loss, confidence)
    if not len(loss):
        raise ValueError("needs rows")
    _, tie, size = np.unique(-confidence, return_inverse=True, return_counts=True)
    shared = np.repeat(np.bincount(tie, weights=loss) / size, size)
    return np.asarray(np.cumsum(shared) / np.arange(1, len(loss) + 1))


def aurc(loss: ArrayLike, confidence: ArrayLike) -> float:
    """Area under the risk-coverage curve: mean of R(k), unit as loss (Geifman et al. 2019)."""
    return float(risk_coverage(loss, confidence).mean())


def augrc(loss: ArrayLike, confidence: ArrayLike) -> float:
    """Area under the generalised curve: mean of (k / n) R(k), the loss let through per row, kept or not (Traub et al.
    2024)."""
    risk = risk_coverage(loss, confidence)
    return float(np.mean(np.arange(1, len(risk) + 1) / len(risk) * risk))


def oracle_aurc(loss: ArrayLike) -> float:
    """The least `aurc` that any confidence reaches: rows kept in order of their loss."""
    values = np.asarray(loss, dtype=np.float64)
    return aurc(values, -values)


def random_aurc(loss: ArrayLike) -> float:
    """The `aurc` of a confidence that knows nothing, on average: the mean loss."""
    values = np.asarray(loss, dtype=np.float64)
    return aurc(values, np.zeros_like(values))
