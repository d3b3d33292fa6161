"""How well a machine predicts the true score behind noisy human ratings, and whether it treats groups alike.

A rating is taken as true score plus an error that is independent between ratings and equally spread everywhere, so
that two ratings of one response tell the error variance. Ratings must be raw and independent: averaged or adjudicated
scores understate the error. See `true_score` for the source; no estimate is clipped to its range.

Groups are compared by standardised differences, and by what membership says about the machine's errors. human, machine:
(n,) finite scores; groups: (n,) ids of one sortable kind, each row in one group. ValueError on another shape, NaN or
infinity. There the machine is compared with noisy ratings, not with true scores: see `noise_line`.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.stats.agreement import SLACK, Stat, checked_pair, without_variance
from rubricflow.tasks.core.stats.arrays import FLAT, Bools, Floats, Ints, about_mean, checked_ratings, defined, ratio
from rubricflow.tasks.core.stats.bootstrap import Interval, cluster_codes, draw_totals, interval, sums_by_code

# n rows; c ratings of a row, h their mean, m the machine score; within: squared deviations from h; doubled letters are
# products.
TERMS: Final = ("n", "c", "cc", "ch", "cm", "chh", "cmm", "chm", "cdd", "within")
NO_DOUBLES = "undefined: no response has two ratings"
NO_TRUE_VARIANCE = "undefined: the ratings show no variance of true scores"


class TrueScore(NamedTuple):
    """The machine against the true score; all None but the counts where undefined, prmse and r_true with a note.

    n: rows with a rating; doubles: rows with two or more.
    error_variance, true_variance: of a single rating and of the true score, squared score units.
    mse: of the machine as a prediction of the true score, squared score units; may be negative.
    prmse: 1 - mse / true_variance, the share by which the machine beats predicting the mean; normally 0 .. 1.
    r_true: correlation of machine and true score; may exceed 1, with a note.
    loss_association, loss_spread, loss_bias: 1 - r_true^2, (s_M / s_T - r_true)^2 and squared bias over true_variance;
    prmse is 1 less their sum, exactly.
    qwk_true: the quadratic weighted kappa of unrounded machine and true scores, -1 .. 1 but for chance: 1 less mse over
    what it would be were the two independent. People's error, which lowers their kappa with the machine, is taken out.
    """

    n: int
    doubles: int
    error_variance: float | None
    true_variance: float | None
    mse: float | None
    prmse: Stat
    r_true: Stat
    loss_association: float | None
    loss_spread: float | None
    loss_bias: float | None
    qwk_true: float | None


def true_score(ratings: ArrayLike, machine: ArrayLike) -> TrueScore:
    """Proportional reduction of mean squared error (PRMSE; Loukina et al. 2020) with its parts.

    ratings: (n, k), NaN where a rater gave none; rows without any are dropped. machine: (n,) finite. The error variance
    is that of the rows with two ratings or more. Rows are weighted by their number of ratings. The squared bias is
    estimated without the sampling error of the two means: only so do the losses add up, and near zero bias it may be
    slightly negative. ValueError on a bad shape or NaN in machine.
    """
    rated, terms = _rows(ratings, machine)
    doubles = int((terms[:, TERMS.index("c")] >= 2).sum())
    statistics = _of_totals(terms.sum(axis=0)[None])
    values: Record = {}
    for name, sample in statistics.items():
        values[name] = defined(sample[0])
    n = int(rated.sum())
    prmse = values["prmse"]
    r = values["r_true"]
    missing = NO_TRUE_VARIANCE if doubles else NO_DOUBLES
    if n < 2:
        missing = "undefined: fewer than two rated responses"
    outside = flat = high = None
    if prmse is not None:
        flat = "undefined: machine scores constant"
        if not 0 <= prmse <= 1 + SLACK:
            side = "above 1" if prmse > 1 else "below 0"
            outside = f"{side}: too few responses with two ratings, or a poor score"
    if r is not None and r > 1 + SLACK:
        high = "above 1: by chance, or the error of the ratings is overestimated"
    values["prmse"] = Stat(prmse, missing if prmse is None else outside)
    values["r_true"] = Stat(r, (flat or missing) if r is None else high)
    return TrueScore(n, doubles, **values)


def true_score_intervals(
    ratings: ArrayLike,
    machine: ArrayLike,
    clusters: ArrayLike,
    draws: int,
    seed: int,
) -> dict[str, Interval]:
    """Percentile intervals from one cluster bootstrap; every draw estimates its own error variance.

    ratings, machine as in `true_score`; clusters: (n,) ids. Keys: prmse, r_true, loss_association, loss_spread,
    loss_bias, qwk_true. ValueError as there, and on missing cluster ids.
    """
    rated, terms = _rows(ratings, machine)
    codes, size = cluster_codes(np.asarray(clusters)[rated])
    (totals,) = draw_totals([sums_by_code(terms, codes, size)], draws, seed)
    drawn = _of_totals(totals)
    names = ("prmse", "r_true", "loss_association", "loss_spread", "loss_bias", "qwk_true")
    return {name: interval(drawn[name], size) for name in names}


def human_reliability(ratings: ArrayLike) -> Stat:
    """Reliability of a single rating: true_variance / (true_variance + error_variance), over 0 .. 1.

    ratings: (n, k), NaN where a rater gave none. None without doubles or where true_variance is not positive.
    """
    table = checked_ratings(ratings)
    variances = true_score(table, np.zeros(len(table)))
    if variances.true_variance is None or variances.error_variance is None or variances.prmse.value is None:
        return Stat(None, variances.prmse.note)
    return Stat(variances.true_variance / (variances.true_variance + variances.error_variance))


def ceiling(reliability: float) -> Stat:
    """Quadratic weighted kappa of a perfect judge of the true score against one rating: 2 rho / (1 + rho), 0 .. 1.

    reliability: rho, of a single rating. It follows from kappa = 2 cov / (var + var) with equal means. None where
    negative; ValueError above 1 or on NaN.
    """
    if not reliability <= 1 + SLACK:
        raise ValueError(f"a reliability is at most 1, got {reliability}")
    if reliability < 0:
        return Stat(None, "undefined: the reliability is negative")
    return Stat(2 * reliability / (1 + reliability))


def _rows(ratings: ArrayLike, machine: ArrayLike) -> tuple[Bools, Floats]:
    """(rows with a rating, (n,); their terms, (rows, columns of TERMS))."""
    table = checked_ratings(ratings)
    scores = np.asarray(machine, dtype=np.float64)
    if scores.shape != table.shape[:1] or not np.isfinite(scores).all():
        raise ValueError(
            "machine must hold a finite score for every row of ratings: drop and count unscored rows first"
        )
    present = ~np.isnan(table)
    rated: Bools = np.asarray(present.any(axis=1), dtype=np.bool_)
    present, scores = present[rated], scores[rated]
    c = present.sum(axis=1).astype(np.float64)
    filled = np.where(present, table[rated], 0.0)
    h = filled.sum(axis=1) / c
    within = np.where(present, (filled - h[:, None]) ** 2, 0.0).sum(axis=1)
    gap = h - scores
    # Moments about a central score keep their digits.
    centre = np.median(h) if len(h) else 0.0
    h, m = h - centre, scores - centre
    first_moments = [np.ones_like(c), c, c * c, c * h, c * m]
    second_moments = [c * h * h, c * m * m, c * h * m, c * gap**2]
    return rated, np.stack([*first_moments, *second_moments, within], axis=1)


def _of_totals(totals: Floats) -> dict[str, Floats]:
    """Statistics of every sample from its term totals, (samples, columns of TERMS): name -> (samples,), NaN where
    undefined."""
    t = dict(zip(TERMS, totals.T, strict=True))
    n = t["n"]
    size = np.maximum(t["c"], 1)
    error = ratio(t["within"], t["c"] - n)
    spread = size - t["cc"] / size
    ss_h = t["chh"] - t["ch"] ** 2 / size
    noise = (n - 1) * error
    ss_m = about_mean(size, t["cm"], t["cmm"])
    divisor = np.where(n > 1, spread, 0.0)
    true = ratio(ss_h - noise, divisor)
    machine = ratio(ss_m, divisor)
    covariance = ratio(t["chm"] - t["ch"] * t["cm"] / size, divisor)
    mse = (t["cdd"] - n * error) / size
    # Where the two terms cancel, what is left of their difference is rounding.
    usable = np.where(ss_h - noise > FLAT * (t["chh"] + noise), true, 0.0)
    r = ratio(covariance, np.sqrt(usable) * np.sqrt(machine))
    squared_bias = mse - (true + machine - 2 * covariance)
    mse_if_independent = mse + 2 * covariance
    return {
        "error_variance": error,
        "true_variance": true,
        "mse": mse,
        "prmse": 1 - ratio(mse, usable),
        "r_true": r,
        "loss_association": 1 - r**2,
        "loss_spread": (np.sqrt(ratio(machine, usable)) - r) ** 2,
        "loss_bias": np.where(np.isnan(r), np.nan, ratio(squared_bias, usable)),
        "qwk_true": ratio(2 * covariance, np.where(usable > 0, mse_if_independent, np.nan)),
    }


RANK = 1e-9


class Fairness(NamedTuple):
    """Adjusted R^2, at most 1 and possibly negative, of three regressions on group membership.

    osa: overall score accuracy, of (machine - human)^2; osd: overall score difference, of machine - human; csd:
    conditional score difference, what membership adds for machine - human to the human score as a category.
    csd_coefficients: group -> score units above the first group in sorted order, which is left out; empty where
    undefined.
    """

    osa: Stat
    osd: Stat
    csd: Stat
    csd_coefficients: dict[str, float]


def dsm(human: ArrayLike, machine: ArrayLike, groups: ArrayLike) -> dict[str, Stat]:
    """Difference of standardised means: group -> mean of z_machine - z_human, in standard deviations.

    z takes mean and standard deviation (divisor n - 1) of the whole set, so that a shift of all scores does not show.
    None for n < 2 and for constant scores.
    """
    human, machine = checked_pair(human, machine)
    names, codes = _members(groups, len(human))
    if undefined := without_variance(human, machine):
        return dict.fromkeys(names, undefined)
    totals = _group_terms(human, machine, codes, len(names)).sum(axis=0)[None]
    return {name: Stat(float(value)) for name, value in zip(names, _dsm_of_totals(totals)[0], strict=True)}


def dsm_intervals(
    human: ArrayLike,
    machine: ArrayLike,
    groups: ArrayLike,
    clusters: ArrayLike,
    draws: int,
    seed: int,
) -> dict[str, Interval]:
    """Percentile interval of every group's `dsm` from one cluster bootstrap; clusters: (n,) ids.

    A draw without a group's rows, or with constant scores, is undefined for it. An interval is as wide as the number of
    clusters with rows of its group asks for.
    """
    human, machine = checked_pair(human, machine)
    names, codes = _members(groups, len(human))
    cluster_of, size = cluster_codes(clusters)
    terms = _group_terms(human, machine, codes, len(names))
    (totals,) = draw_totals([sums_by_code(terms, cluster_of, size)], draws, seed)
    intervals = {}
    for group, (name, drawn) in enumerate(zip(names, _dsm_of_totals(totals).T, strict=True)):
        group_clusters = len(np.unique(cluster_of[codes == group]))
        intervals[name] = interval(drawn, group_clusters)
    return intervals


def overall_differences(human: ArrayLike, machine: ArrayLike, groups: ArrayLike) -> Fairness:
    """What group membership explains of the errors (Loukina, Madnani and Zechner 2019).

    Least squares with an intercept; R^2 is adjusted by the rank of the regressors. None for a single group, errors that
    do not vary, or no more rows than coefficients. csd has no coefficients where human scores tell the group.
    """
    human, machine = checked_pair(human, machine)
    names, codes = _members(groups, len(human))
    error = machine - human
    if len(names) < 2:
        nothing = Stat(None, "undefined: fewer than two groups")
        return Fairness(nothing, nothing, nothing, {})
    one_cell = np.zeros(len(error), dtype=np.int64)
    osa, osd = (_explained(y, one_cell, codes)[1] for y in (error**2, error))
    without, gain, coefficients = _explained(error, np.unique(human, return_inverse=True)[1], codes)
    if without.value is not None and gain.value is not None:
        gain = Stat(gain.value - without.value)
    return Fairness(osa, osd, gain, dict(zip(names[1:], coefficients, strict=False)))


def noise_line(reliability: float, gap: float) -> float:
    """The csd coefficient, score units, that a machine shows which is fair to every true score: (1 - rho) d.

    reliability: rho, of a human score within groups, 0 .. 1; gap: d, mean human score of the group less that of the
    first. At equal noisy human scores the true scores of the abler group are higher.
    """
    return (1 - reliability) * gap


def _explained(y: Floats, cells: Ints, codes: Ints) -> tuple[Stat, Stat, list[float]]:
    """Adjusted R^2 of least squares on the cells alone, and on cells and groups; then a coefficient for each group but
    the first, none where they are not identified."""
    # Regressing what the cells leave of y on what they leave of the groups gives the groups' coefficients and the
    # residuals of the joint fit (Frisch and Waugh 1933), without a column per cell.
    members = (codes[:, None] == np.arange(1, codes.max() + 1)).astype(np.float64)
    sizes = np.bincount(cells).astype(np.float64)
    left_y = y - (np.bincount(cells, weights=y) / sizes)[cells]
    left_x = members - (sums_by_code(members, cells, len(sizes)) / sizes[:, None])[cells]
    solution, _, rank, _ = np.linalg.lstsq(left_x, left_y, rcond=RANK)
    residual = left_y - left_x @ solution
    cell_rank = len(sizes) - 1
    coefficients = solution.tolist() if rank == members.shape[1] else []
    without = _adjusted(y, float(left_y @ left_y), cell_rank)
    return without, _adjusted(y, float(residual @ residual), cell_rank + int(rank)), coefficients


def _adjusted(y: Floats, left_over: float, rank: int) -> Stat:
    centred = y - y.mean()
    total = float(centred @ centred)
    freedom = len(y) - rank - 1
    if total <= FLAT * float(y @ y):
        return Stat(None, "undefined: the errors do not vary")
    if freedom < 1:
        return Stat(None, "undefined: no more rows than coefficients")
    return Stat(1 - (left_over / freedom) / (total / (len(y) - 1)))


def _members(groups: ArrayLike, n: int) -> tuple[list[str], Ints]:
    ids: npt.NDArray[Any] = np.asarray(groups)
    if ids.shape != (n,):
        raise ValueError(f"groups must have shape {(n,)}, got {ids.shape}")
    names, codes = np.unique(ids, return_inverse=True)
    return names.tolist(), codes.astype(np.int64)


def _group_terms(human: Floats, machine: Floats, codes: Ints, size: int) -> Floats:
    """Terms to be summed, (n, 5 + 3 size): 1, h, m, h^2, m^2; then for every group 1, h and m of its rows."""
    h, m = (scores - (np.median(scores) if len(scores) else 0.0) for scores in (human, machine))
    member = (codes[:, None] == np.arange(size)).astype(np.float64)
    of_all = np.stack([np.ones_like(h), h, m, h * h, m * m], axis=1)
    return np.hstack([of_all, member, member * h[:, None], member * m[:, None]])


def _dsm_of_totals(totals: Floats) -> Floats:
    """Every group's dsm in every sample, (samples, groups), NaN where undefined."""
    n, h, m, hh, mm = totals[:, :5, None].transpose(1, 0, 2)
    rows, of_h, of_m = np.split(totals[:, 5:], 3, axis=1)
    return _z(n, m, mm, rows, of_m) - _z(n, h, hh, rows, of_h)


def _z(n: Floats, x: Floats, xx: Floats, rows: Floats, of_x: Floats) -> Floats:
    """Mean z of each group, (samples, groups), from sums over all rows, (samples, 1), and over the groups'."""
    size = np.maximum(n, 1)
    spread = np.where(n > 1, np.sqrt(about_mean(size, x, xx) / np.maximum(n - 1, 1)), 0.0)
    return ratio(ratio(of_x, rows) - x / size, spread)
