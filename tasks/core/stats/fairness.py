"""Whether a machine treats groups alike: standardised differences, and what membership says about its errors.

human, machine: (n,) finite scores; groups: (n,) ids of one sortable kind, each row in one group. ValueError on another
shape, NaN or infinity. The machine is compared with noisy ratings, not with true scores: see `noise_line`.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from rubricflow.tasks.core.stats.agreement import Stat, checked_pair, without_variance
from rubricflow.tasks.core.stats.arrays import FLAT, Floats, Ints, about_mean, ratio
from rubricflow.tasks.core.stats.bootstrap import Interval, cluster_codes, draw_totals, interval, sums_by_code

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
    cell_rank, coefficients = len(sizes) - 1, solution.tolist() if rank == members.shape[1] else []
    without = _adjusted(y, float(left_y @ left_y), cell_rank)
    return without, _adjusted(y, float(residual @ residual), cell_rank + int(rank)), coefficients


def _adjusted(y: Floats, left_over: float, rank: int) -> Stat:
    centred = y - y.mean()
    total, freedom = float(centred @ centred), len(y) - rank - 1
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
