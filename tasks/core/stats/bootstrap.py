"""Cluster bootstrap of the agreement statistics: whole authors (or items) are resampled, not single rows.

A draw takes as many clusters as there are, with replacement (Field and Welsh 2007). Each pair becomes a row of terms,
summed per cluster once: a draw is then a row of cluster counts times that table, and the statistics follow from the
totals. Spearman's correlation is left out: ranks belong to the whole sample and are not sums over pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike
from scipy.stats import norm, t

from rubricflow.tasks.core.contracts import ScaleBounds
from rubricflow.tasks.core.stats.agreement import Stat, checked_pair, level_count, to_levels
from rubricflow.tasks.core.stats.arrays import Floats, Ints, about_mean, ratio

CHUNK_BYTES = 4 * 2**20
# Picks, their flat addresses, integer counts and float counts: four eight-byte numbers a cell.
CELL_BYTES = 32
MOST_CLUSTERS = 2_000
# Terms of so many pairs are held at a time.
CHUNK_PAIRS = 10_000
TIE = 1e-12
TAIL = (1 - 0.95) / 2
FEWEST_CLUSTERS = 20
MARK = "†"
"""Behind an interval of few clusters."""
CAUTION = (
    f"{MARK} rests on fewer than {FEWEST_CLUSTERS} authors, responses or items (here {{}} at the least): such an "
    "interval is often too narrow; with 10 of them it holds the true figure 90 to 95 times in 100 instead of 95"
)


class Interval(NamedTuple):
    """Percentile interval of one statistic.

    low, high: bounds in the statistic's unit; None where no draw was defined or there are fewer than two clusters.
    undefined: draws without a value, left out of the percentiles. clusters: how many were resampled, None where none.
    """

    low: float | None
    high: float | None
    undefined: int
    clusters: int | None = None


class Difference(NamedTuple):
    """Difference b - a of one statistic, both machines against the same human scores.

    estimate: on the whole sample; None where either machine's statistic is undefined.
    low, high: percentile interval; p: two-sided p-value of the same percentiles, 0 < p <= 1. None as in Interval.
    undefined: draws in which either statistic has no value; clusters: how many were resampled.
    """

    estimate: float | None
    low: float | None
    high: float | None
    p: float | None
    undefined: int
    clusters: int


def bootstrap(
    human: ArrayLike,
    machine: ArrayLike,
    clusters: ArrayLike,
    scale: ScaleBounds,
    draws: int = 2000,
    seed: int = 0,
    more: Mapping[str, Callable[[Floats], Floats]] = MappingProxyType({}),
) -> dict[str, Interval]:
    """Percentile intervals from one cluster bootstrap (Efron and Tibshirani 1993).

    human, machine: (n,) finite scores; clusters: (n,) ids of one sortable kind; scale: (low, high, step).
    Keys: qwk, qwk_continuous, exact, within_1, within_2, mae, rmse, bias, smd, pearson, icc, and macro_f1 on
    scales of up to 15 levels, and those of `more`: name -> function of totals, as `statistics_of_totals` takes them, to
    (samples,). ValueError on bad scores, a malformed scale, missing cluster ids or draws < 1.
    """
    _check_draws(draws)
    codes, size = cluster_codes(clusters)
    (totals,) = draw_totals([pair_sums(human, machine, codes, size, scale)], draws, seed)
    drawn = statistics_of_totals(totals) | {name: statistic(totals) for name, statistic in more.items()}
    return {name: interval(values, size) for name, values in drawn.items()}


def paired_bootstrap(
    human: ArrayLike,
    machine_a: ArrayLike,
    machine_b: ArrayLike,
    clusters: ArrayLike,
    scale: ScaleBounds,
    draws: int = 2000,
    seed: int = 0,
) -> dict[str, Difference]:
    """Differences b - a, both machines judged on the same resampled clusters in every draw.

    Arguments, keys and errors as in `bootstrap`. p = 2 min(share of draws <= 0, share >= 0), at most 1, each share
    counting one draw more than was made, so that p is never 0 (Davison and Hinkley 1997), and brought to the tail of
    Student's t that the intervals widen it to.
    """
    _check_draws(draws)
    codes, size = cluster_codes(clusters)
    blocks = [pair_sums(human, machine, codes, size, scale) for machine in (machine_a, machine_b)]
    whole_a, whole_b = (statistics_of_totals(block.sum(axis=0, keepdims=True)) for block in blocks)
    drawn_a, drawn_b = map(statistics_of_totals, draw_totals(blocks, draws, seed))
    differences = {}
    for name in drawn_a:
        estimate = float(gap(whole_a[name], whole_b[name])[0])
        differences[name] = difference(estimate, gap(drawn_a[name], drawn_b[name]), size)
    return differences


def cluster_sums(terms: Floats, clusters: ArrayLike) -> Floats:
    """Sums of the rows of each cluster, shape (clusters, columns), clusters in sorted order.

    terms: (n, columns); clusters: (n,) ids. ValueError on another length or on None or NaN among the ids.
    """
    return sums_by_code(terms, *cluster_codes(clusters, most=None))


def folds_of(clusters: ArrayLike, folds: int, seed: int) -> Ints:
    """(n,) The fold of each row: whole clusters, as even as can be, dealt in the order of the seeded digests of their
    ids, whatever order the rows are in."""
    names, index = np.unique(np.asarray(clusters, str), return_inverse=True)
    hashed = [hashlib.sha256(f"{seed}:{name}".encode()).digest() for name in names.tolist()]
    fold = np.empty(len(names), dtype=np.int64)
    fold[sorted(range(len(names)), key=hashed.__getitem__)] = np.arange(len(names)) % folds
    return fold[index]


def cluster_codes(clusters: ArrayLike, most: int | None = MOST_CLUSTERS) -> tuple[Ints, int]:
    """(code 0 .. size - 1 of every row, size), clusters in sorted order. ValueError on None or NaN among the ids.

    More than `most` clusters are merged at random into that many groups, to be resampled in their place: sums over
    groups of independent clusters vary from draw to draw as sums over the clusters do.
    """
    ids: npt.NDArray[Any] = np.asarray(clusters)
    # NaN would pass as one big cluster of all rows whose author is not known.
    if ids.dtype.kind in "fO" and any(cluster is None or cluster != cluster for cluster in ids):
        raise ValueError("every row needs a cluster id")
    names, codes = np.unique(ids, return_inverse=True)
    if most is None or len(names) <= most:
        return codes, len(names)
    return np.random.default_rng(len(names)).permutation(len(names))[codes] % most, most


def pair_sums(human: ArrayLike, machine: ArrayLike, codes: Ints, size: int, scale: ScaleBounds) -> Floats:
    """Sums of `pair_terms` of each code, shape (size, columns); arguments as there and in `sums_by_code`."""
    human, machine = checked_pair(human, machine)
    if codes.shape != human.shape:
        raise ValueError(f"clusters must have shape {human.shape}, got {codes.shape}")
    sums = []
    for start in range(0, max(len(human), 1), CHUNK_PAIRS):
        part = slice(start, start + CHUNK_PAIRS)
        sums.append(sums_by_code(pair_terms(human[part], machine[part], scale), codes[part], size))
    return np.asarray(np.sum(sums, axis=0), dtype=np.float64)


def sums_by_code(terms: Floats, codes: Ints, size: int) -> Floats:
    """Sums of the rows of each code, shape (size, columns).

    terms: (n, columns); codes: (n,) in 0 .. size - 1. ValueError on another length.
    """
    if codes.shape != terms.shape[:1]:
        raise ValueError(f"clusters must have shape {terms.shape[:1]}, got {codes.shape}")
    return np.stack([np.bincount(codes, weights=column, minlength=size) for column in terms.T], axis=1)


def resample_counts(rng: np.random.Generator, clusters: int, draws: int) -> Floats:
    """Multinomial counts, shape (draws, clusters): each row sums to `clusters`, every cluster equally likely."""
    # Counting uniform picks gives the same distribution as rng.multinomial, several times faster.
    cells = rng.integers(0, clusters, size=(draws, clusters))
    cells += np.arange(0, draws * clusters, clusters)[:, None]
    counts = np.bincount(cells.ravel(), minlength=draws * clusters)
    return counts.reshape(draws, clusters).astype(np.float64)


def draw_totals(blocks: Sequence[Floats], draws: int, seed: int) -> list[Floats]:
    """Totals of every draw for each block, shape (draws, columns); all NaN with fewer than two clusters.

    blocks: tables of one sum per cluster, (clusters, columns), the same clusters in the same order; they share the
    draws.
    """
    size = len(blocks[0])
    if size < 2:
        return [np.full((draws, block.shape[1]), np.nan) for block in blocks]
    counts = _counts(size, draws, seed)
    rows = max(1, CHUNK_BYTES // (CELL_BYTES * size))
    totals = [np.empty((draws, block.shape[1])) for block in blocks]
    for start in range(0, draws, rows):
        part = counts[start : start + rows].astype(np.float64)
        for block, total in zip(blocks, totals, strict=True):
            total[start : start + rows] = part @ block
    return totals


@lru_cache(maxsize=4)
def _counts(size: int, draws: int, seed: int) -> npt.NDArray[np.uint8]:
    """How often each draw holds each cluster, (draws, size); kept, since many figures share their draws."""
    rng = np.random.default_rng(seed)
    rows = max(1, CHUNK_BYTES // (CELL_BYTES * size))
    parts = [resample_counts(rng, size, min(rows, draws - start)) for start in range(0, draws, rows)]
    return np.concatenate([part.astype(np.uint8) for part in parts])


def interval(drawn: Floats, clusters: int) -> Interval:
    """95% percentile interval of the values of a statistic in all draws, NaN where undefined; shape (draws,).

    clusters: how many were resampled; fewer than two have no interval. Draws of few vary less than samples do, by
    sqrt((k - 1) / k), and their spread is itself uncertain: the percentiles are those that Student's t asks for, the
    expanded percentile interval (Hesterberg 2015). That of 100 clusters is 2% wider for it, that of 10 a fifth.
    """
    defined = drawn[~np.isnan(drawn)]
    undefined = len(drawn) - len(defined)
    if not len(defined) or clusters < 2:
        return Interval(None, None, undefined, clusters)
    low, high = np.quantile(defined, [_tail(clusters), 1 - _tail(clusters)])
    return Interval(float(low), float(high), undefined, clusters)


@cache
def _tail(clusters: int) -> float:
    """The lower of the percentiles of an interval; kept, since many figures have as many clusters."""
    return float(norm.cdf(t.ppf(TAIL, clusters - 1) * np.sqrt(clusters / (clusters - 1))))


def is_few(clusters: float | None) -> bool:
    """Whether so few were resampled that an interval is marked; not where nothing was, None or NaN."""
    return clusters is not None and clusters < FEWEST_CLUSTERS


def cautions(clusters: Iterable[float | None]) -> Iterator[str]:
    """What to say once with intervals, of which those of few clusters are marked; nothing where none is.

    clusters: how many each interval resamples.
    """
    marked = [count for count in clusters if count is not None and is_few(count)]
    if marked:
        yield CAUTION.format(int(min(marked)))


def _check_draws(draws: int) -> None:
    if draws < 1:
        raise ValueError(f"needs draws >= 1, got {draws}")


def gap(a: Floats, b: Floats) -> Floats:
    """Differences b - a, element by element."""
    # Two machines equal in a statistic may differ in its last digit, which would count as a win in the p-value.
    apart = b - a
    return np.where(np.abs(apart) < TIE, 0.0, apart)


def difference(estimate: float, drawn: Floats, clusters: int) -> Difference:
    """A difference with the 95% percentile interval and the p-value of its draws, (draws,), NaN where undefined."""
    point = None if np.isnan(estimate) else estimate
    low, high, undefined, _ = interval(drawn, clusters)
    if low is None:
        return Difference(point, None, None, None, undefined, clusters)
    tail = min(np.count_nonzero(drawn <= 0), np.count_nonzero(drawn >= 0)) + 1
    share = min(0.5, tail / (len(drawn) - undefined + 1))
    p = 2 * t.cdf(norm.ppf(share) * np.sqrt((clusters - 1) / clusters), clusters - 1)
    return Difference(point, low, high, float(p), undefined, clusters)


def within_items(
    human: ArrayLike,
    machine: ArrayLike,
    items: ArrayLike,
    clusters: ArrayLike,
    draws: int = 2000,
    seed: int = 0,
) -> tuple[Stat, Interval | None]:
    """Correlation of two scores' deviations from their means in each item, -1 .. 1, and its 95% interval.

    human, machine: (n,) finite, as shares of each item's scale; items: (n,) ids; clusters: (n,) what is resampled.
    Scores that know an item's mean and nothing more of a response have 0 or, where they were cross-fitted, less.
    Undefined where either is the same for all responses of every item; no interval then, nor without draws.
    """
    human, machine = checked_pair(human, machine)
    codes = np.unique(np.asarray(items), return_inverse=True)[1]
    size = np.bincount(codes)
    apart = [scores - (np.bincount(codes, weights=scores) / size)[codes] for scores in (human, machine)]
    terms = np.stack([apart[0] * apart[1], apart[0] ** 2, apart[1] ** 2], axis=1)
    value = float(_correlation(terms.sum(axis=0, keepdims=True))[0])
    if np.isnan(value):
        return Stat(None, "undefined: no item in which both scores differ from response to response"), None
    if not draws:
        return Stat(value), None
    cluster, count = cluster_codes(clusters)
    (totals,) = draw_totals([sums_by_code(terms, cluster, count)], draws, seed)
    drawn = value + _widening(codes, terms) * (_correlation(totals) - value)
    return Stat(value), interval(np.clip(drawn, -1.0, 1.0), count)


def _widening(codes: Ints, terms: Floats) -> float:
    """By what draws vary less than samples do, since deviations of one item add up to 0: the product of two independent
    scores' deviations, added up over an item's n responses, has the variance of both sums of squares over n − 1, and in
    draws of rows over n."""
    size = np.bincount(codes)
    squares = np.bincount(codes, weights=terms[:, 1]) * np.bincount(codes, weights=terms[:, 2])
    sampled, drawn = (float(np.sum(squares[size > 1] / (size[size > 1] - less))) for less in (1, 0))
    return float(np.sqrt(sampled / drawn)) if drawn > 0 else 1.0


def _correlation(totals: Floats) -> Floats:
    """(draws, 3) sums of products and of both squares → (draws,), NaN where either score does not vary."""
    varies = (totals[:, 1:] > TIE).all(axis=1)
    spread = np.sqrt(np.where(varies, totals[:, 1] * totals[:, 2], 1.0))
    return np.where(varies, np.clip(totals[:, 0] / spread, -1.0, 1.0), np.nan)


# n pairs; h, m scores and d = m - h; i, j levels of h and m; doubled letters are products.
TERMS: Final = ("n", "h", "m", "hh", "mm", "hm", "d", "dd", "abs_d", "i", "j", "ii", "jj", "ij", "exact", "w1", "w2")
# On longer scales most levels are rare, and a draw's macro-F1 tells which levels it happened to hit.
MACRO_F1_LEVELS = 15


def pair_terms(human: ArrayLike, machine: ArrayLike, scale: ScaleBounds) -> Floats:
    """Terms to be summed, shape (n, 17), or (n, 17 + 3 L) on scales of L <= 15 levels.

    human, machine: (n,) finite scores; scale: (low, high, step). The columns are those of TERMS, then for every
    level: hits, human uses, machine uses. ValueError as in `checked_pair` and `level_count`.
    """
    human, machine = checked_pair(human, machine)
    levels = level_count(*scale)
    i = to_levels(human, *scale)
    j = to_levels(machine, *scale)
    # Second moments about a central score keep their digits; spread and covariance do not move with the origin.
    middle = (scale[0] + scale[1]) / 2
    h = human - middle
    m = machine - middle
    d = machine - human
    gap = np.abs(j - i)
    of_scores = [h, m, h * h, m * m, h * m, d, d * d, np.abs(d)]
    of_levels = [i, j, i * i, j * j, i * j, gap == 0, gap <= 1, gap <= 2]
    columns = np.stack([np.ones_like(h), *of_scores, *of_levels], axis=1)
    if levels > MACRO_F1_LEVELS:
        return columns
    grid = np.arange(levels)
    uses_h = i[:, None] == grid
    uses_m = j[:, None] == grid
    return np.hstack([columns, uses_h & uses_m, uses_h, uses_m])


def statistics_of_totals(totals: Floats) -> dict[str, Floats]:
    """Statistics of every sample from its term totals: name -> shape (samples,), NaN where undefined.

    totals: (samples, columns of `pair_terms`). Values and undefined cases are those of the functions of the same
    meaning in `agreement` (icc: ICC(2,1) of the two columns); flagged zeros are values here. macro_f1 is present
    only where the totals carry the level columns.
    """
    t = dict(zip(TERMS, totals.T[: len(TERMS)], strict=True))
    n = t["n"]
    shift = ratio(t["d"], t["n"])
    ss_h, ss_m, sp = _spread(n, t["h"], t["m"], t["hh"], t["mm"], t["hm"])
    ss_i, ss_j, sp_ij = _spread(n, t["i"], t["j"], t["ii"], t["jj"], t["ij"])
    statistics = {
        "qwk": _kappa(n, ss_i, ss_j, sp_ij, ratio(t["j"] - t["i"], n)),
        "qwk_continuous": _kappa(n, ss_h, ss_m, sp, shift),
        "exact": ratio(t["exact"], n),
        "within_1": ratio(t["w1"], n),
        "within_2": ratio(t["w2"], n),
        "mae": ratio(t["abs_d"], n),
        "rmse": np.sqrt(ratio(t["dd"], n)),
        "bias": shift,
        "smd": ratio(shift, np.sqrt(ss_h / _freedom(n))),
        "pearson": np.clip(ratio(sp, np.sqrt(ss_h) * np.sqrt(ss_m)), -1.0, 1.0),
        "icc": _icc(n, ss_h, ss_m, sp, shift),
    }
    if totals.shape[1] > len(TERMS):
        statistics["macro_f1"] = _macro_f1(totals[:, len(TERMS) :])
    return statistics


def _spread(n: Floats, x: Floats, y: Floats, xx: Floats, yy: Floats, xy: Floats) -> tuple[Floats, Floats, Floats]:
    """Sums of squares of x and y and of products about the means; exact zeros where a column is constant."""
    size = np.maximum(n, 1)
    ss_x = about_mean(size, x, xx)
    ss_y = about_mean(size, y, yy)
    return ss_x, ss_y, np.where((ss_x == 0) | (ss_y == 0), 0.0, xy - x * y / size)


def _freedom(n: Floats) -> Floats:
    return np.maximum(n - 1, 1)


def _kappa(n: Floats, ss_x: Floats, ss_y: Floats, products: Floats, shift: Floats) -> Floats:
    return ratio(2 * products, np.where(n > 1, ss_x + ss_y + n * shift**2, 0.0))


def _icc(n: Floats, ss_h: Floats, ss_m: Floats, products: Floats, shift: Floats) -> Floats:
    """ICC(2,1) for two raters: the mean squares are the spread of half sums, of half differences and of means."""
    ms_rows = (ss_h + ss_m + 2 * products) / 2 / _freedom(n)
    ms_error = (ss_h + ss_m - 2 * products) / 2 / _freedom(n)
    ms_columns = n * shift**2 / 2
    total = ms_rows + ms_error + 2 * (ms_columns - ms_error) / np.maximum(n, 1)
    return ratio(ms_rows - ms_error, np.where(n > 1, total, 0.0))


def _macro_f1(level_totals: Floats) -> Floats:
    hits, uses_h, uses_m = np.split(level_totals, 3, axis=1)
    uses = uses_h + uses_m
    f1 = np.nan_to_num(ratio(2 * hits, uses))
    return ratio(f1.sum(axis=1), np.sum(uses > 0, axis=1, dtype=np.float64))
