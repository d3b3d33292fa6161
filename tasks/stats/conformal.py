"""Claims with a stated confidence: intervals for another human's score, and a share of errors among released scores.

Both rest on exchangeable rows: labelled responses drawn as those that the claim is about.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, binom

from tasks.stats.agreement import SLACK, level_count, to_levels
from tasks.stats.arrays import Bools, Floats

TIDY = 1e9
"""Ends are written in units of 1 / TIDY; in floats, 3 steps of 0.1 are off by NOISE of a unit or less."""
NOISE = 1e-3
COVERAGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Promise(NamedTuple):
    """What may be released so that, at the confidence asked for, at most the target share is wrong.

    threshold: largest risk that is released, None where nothing may be; then released and wrong are 0.
    released: labelled rows at or below it; wrong: those of them that are wrong.
    upper: `upper_bound` of their share, at that confidence, of this threshold alone; never above the target.
    """

    threshold: float | None
    released: int
    wrong: int
    upper: float | None


def quantile_rank(n: int, alpha: float) -> int:
    """Rank, from 1, of the residual that bounds the interval: ceil((n + 1) (1 - alpha)) (Vovk et al. 2005).

    n: residuals; alpha: share of new scores that may be missed. Above n the whole scale is needed. alpha is taken as it
    is written (0.1 is a tenth): in floats, 10 times 0.9 and its like land one rank too high or too low. ValueError for
    n < 0 or an alpha outside 0 .. 1, the ends excluded.
    """
    if n < 0 or not 0 < alpha < 1:
        raise ValueError(f"needs n >= 0 and 0 < alpha < 1, got {n} and {alpha}")
    return ceil((n + 1) * (1 - Fraction(str(float(alpha)))))


def conformal_quantile(residuals: npt.ArrayLike, alpha: float) -> float:
    """The absolute residual of rank `quantile_rank`, infinite where the rank exceeds their number.

    residuals: (n,) finite, of rows that the score was not fitted on. The interval covers a new score with probability
    1 - alpha or more, on average over exchangeable rows, not for each level or group (Lei et al. 2018). ValueError on
    another shape, NaN or infinity.
    """
    values = np.abs(np.asarray(residuals, dtype=np.float64))
    if values.ndim != 1 or not np.isfinite(values).all():
        raise ValueError("residuals must be 1-D and finite")
    rank = quantile_rank(len(values), alpha)
    return float(np.partition(values, rank - 1)[rank - 1]) if rank <= len(values) else float("inf")


def interval(
    score: npt.ArrayLike, q: npt.ArrayLike, scale: tuple[float, float, float], grain: float
) -> tuple[Floats, Floats]:
    """(lowest, highest) of the human scores within q of the score and of the score's nearest level.

    score: any shape, score units, unrounded; q: of a shape that goes with it, score units, >= 0, may be infinite;
    scale: (low, high, step); grain: steps between neighbouring human scores, a whole part of 1, or 0 where they lie
    anywhere. A human score on that grid is held where score ± q holds it, so that the ends cost no coverage; a wider
    grid than that of the human scores would. Ends lie on the scale and are rounded outward to nine digits. ValueError
    on NaN, a negative q, another grain or a malformed scale.
    """
    low, high, step = scale
    top = level_count(low, high, step) - 1
    at, reach = np.broadcast_arrays(np.asarray(score, dtype=np.float64), np.asarray(q, dtype=np.float64))
    if not (reach >= 0).all():
        raise ValueError("q must be >= 0")
    nearest = to_levels(at, low, high, step)
    first, last = _on_grid((at - reach - low) / step, (at + reach - low) / step, grain)
    ends = np.where(first > last, nearest, [np.minimum(first, nearest), np.maximum(last, nearest)])
    lowest, highest = low + step * np.clip(ends, 0, top)
    return np.floor(lowest * TIDY + NOISE) / TIDY, np.ceil(highest * TIDY - NOISE) / TIDY


def _on_grid(first: Floats, last: Floats, grain: float) -> tuple[Floats, Floats]:
    """Both ends moved inward to multiples of the grain; as they are where it is 0."""
    if not grain:
        return first, last
    parts = round(1 / grain) if 0 < grain <= 1 else 0
    if abs(parts * grain - 1) > SLACK:
        raise ValueError(f"grain must be 0 or a whole part of 1, got {grain}")
    return np.ceil(first * parts - SLACK) / parts, np.floor(last * parts + SLACK) / parts


def upper_bound(wrong: int, released: int, confidence: float) -> float:
    """One-sided upper bound of the share of wrong scores (Clopper and Pearson 1934), 0 .. 1; 1 where none is released.

    wrong: number wrong of `released` independent ones. ValueError unless 0 <= wrong <= released and 0 < confidence < 1.
    """
    if not (0 <= wrong <= released and 0 < confidence < 1):
        raise ValueError(f"needs 0 <= wrong <= released and 0 < confidence < 1, got {wrong}, {released}, {confidence}")
    return 1.0 if wrong == released else float(beta.ppf(confidence, wrong + 1, released - wrong))


def fewest_without_error(target: float, confidence: float) -> int:
    """Fewest released scores, none of them wrong, whose `upper_bound` is at most the target: (1 - target)^n <= 1 -
    confidence.

    ValueError unless both lie inside 0 .. 1, the ends excluded.
    """
    if not (0 < target < 1 and 0 < confidence < 1):
        raise ValueError(f"target and confidence must lie inside 0 .. 1, got {target} and {confidence}")
    # Where n is whole by intention the quotient may be off in its last digit.
    return max(1, ceil(log(1 - confidence) / log(1 - target) - SLACK))


def promise(
    risk: npt.ArrayLike,
    wrong: npt.ArrayLike,
    target: float,
    confidence: float,
    coverages: Sequence[float] = COVERAGES,
) -> Promise:
    """The largest release whose share of wrong scores is at most the target, at the given confidence.

    risk: (n,) finite, estimated without the row's own label; wrong: (n,) bool; target, confidence: inside 0 .. 1;
    coverages: shares of the rows, fixed in advance, in 0 .. 1. Each coverage takes that share of the rows, lowest risk
    first, and every row tied with the last. Its p-value is P(Bin(released, target) <= wrong); the coverages are tested
    step-down (Holm 1979), as in Learn then Test (Angelopoulos et al. 2021), less those so small that not even an
    errorless release could pass, which their number of rows tells without a label. The risks need not be right: a poor
    order costs coverage, not the promise. ValueError on a bad shape, NaN or a share out of range.
    """
    risks, bad = np.asarray(risk, dtype=np.float64), np.asarray(wrong, dtype=np.bool_)
    if risks.ndim != 1 or risks.shape != bad.shape or not np.isfinite(risks).all():
        raise ValueError("risk and wrong must be 1-D, equally long and finite")
    if not all(0 < share <= 1 for share in coverages):
        raise ValueError(f"coverages must lie in 0 .. 1, got {tuple(coverages)}")
    fewest = fewest_without_error(target, confidence)
    order = np.argsort(risks, kind="stable")
    rising, mistakes = risks[order], np.cumsum(bad[order])
    wanted = np.maximum(np.ceil(np.asarray(coverages) * len(risks) - SLACK).astype(np.int64), 1)
    thresholds = np.unique(rising[wanted - 1]) if len(risks) else risks
    released = np.searchsorted(rising, thresholds, side="right")
    thresholds, released = thresholds[released >= fewest], released[released >= fewest]
    counts = mistakes[released - 1] if len(released) else released
    passed = np.flatnonzero(_holm(binom.cdf(counts, released, target), 1 - confidence))
    if not len(passed):
        return Promise(None, 0, 0, None)
    best = passed[-1]
    went, missed = int(released[best]), int(counts[best])
    return Promise(float(thresholds[best]), went, missed, upper_bound(missed, went, confidence))


def _holm(p: Floats, level: float) -> Bools:
    """Which hypotheses are rejected with at most `level` probability of any false rejection."""
    order = np.argsort(p, kind="stable")
    # 1 - 0.9 is less than a tenth in its last digit.
    steps = p[order] <= level * (1 + SLACK) / np.arange(len(p), 0, -1)
    rejected = np.zeros(len(p), dtype=np.bool_)
    rejected[order] = np.logical_and.accumulate(steps)
    return rejected
