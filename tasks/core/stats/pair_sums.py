"""Agreement statistics as functions of sums over pairs, many samples at a time.

Each pair becomes a row of terms; a sample's statistics follow from the column totals of its rows. A resample is
then one row of multiplicities, and all of them are one matrix product. Spearman's correlation is missing by
nature: a rank depends on the whole sample, so it is no sum over pairs.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from rubricflow.tasks.core.stats.agreement import checked_pair, level_count, to_levels
from rubricflow.tasks.core.stats.arrays import Floats, ratio

Scale = tuple[float, float, float]

# n pairs; h, m scores and d = m - h; i, j levels of h and m; doubled letters are products.
TERMS: Final = ("n", "h", "m", "hh", "mm", "hm", "d", "dd", "abs_d", "i", "j", "ii", "jj", "ij", "exact", "w1", "w2")
# On longer scales most levels are rare, and a draw's macro-F1 tells which levels it happened to hit.
MACRO_F1_LEVELS = 15
# Relative to the second moment; rounding leaves about 1e-14 where all scores of a sample are one.
FLAT = 1e-12


def pair_terms(human: npt.ArrayLike, machine: npt.ArrayLike, scale: Scale) -> Floats:
    """Terms to be summed, shape (n, 17), or (n, 17 + 3 L) on scales of L <= 15 levels.

    human, machine: (n,) finite scores; scale: (low, high, step). The columns are those of TERMS, then for every
    level: hits, human uses, machine uses. ValueError as in `checked_pair` and `level_count`.
    """
    human, machine = checked_pair(human, machine)
    levels = level_count(*scale)
    i, j = to_levels(human, *scale), to_levels(machine, *scale)
    # Second moments about a central score keep their digits; spread and covariance do not move with the origin.
    middle = (scale[0] + scale[1]) / 2
    h, m = human - middle, machine - middle
    d = machine - human
    gap = np.abs(j - i)
    terms = [np.ones_like(h), h, m, h * h, m * m, h * m, d, d * d, np.abs(d), i, j, i * i, j * j, i * j]
    columns = np.stack([*terms, gap == 0, gap <= 1, gap <= 2], axis=1)
    if levels > MACRO_F1_LEVELS:
        return columns
    grid = np.arange(levels)
    uses_h, uses_m = i[:, None] == grid, j[:, None] == grid
    return np.hstack([columns, uses_h & uses_m, uses_h, uses_m])


def statistics_of_totals(totals: Floats) -> dict[str, Floats]:
    """Statistics of every sample from its term totals: name -> shape (samples,), NaN where undefined.

    totals: (samples, columns of `pair_terms`). Values and undefined cases are those of the functions of the same
    meaning in `agreement` (icc: ICC(2,1) of the two columns); flagged zeros are values here. macro_f1 is present
    only where the totals carry the level columns.
    """
    t = dict(zip(TERMS, totals.T[: len(TERMS)], strict=True))
    n, shift = t["n"], ratio(t["d"], t["n"])
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
    ss_x, ss_y = xx - x * x / size, yy - y * y / size
    flat_x, flat_y = ss_x <= FLAT * xx, ss_y <= FLAT * yy
    products = np.where(flat_x | flat_y, 0.0, xy - x * y / size)
    return np.where(flat_x, 0.0, ss_x), np.where(flat_y, 0.0, ss_y), products


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
    f1 = np.divide(2 * hits, uses, out=np.zeros_like(hits), where=uses > 0)
    return ratio(f1.sum(axis=1), np.sum(uses > 0, axis=1, dtype=np.float64))
