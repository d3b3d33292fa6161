"""Agreement between two columns of scores given to the same responses.

Pair functions take `human` and `machine`: 1-D, the same length, finite, in score units. Unscored rows are
dropped, and counted, by the caller; a NaN, an infinity or a length mismatch raises ValueError. "Rounded"
statistics are taken on level indices (see `to_levels`), the others on the scores as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.stats import rankdata

from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints, checked_ratings

SLACK = 1e-9
KAPPA_LIMIT = 0.999
TOO_FEW = "undefined: fewer than two pairs"
EMPTY = "undefined: no pairs"


class Stat(NamedTuple):
    """A statistic that may be undefined or may need a remark.

    value: the statistic, None where it is undefined.
    note: why the value is None, or what to know about a value that stands (0.0, "one rater constant: human").
    """

    value: float | None
    note: str | None = None


def checked_pair(human: ArrayLike, machine: ArrayLike) -> tuple[Floats, Floats]:
    """Both score columns as float arrays of shape (n,); ValueError on a bad shape, unequal lengths, NaN or inf."""
    pair = np.asarray(human, dtype=np.float64), np.asarray(machine, dtype=np.float64)
    if pair[0].ndim != 1 or pair[0].shape != pair[1].shape:
        raise ValueError(f"scores must be 1-D and equally long, got shapes {pair[0].shape} and {pair[1].shape}")
    if not (np.isfinite(pair[0]).all() and np.isfinite(pair[1]).all()):
        raise ValueError("scores must be finite: drop and count unscored rows first")
    return pair


def level_count(low: float, high: float, step: float) -> int:
    """Number of levels of the scale low, low + step, ..., high; ValueError unless whole steps lead up to high."""
    if not (step > 0 and high > low):
        raise ValueError(f"scale needs low < high and step > 0, got {low}, {high}, {step}")
    steps = (high - low) / step
    if abs(steps - round(steps)) > SLACK:
        raise ValueError(f"{low} to {high} is not a whole number of steps of {step}")
    return round(steps) + 1


def to_levels(scores: ArrayLike, low: float, high: float, step: float) -> Ints:
    """Level index 0 .. level_count - 1 of every score: nearest level, halves go up, then clipped to the scale.

    scores: any shape, score units. ValueError on NaN, infinity or a malformed scale.
    """
    levels = level_count(low, high, step)
    values = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("scores must be finite: drop and count unscored rows first")
    # A half such as (0.15 - 0) / 0.1 arrives as 1.4999999999999998; the slack keeps it a half.
    nearest = np.floor((values - low) / step + 0.5 + SLACK)
    return np.clip(nearest, 0, levels - 1).astype(np.int64)


def qwk(human: ArrayLike, machine: ArrayLike, low: float, high: float, step: float = 1.0) -> Stat:
    """Quadratic weighted kappa of the rounded scores over the full scale, -1 .. 1 (Cohen 1968).

    Undefined and flagged cases are those of `qwk_continuous`, judged after rounding.
    """
    human, machine = checked_pair(human, machine)
    # Squared-distance weights depend on the table only through means, variances and covariance of the indices,
    # so unobserved levels need no table to keep their distance.
    return qwk_continuous(to_levels(human, low, high, step), to_levels(machine, low, high, step))


def qwk_continuous(human: ArrayLike, machine: ArrayLike) -> Stat:
    """Quadratic weighted kappa of unrounded scores, -1 .. 1: 2 cov / (var_H + var_M + (mean_M - mean_H)^2).

    Moments have divisor n; the same number is Lin's (1989) concordance coefficient. None for n < 2 and where both
    columns hold one and the same score (0/0). A constant column otherwise leaves 0.0, flagged.
    """
    human, machine = checked_pair(human, machine)
    if len(human) < 2:
        return Stat(None, TOO_FEW)
    flat = _flat(human, machine)
    if len(flat) == 2 and human[0] == machine[0]:
        return Stat(None, "undefined: both raters constant at the same score")
    if len(flat) == 2:
        return Stat(0.0, "both raters constant at different scores")
    if flat:
        return Stat(0.0, f"one rater constant: {flat[0]}")
    covariance = np.mean((human - human.mean()) * (machine - machine.mean()))
    shift = np.mean(machine - human)
    return Stat(float(2 * covariance / (human.var() + machine.var() + shift**2)))


def exact_agreement(human: ArrayLike, machine: ArrayLike, low: float, high: float, step: float = 1.0) -> Stat:
    """Share of pairs on the same level after rounding, 0 .. 1. None without pairs."""
    human, machine = checked_pair(human, machine)
    return _mean(to_levels(human, low, high, step) == to_levels(machine, low, high, step))


def adjacent_agreement(
    human: ArrayLike, machine: ArrayLike, low: float, high: float, step: float = 1.0, within: int = 1
) -> Stat:
    """Share of pairs at most `within` levels (not score points) apart after rounding, 0 .. 1. None without pairs.

    Flagged on a scale of within + 2 levels or fewer, where little but opposite ends could disagree.
    """
    human, machine = checked_pair(human, machine)
    gap = to_levels(machine, low, high, step) - to_levels(human, low, high, step)
    share = _mean(np.abs(gap) <= within)
    levels = level_count(low, high, step)
    if share.value is None or levels > within + 2:
        return share
    return Stat(share.value, f"says little: the scale has {levels} levels only")


def mae(human: ArrayLike, machine: ArrayLike) -> Stat:
    """Mean absolute error of the unrounded machine score, score units, >= 0. None without pairs."""
    human, machine = checked_pair(human, machine)
    return _mean(np.abs(machine - human))


def rmse(human: ArrayLike, machine: ArrayLike) -> Stat:
    """Root mean squared error of the unrounded machine score, score units, >= 0. None without pairs."""
    human, machine = checked_pair(human, machine)
    square = _mean((machine - human) ** 2)
    return square if square.value is None else Stat(float(np.sqrt(square.value)))


def bias(human: ArrayLike, machine: ArrayLike) -> Stat:
    """Mean of machine - human, score units; positive where the machine is lenient. None without pairs."""
    human, machine = checked_pair(human, machine)
    return _mean(machine - human)


def smd(human: ArrayLike, machine: ArrayLike) -> Stat:
    """Standardised mean difference (mean_M - mean_H) / s_H, in human standard deviations (divisor n - 1; Glass 1976).

    None for n < 2 and for constant human scores.
    """
    human, machine = checked_pair(human, machine)
    if len(human) < 2:
        return Stat(None, TOO_FEW)
    if _constant(human):
        return Stat(None, "undefined: human scores constant")
    return Stat(float(np.mean(machine - human) / human.std(ddof=1)))


def smd_pooled(human: ArrayLike, machine: ArrayLike) -> Stat:
    """Standardised mean difference by sqrt((s_H^2 + s_M^2) / 2), divisor n - 1 (Williamson, Xi and Breyer 2012).

    None for n < 2 and where both columns are constant.
    """
    human, machine = checked_pair(human, machine)
    if len(human) < 2:
        return Stat(None, TOO_FEW)
    if _constant(human) and _constant(machine):
        return Stat(None, "undefined: both raters constant")
    pooled = np.sqrt((human.var(ddof=1) + machine.var(ddof=1)) / 2)
    return Stat(float(np.mean(machine - human) / pooled))


def pearson(human: ArrayLike, machine: ArrayLike) -> Stat:
    """Product-moment correlation of the unrounded scores, -1 .. 1. None for n < 2 or a constant column."""
    human, machine = checked_pair(human, machine)
    return without_variance(human, machine) or Stat(float(stats.pearsonr(human, machine).statistic))


def spearman(human: ArrayLike, machine: ArrayLike) -> Stat:
    """Rank correlation of the unrounded scores, ties at mean rank, -1 .. 1. None for n < 2 or a constant column."""
    human, machine = checked_pair(human, machine)
    return without_variance(human, machine) or Stat(float(stats.spearmanr(human, machine).statistic))


def icc_2_1(ratings: ArrayLike) -> Stat:
    """Intraclass correlation, two-way random, absolute agreement, single rating (Shrout and Fleiss 1979), <= 1.

    ratings: (n responses, k raters), complete; a column is one rater throughout. ValueError on another shape, NaN
    or inf. None for n < 2 or k < 2, and where the variance that the coefficient divides by is zero.
    """
    table = np.asarray(ratings, dtype=np.float64)
    if table.ndim != 2 or not np.isfinite(table).all():
        raise ValueError("ratings must be a complete 2-D table of finite scores")
    n, k = table.shape
    if n < 2 or k < 2:
        return Stat(None, "undefined: fewer than two responses or raters")
    rows = table.mean(axis=1, keepdims=True)
    columns = table.mean(axis=0, keepdims=True)
    ms_rows = k * rows.var(ddof=1)
    ms_columns = n * columns.var(ddof=1)
    ms_error = np.sum((table - rows - columns + table.mean()) ** 2) / ((n - 1) * (k - 1))
    total = ms_rows + (k - 1) * ms_error + k * (ms_columns - ms_error) / n
    # A constant table leaves float specks; the only other zero, two by two and crosswise, comes out exact.
    if np.ptp(table) == 0 or total <= 0:
        return Stat(None, "undefined: no variance to share")
    return Stat(float((ms_rows - ms_error) / total))


def confusion(human: ArrayLike, machine: ArrayLike, low: float, high: float, step: float = 1.0) -> Ints:
    """Counts of rounded pairs, shape (L, L) for the L levels of the full scale: human in rows, machine in columns."""
    human, machine = checked_pair(human, machine)
    size = level_count(low, high, step)
    cell = to_levels(human, low, high, step) * size + to_levels(machine, low, high, step)
    return np.bincount(cell, minlength=size * size).reshape(size, size).astype(np.int64)


def macro_f1(human: ArrayLike, machine: ArrayLike, low: float, high: float, step: float = 1.0) -> Stat:
    """Plain mean over levels of F1 after rounding, 0 .. 1. None without pairs.

    Averaged are the levels that either column uses; one used by a single column counts with F1 = 0, one used by
    neither does not count.
    """
    table = confusion(human, machine, low, high, step)
    uses = table.sum(axis=0) + table.sum(axis=1)
    return _mean(2 * np.diag(table)[uses > 0] / uses[uses > 0])


def fisher_mean_kappa(kappas: ArrayLike, weights: ArrayLike) -> Stat:
    """Mean kappa through Fisher's z: tanh of the weighted mean of atanh(kappa), kappas clipped to +-0.999.

    kappas, weights: shape (k,); undefined kappas are dropped, and listed, by the caller. ValueError on unequal
    lengths, NaN, a kappa outside -1 .. 1 or a negative weight. None where the weights sum to zero.
    """
    values, shares = checked_pair(kappas, weights)
    if (np.abs(values) > 1 + SLACK).any() or (shares < 0).any():
        raise ValueError("kappas must lie in -1 .. 1 and weights must not be negative")
    if shares.sum() == 0:
        return Stat(None, "undefined: no weight")
    z = np.arctanh(np.clip(values, -KAPPA_LIMIT, KAPPA_LIMIT))
    return Stat(float(np.tanh(np.average(z, weights=shares))))


def _constant(scores: Floats) -> bool:
    return bool(np.ptp(scores) == 0)


def _mean(values: Floats | Bools) -> Stat:
    return Stat(float(np.mean(values))) if len(values) else Stat(None, EMPTY)


def _flat(human: Floats, machine: Floats) -> list[str]:
    return [name for name, scores in (("human", human), ("machine", machine)) if _constant(scores)]


def without_variance(human: Floats, machine: Floats) -> Stat | None:
    """Why nothing can be divided by both standard deviations; None where it can."""
    if len(human) < 2:
        return Stat(None, TOO_FEW)
    flat = _flat(human, machine)
    return Stat(None, f"undefined: constant scores: {', '.join(flat)}") if flat else None


# Agreement among any number of raters, with gaps.


def krippendorff_ordinal(ratings: ArrayLike) -> Stat:
    """Krippendorff's alpha for ordered levels, <= 1; 0 is chance, below it systematic disagreement (Krippendorff 2004).

    ratings: (n responses, k raters), NaN where a rater gave none; responses with one rating do not count. The distance
    of two levels counts the ratings between them, so that the unit of the scale does not matter. None where no response
    has two ratings, and where all ratings of the responses that have are one. ValueError on another shape or an
    infinity.
    """
    table = checked_ratings(ratings)
    table = table[(~np.isnan(table)).sum(axis=1) >= 2]
    if not len(table):
        return Stat(None, "undefined: no response has two ratings")
    if np.nanmin(table) == np.nanmax(table):
        return Stat(None, "undefined: all ratings are one")
    # The ratings between two levels, half of those on the levels included, are the difference of the levels' mean
    # ranks. Sums over pairs of ranks are then sums of squares: no matrix of levels, which may be many.
    present = ~np.isnan(table)
    ranks = np.zeros_like(table)
    ranks[present] = rankdata(table[present])
    counts = present.sum(axis=1)
    size = int(present.sum())
    centres = ranks.sum(axis=1, keepdims=True) / counts[:, None]
    within = np.where(present, (ranks - centres) ** 2, 0.0).sum(axis=1)
    total = float(((ranks[present] - (size + 1) / 2) ** 2).sum())
    return Stat(1 - float((within * counts / (counts - 1)).sum()) * (size - 1) / size / total)
