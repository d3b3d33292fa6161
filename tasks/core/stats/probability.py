"""How good probabilities of levels are, against the levels that people gave; and intervals for another human's score.

Arguments are `probabilities`, shape (n, L), rows summing to 1, and `levels`, shape (n,), the human level 0 .. L - 1.
What is averaged is given row by row, so that rows of criteria with different numbers of levels can be put together and
resampled; `ece` makes a statistic of them. Another shape, NaN, a negative probability, a row that does not
sum to 1 or a level off the scale raises ValueError.

Intervals (conformal ones) rest on exchangeable rows: labelled responses drawn as the new ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rubricflow.tasks.core.contracts import ScaleBounds
from rubricflow.tasks.core.stats.agreement import EMPTY, SLACK, Stat, checked_pair, level_count, to_levels
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.stats.promise import exact_interval

ROUNDING = 1e-5
"""Probabilities written with six digits still sum to 1."""
BINS = 10
DRAWS = 200
"""Of outcomes, for the ECE that chance makes."""
FEWEST = 10
"""Rows that a bin of the reliability table needs; with fewer rows there are fewer bins."""
CLIP = 1e-6
"""Probabilities below this count as this in the log loss, which one forecast of 0 would make infinite."""


class Top(NamedTuple):
    """What the likeliest level claims, row by row: its probability, (n,), and whether people gave it, (n,)."""

    confidence: Floats
    correct: Bools


class Bin(NamedTuple):
    """One bin of the reliability table: rows, their mean confidence, the share of them that is correct, and the exact
    95% interval of that share, which takes rows as independent (Clopper and Pearson 1934)."""

    n: int
    confidence: float
    accuracy: float
    low: float
    high: float


def top(probabilities: ArrayLike, levels: ArrayLike) -> Top:
    """The likeliest level of every row; of equally likely ones the lowest."""
    p, y = _checked(probabilities, levels)
    chosen = p.argmax(axis=1)
    return Top(p[np.arange(len(p)), chosen], chosen == y)


def brier(probabilities: ArrayLike, levels: ArrayLike) -> Floats:
    """Brier score of every row, sum over levels of (p - [level given])^2, 0 .. 2 (Brier 1950)."""
    p, y = _checked(probabilities, levels)
    return np.asarray(((p - np.eye(p.shape[1])[y]) ** 2).sum(axis=1))


def ranked(probabilities: ArrayLike, levels: ArrayLike) -> Floats:
    """Ranked probability score of every row, 0 .. 1: the mean over the L - 1 thresholds of (P(level >= t) - [human >=
    t])^2 (Epstein 1969), so that a near miss costs less than a far one. `stats.ordinal.rps` is the sum in its place."""
    p, y = _checked(probabilities, levels)
    above = p[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]
    return np.asarray(((above - (y[:, None] > np.arange(above.shape[1]))) ** 2).mean(axis=1))


def log_loss(probabilities: ArrayLike, levels: ArrayLike) -> Floats:
    """Minus the natural log of the probability of the human level, row by row, 0 .. 13.8: never below `CLIP`."""
    p, y = _checked(probabilities, levels)
    return np.asarray(-np.log(np.maximum(p[np.arange(len(p)), y], CLIP)))


def bins_of(confidence: ArrayLike) -> Ints:
    """The bin 0, 1, ... of every row, about equally many rows in each; equal confidences are never parted.

    At most `BINS`, and no more than leave `FEWEST` rows in each on average; a constant confidence makes one bin.
    """
    c = np.asarray(confidence, dtype=np.float64)
    count = max(1, min(BINS, len(c) // FEWEST))
    # The middle of a tie's ranks says where the tie belongs, whatever the order of the rows.
    _, tie, sizes = np.unique(c, return_inverse=True, return_counts=True)
    middle = sizes.cumsum() - (sizes + 1) / 2
    cut = np.floor(middle * count / max(len(c), 1)).astype(np.int64)
    return np.asarray(np.unique(cut, return_inverse=True)[1][tie], dtype=np.int64)


def reliability(claims: Top) -> list[Bin]:
    """Mean confidence and accuracy in bins of about equally many rows, least confident first; empty without rows."""
    bin_of = bins_of(claims.confidence)
    table = []
    for number in range(int(bin_of.max()) + 1 if len(bin_of) else 0):
        rows = bin_of == number
        n = int(rows.sum())
        right = int(claims.correct[rows].sum())
        table.append(Bin(n, float(claims.confidence[rows].mean()), right / n, *exact_interval(right, n)))
    return table


def ece(claims: Top) -> Stat:
    """Expected calibration error, 0 .. 1: the mean over rows of |mean confidence - accuracy| of their bin, with bins of
    about equally many rows (Nguyen and O'Connor 2015). None without rows.

    Chance alone keeps it above 0: `ece_by_chance` says how far. Fewer than two bins show no more than the mean gap.
    """
    n = len(claims.confidence)
    if not n:
        return Stat(None, EMPTY)
    table = reliability(claims)
    value = sum(row.n * abs(row.confidence - row.accuracy) for row in table) / n
    return Stat(float(value), f"{n} rows make one bin only" if len(table) == 1 else None)


def ece_by_chance(claims: Top, seed: int) -> Stat:
    """Mean ECE of the same confidences were they exactly right: outcomes drawn from them. None without rows."""
    if not len(claims.confidence):
        return Stat(None, EMPTY)
    bin_of = bins_of(claims.confidence)
    rng = np.random.default_rng(seed)
    gaps = []
    for _ in range(DRAWS):
        correct = rng.random(len(bin_of)) < claims.confidence
        gaps.append(np.abs(np.bincount(bin_of, claims.confidence - correct)).sum())
    return Stat(float(np.mean(gaps) / len(bin_of)))


def _checked(probabilities: ArrayLike, levels: ArrayLike) -> tuple[Floats, Ints]:
    p = np.asarray(probabilities, dtype=np.float64)
    y = np.asarray(levels)
    if p.ndim != 2 or p.shape[1] < 2 or y.shape != p.shape[:1]:
        raise ValueError(f"needs probabilities (n, L >= 2) and levels (n,), got {p.shape} and {y.shape}")
    if not (np.isfinite(p).all() and (p >= 0).all() and (np.abs(p.sum(axis=1) - 1) <= ROUNDING).all()):
        raise ValueError("probabilities must not be negative and must sum to 1 in every row")
    if not ((y >= 0) & (y < p.shape[1]) & (y == np.floor(y))).all():
        raise ValueError(f"levels must be whole numbers from 0 to {p.shape[1] - 1}")
    return p, y.astype(np.int64)


def ordinal_ece(probabilities: ArrayLike, levels: ArrayLike, bins: int = 10) -> Stat:
    """Expected calibration error of the thresholds, 0 .. 1: mean over l of the row-weighted gaps |mean p - mean y|.

    Bins are of equal width and half-open, [0, 1/bins), [1/bins, 2/bins), ...; the last one holds 1 too. Biased upwards
    in small samples, and 0 for a forecast that gives everybody the shares of the sample: read it next to `rps`.
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


def rps(probabilities: ArrayLike, levels: ArrayLike) -> Stat:
    """Ranked probability score, 0 .. L - 1: mean over rows of the sum over l of (p - y)^2 (Epstein 1969)."""
    table, human = _checked(probabilities, levels)
    if not len(table):
        return Stat(None, EMPTY)
    scores = np.zeros(len(table))
    for _, p, y in _thresholds(table, human):
        scores += (p - y) ** 2
    return Stat(float(scores.mean()))


def _thresholds(table: Floats, human: Ints) -> Iterator[tuple[int, Floats, Bools]]:
    """(l, p, y) from the highest on, p and y (n,): all at once would take many times the memory of the table."""
    p = np.zeros(len(table))
    for threshold in range(table.shape[1] - 1, 0, -1):
        p = p + table[:, threshold]
        yield threshold, p, human >= threshold


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


def interval(score: ArrayLike, q: ArrayLike, scale: ScaleBounds, grain: float) -> tuple[Floats, Floats]:
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
    first = (values - reach - low) / step
    last = (values + reach - low) / step
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
