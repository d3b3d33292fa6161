"""The likelihood of coded ratings under the many-facet model, and where it is highest; `facets` says which model."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from rubricflow.tasks.core.stats.arrays import Floats, Ints


class Design(NamedTuple):
    """Coded ratings. Responses with the same group, raters and scores are one pattern; a cell is a rater's giving one
    value in one group; a pair is a rater in a group.

    responses, raters, groups: ids in sorted order; values: the distinct scores of each group, ascending.
    pattern: (responses,) each one's pattern; weight: (patterns,) their number; group: (patterns,) of `groups`.
    ratings: (patterns, cells) 1 where the cell is part of the pattern.
    cell_pair, cell_level: (cells,) of pairs and of the group's values; pair_group, pair_rater: (pairs,).
    """

    responses: tuple[str, ...]
    raters: tuple[str, ...]
    groups: tuple[str, ...]
    values: tuple[Floats, ...]
    pattern: Ints
    weight: Floats
    group: Ints
    ratings: csr_array
    cell_pair: Ints
    cell_level: Ints
    pair_group: Ints
    pair_rater: Ints

    @property
    def size(self) -> Ints:
        """(patterns,) ratings of each."""
        return np.asarray(np.diff(self.ratings.indptr), dtype=np.int64)

    @property
    def low(self) -> Floats:
        """(groups,) lowest values."""
        return np.array([values[0] for values in self.values])

    @property
    def span(self) -> Floats:
        """(groups,) from the lowest value to the highest."""
        return np.array([np.ptp(values) for values in self.values])


NODES: Final[Floats] = np.linspace(-6, 6, 81)
SLOPE, SLOPE_SD, GROUP_SD = float(np.log(8.0)), 1.0, 0.5
"""Prior of log a: its mean over groups, which holds most of 1 to 60, and what groups differ from it."""
CASELOAD_SD = 1.0
"""Prior of what the responses that a rater marked differ in mean ability."""
PRECISE = {"maxiter": 2000, "maxfun": 4000, "maxcor": 30, "gtol": 1e-4, "ftol": 1e-10}
"""When to stop; the gradient is by about the standard error of each parameter."""


class Curves(NamedTuple):
    """What each pair of a group and a rater gives at each ability of the grid.

    slope: (groups,) a; share: (groups, levels) u, 0 .. 1; log_p: (pairs, levels, nodes), -inf where there is no such
    level; mean, variance: (pairs, nodes) of u.
    """

    slope: Floats
    share: Floats
    log_p: Floats
    mean: Floats
    variance: Floats


class Parameters(NamedTuple):
    """The free parameters: severity (raters,), log_slope (groups,), steps (groups, levels), caseload (columns,)."""

    severity: Floats
    log_slope: Floats
    steps: Floats
    caseload: Floats


class Likelihood:
    """The likelihood of coded ratings and its gradient; parameters are one vector."""

    def __init__(self, design: Design, at_random: bool) -> None:
        self.design, self.at_random = design, at_random
        levels = np.array([len(values) for values in design.values])
        self.used = np.arange(levels.max()) < levels[:, None]
        self.share = np.zeros(self.used.shape)
        for group, values in enumerate(design.values):
            self.share[group, : len(values)] = (values - values[0]) / (np.ptp(values) or 1.0)
        self.caseloads = _caseloads(design, at_random)
        self.sizes = (len(design.raters), len(design.groups), self.used.size, self.caseloads.shape[1])

    def start(self) -> Floats:
        """Nobody is severe, and values are about as likely as they occur."""
        counts = np.zeros(self.used.shape)
        cells = self.design.ratings.T @ self.design.weight
        np.add.at(counts, (self.design.pair_group[self.design.cell_pair], self.design.cell_level), cells)
        steps = np.log(np.maximum(counts, 1.0)) - SLOPE * self.share * (1 - self.share)
        raters, groups, _, caseloads = self.sizes
        return np.concatenate([np.zeros(raters), np.full(groups, SLOPE), steps.ravel(), np.zeros(caseloads)])

    def split(self, free: Floats) -> Parameters:
        """The vector as its parts; steps relative to the lowest value's."""
        severity, slope, steps, caseload = np.split(free, np.cumsum(self.sizes)[:-1])
        table = steps.reshape(self.used.shape)
        return Parameters(severity, slope, table - table[:, :1], caseload)

    def fitted(self, free: Floats, variance: float) -> Floats:
        """The parameters of the highest likelihood, with the priors; variance: of severities."""
        unit = self._unit(free, variance)

        def loss(scaled: Floats) -> tuple[float, Floats]:
            value, gradient = self.loss(scaled * unit, variance)
            return value, gradient * unit

        best = minimize(loss, free / unit, method="L-BFGS-B", jac=True, options=PRECISE)
        return np.asarray(best.x * unit, dtype=np.float64)

    def loss(self, free: Floats, variance: float) -> tuple[float, Floats]:
        """Negative log likelihood with the priors, and its gradient."""
        parts = self.split(free)
        curves = self.of_pairs(parts)
        total, posterior = self.posterior(parts, curves)
        prior, slant = _log_prior(parts, variance)
        gradient = self._gradient(parts, curves, posterior)
        return -float(self.design.weight @ total) - prior, slant - np.concatenate([part.ravel() for part in gradient])

    def of_pairs(self, parts: Parameters) -> Curves:
        """The curves of the design's pairs."""
        return self.curves(parts, self.design.pair_group, parts.severity[self.design.pair_rater])

    def curves(self, parts: Parameters, group: Ints, severity: Floats) -> Curves:
        """Of pairs of a group and a severity."""
        slope = np.exp(parts.log_slope)
        share = self.share[group]
        gap = NODES[None, :] - severity[:, None]
        logits = (slope[group, None] * share)[:, :, None] * gap[:, None, :] + parts.steps[group][:, :, None]
        logits = np.where(self.used[group][:, :, None], logits, -np.inf)
        log_p = logits - log_sum(logits)
        p = np.exp(log_p)
        mean, square = (np.einsum("plq,pl->pq", p, share**power) for power in (1, 2))
        return Curves(slope, self.share, log_p, mean, np.maximum(square - mean**2, 0.0))

    def posterior(self, parts: Parameters, curves: Curves) -> tuple[Floats, Floats]:
        """(log likelihood of each pattern, its posterior over the nodes)."""
        log_p = self.design.ratings @ curves.log_p[self.design.cell_pair, self.design.cell_level]
        log = log_p + log_prior(self.means(parts))
        total = log_sum(log)
        return total[:, 0], np.exp(log - total)

    def means(self, parts: Parameters) -> Floats:
        """Mean ability of each pattern, 0 over all responses of a group: that is in the steps."""
        return self._centred(self.caseloads @ parts.caseload)

    def information(self, free: Floats) -> csr_array:
        """What each pattern tells of each rater's severity, were its ability known, (patterns, raters)."""
        design = self.design
        parts = self.split(free)
        curves = self.of_pairs(parts)
        _, posterior = self.posterior(parts, curves)
        at_ability = curves.slope[design.pair_group, None] ** 2 * curves.variance
        pattern, cell = design.ratings.nonzero()
        information = (posterior[pattern] * at_ability[design.cell_pair[cell]]).sum(axis=1)
        rater = design.pair_rater[design.cell_pair[cell]]
        return csr_array((information, (pattern, rater)), shape=(len(design.weight), len(design.raters)))

    def _expected(self, parts: Parameters, curves: Curves, posterior: Floats) -> tuple[Floats, Floats, Floats]:
        """How often a pair is expected to give a level at an ability, (pairs, levels, nodes), and any level, (pairs,
        nodes); and what the ability is above the severity, (pairs, nodes)."""
        design = self.design
        counts = np.zeros(curves.log_p.shape)
        counts[design.cell_pair, design.cell_level] = design.ratings.T @ (posterior * design.weight[:, None])
        return counts, counts.sum(axis=1), NODES[None, :] - parts.severity[design.pair_rater][:, None]

    def _gradient(self, parts: Parameters, curves: Curves, posterior: Floats) -> Parameters:
        """Of the log likelihood: what was given less what is expected, at the abilities that the ratings let expect
        (Fisher's identity)."""
        design = self.design
        counts, at_node, gap = self._expected(parts, curves, posterior)
        raters = len(design.raters)
        groups = len(design.groups)
        excess = np.einsum("plq,pl->pq", counts, self.share[design.pair_group]) - at_node * curves.mean
        excess *= curves.slope[design.pair_group, None]
        level_excess = (counts - at_node[:, None, :] * np.exp(curves.log_p)).sum(axis=2)
        steps = _sums(design.pair_group, level_excess, groups)
        steps[:, 0] -= steps.sum(axis=1)
        ability_excess = (posterior - np.exp(log_prior(self.means(parts)))) @ NODES
        severity = -_sums(design.pair_rater, excess.sum(axis=1), raters)
        log_slope = _sums(design.pair_group, (gap * excess).sum(axis=1), groups)
        caseload = self.caseloads.T @ (design.weight * self._centred(ability_excess))
        return Parameters(severity, log_slope, steps, caseload)

    def _unit(self, free: Floats, variance: float) -> Floats:
        """About the standard error of each parameter, were the others and all abilities known."""
        design = self.design
        parts = self.split(free)
        raters = len(design.raters)
        groups = len(design.groups)
        curves = self.of_pairs(parts)
        _, at_node, gap = self._expected(parts, curves, self.posterior(parts, curves)[1])
        information = at_node * curves.slope[design.pair_group, None] ** 2 * curves.variance
        p = np.exp(curves.log_p)
        steps = _sums(design.pair_group, (at_node[:, None, :] * p * (1 - p)).sum(axis=2), groups)
        of_severity = _sums(design.pair_rater, information.sum(axis=1), raters) + 1 / variance
        of_slope = _sums(design.pair_group, (gap**2 * information).sum(axis=1), groups) + 1
        of_caseload = (self.caseloads**2).T @ design.weight + 1 / CASELOAD_SD**2
        precision = np.concatenate([of_severity, of_slope, np.maximum(steps, 1e-3).ravel(), of_caseload])
        return np.asarray(1 / np.sqrt(precision))

    def _centred(self, values: Floats) -> Floats:
        group = self.design.group
        weight = self.design.weight
        totals = np.bincount(group, weight * values, len(self.design.groups))
        return np.asarray(values - (totals / np.bincount(group, weight))[group])


def log_prior(means: Floats) -> Floats:
    """Log weights of the nodes for normal abilities of these means and SD 1, (patterns, nodes)."""
    log = -0.5 * (NODES - means[:, None]) ** 2
    return np.asarray(log - log_sum(log))


def log_sum(logs: Floats) -> Floats:
    """Logarithm of the sum of exponentials over the second axis, which stays with length 1: to the last bit what
    scipy's `logsumexp` gives, in a third of its time. logs: finite or -inf, in no sum all of them -inf."""
    most = logs.max(axis=1, keepdims=True)
    is_most = logs == most
    count = is_most.sum(axis=1, keepdims=True, dtype=np.float64)
    others = np.exp(np.where(is_most, -np.inf, logs - most)).sum(axis=1, keepdims=True)
    return np.asarray(np.log1p(others / count) + np.log(count) + most)


def _log_prior(parts: Parameters, variance: float) -> tuple[float, Floats]:
    """(log density of the normal priors up to a constant, minus its gradient)."""
    mean = parts.log_slope.mean()
    off = (parts.log_slope - mean) / GROUP_SD
    common = (mean - SLOPE) / SLOPE_SD
    slopes = off / GROUP_SD + common / SLOPE_SD / len(off)
    slant = [parts.severity / variance, slopes, np.zeros(parts.steps.size), parts.caseload / CASELOAD_SD**2]
    squares = parts.severity @ slant[0] + off @ off + common**2 + parts.caseload @ slant[3]
    return -0.5 * float(squares), np.concatenate(slant)


def _caseloads(design: Design, at_random: bool) -> csr_array:
    """Share of each pair in a pattern, (patterns, columns); responses that one person marked have columns of their own,
    for they may be others than those that several marked. No column where responses were given at random."""
    if at_random:
        return csr_array((len(design.weight), 0))
    pattern, cell = design.ratings.nonzero()
    column = design.cell_pair[cell] + np.where(design.size[pattern] == 1, len(design.pair_group), 0)
    return csr_array(
        (1.0 / design.size[pattern], (pattern, column)), shape=(len(design.weight), 2 * len(design.pair_group))
    )


def _sums(codes: Ints, values: Floats, size: int) -> Floats:
    total = np.zeros((size, *values.shape[1:]))
    np.add.at(total, codes, values)
    return total


# Ratings as the many-facet model takes them: which cell each rating is in, and who shares answers with whom.


def design(ratings: pd.DataFrame) -> Design:
    """Ratings in any order, coded so that equal sets give equal codes.

    ratings: one row or more, one for each response and rater: `response`, `rater`, `group` (responses whose scores have
    the same steps, such as those of a rubric; each is in one) and a finite `score`, in score units.
    """
    columns = (pd.factorize(ratings[name], sort=True) for name in ("response", "group", "rater"))
    (response, responses), (group, groups), (rater, raters) = columns
    score = ratings["score"].to_numpy(float)
    values = tuple(np.unique(score[group == code]) for code in range(len(groups)))
    level = pd.Series(score).groupby(group).rank("dense").to_numpy(int) - 1
    levels = max(map(len, values))
    pairs, pair = np.unique(group * len(raters) + rater, return_inverse=True)
    cells, cell = np.unique(pair * levels + level, return_inverse=True)
    # The cells of each response; its pattern is the place of this set among the distinct ones.
    ends = np.cumsum(np.bincount(response))
    of_responses = np.split(cell[np.lexsort((cell, response))], ends[:-1])
    sets = [tuple(own.tolist()) for own in of_responses]
    patterns = sorted(set(sets))
    number = {cells_of_pattern: place for place, cells_of_pattern in enumerate(patterns)}
    pattern = np.array([number[own] for own in sets])
    flat = np.concatenate(patterns)
    ends = np.cumsum([0, *map(len, patterns)])
    cell_pair = cells // levels
    pair_group = pairs // len(raters)
    return Design(
        responses=tuple(responses),
        raters=tuple(raters),
        groups=tuple(groups),
        values=values,
        pattern=pattern,
        weight=np.bincount(pattern).astype(np.float64),
        group=pair_group[cell_pair[flat[ends[:-1]]]],
        ratings=csr_array((np.ones(len(flat)), flat, ends), shape=(len(patterns), len(cells))),
        cell_pair=cell_pair,
        cell_level=cells % levels,
        pair_group=pair_group,
        pair_rater=pairs % len(raters),
    )


def linked(coded: Design) -> list[tuple[str, ...]]:
    """Raters in sets that shared responses link, directly or by way of others, the largest first; severities of two
    sets do not compare."""
    raters = coded.pair_rater[coded.cell_pair]
    by_rater = coded.ratings @ csr_array((np.ones(len(raters)), (np.arange(len(raters)), raters)))
    count, label = connected_components(by_rater.T @ by_rater, directed=False)
    sets: list[list[str]] = [[] for _ in range(count)]
    for rater, number in zip(coded.raters, label, strict=True):
        sets[number].append(rater)
    return sorted(map(tuple, sets), key=lambda names: (-len(names), names))
