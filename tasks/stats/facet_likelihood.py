"""The likelihood of coded ratings under the many-facet model, and where it is highest; `facets` says which model."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import logsumexp

from tasks.stats.arrays import Floats, Ints
from tasks.stats.facet_design import Design

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

    def __init__(self, of: Design, at_random: bool) -> None:
        self.of, self.at_random = of, at_random
        levels = np.array([len(values) for values in of.values])
        self.used = np.arange(levels.max()) < levels[:, None]
        self.share = np.zeros(self.used.shape)
        for at, values in enumerate(of.values):
            self.share[at, : len(values)] = (values - values[0]) / (np.ptp(values) or 1.0)
        self.caseloads = _caseloads(of, at_random)
        self.sizes = (len(of.raters), len(of.groups), self.used.size, self.caseloads.shape[1])

    def start(self) -> Floats:
        """Nobody is severe, and values are about as likely as they occur."""
        counts = np.zeros(self.used.shape)
        cells = self.of.ratings.T @ self.of.weight
        np.add.at(counts, (self.of.pair_group[self.of.cell_pair], self.of.cell_level), cells)
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

        found = minimize(loss, free / unit, method="L-BFGS-B", jac=True, options=PRECISE)
        return np.asarray(found.x * unit, dtype=np.float64)

    def loss(self, free: Floats, variance: float) -> tuple[float, Floats]:
        """Negative log likelihood with the priors, and its gradient."""
        parts = self.split(free)
        curves = self.of_pairs(parts)
        total, posterior = self.posterior(parts, curves)
        prior, slant = _log_prior(parts, variance)
        gradient = self._gradient(parts, curves, posterior)
        return -float(self.of.weight @ total) - prior, slant - np.concatenate([part.ravel() for part in gradient])

    def of_pairs(self, parts: Parameters) -> Curves:
        """The curves of the design's pairs."""
        return self.curves(parts, self.of.pair_group, parts.severity[self.of.pair_rater])

    def curves(self, parts: Parameters, group: Ints, severity: Floats) -> Curves:
        """Of pairs of a group and a severity."""
        slope, share = np.exp(parts.log_slope), self.share[group]
        gap = NODES[None, :] - severity[:, None]
        logits = (slope[group, None] * share)[:, :, None] * gap[:, None, :] + parts.steps[group][:, :, None]
        logits = np.where(self.used[group][:, :, None], logits, -np.inf)
        log_p = logits - logsumexp(logits, axis=1, keepdims=True)
        p = np.exp(log_p)
        mean, square = (np.einsum("plq,pl->pq", p, share**power) for power in (1, 2))
        return Curves(slope, self.share, log_p, mean, np.maximum(square - mean**2, 0.0))

    def posterior(self, parts: Parameters, curves: Curves) -> tuple[Floats, Floats]:
        """(log likelihood of each pattern, its posterior over the nodes)."""
        told = self.of.ratings @ curves.log_p[self.of.cell_pair, self.of.cell_level]
        log = told + log_prior(self.means(parts))
        total = logsumexp(log, axis=1)
        return total, np.exp(log - total[:, None])

    def means(self, parts: Parameters) -> Floats:
        """Mean ability of each pattern, 0 over all responses of a group: that is in the steps."""
        return self._centred(self.caseloads @ parts.caseload)

    def information(self, free: Floats) -> csr_array:
        """What each pattern tells of each rater's severity, were its ability known, (patterns, raters)."""
        of, parts = self.of, self.split(free)
        curves = self.of_pairs(parts)
        _, posterior = self.posterior(parts, curves)
        known = curves.slope[of.pair_group, None] ** 2 * curves.variance
        pattern, cell = of.ratings.nonzero()
        told = (posterior[pattern] * known[of.cell_pair[cell]]).sum(axis=1)
        rater = of.pair_rater[of.cell_pair[cell]]
        return csr_array((told, (pattern, rater)), shape=(len(of.weight), len(of.raters)))

    def _seen(self, curves: Curves, posterior: Floats) -> Floats:
        """Expected number of times that a pair gave a level at an ability, (pairs, levels, nodes)."""
        seen = np.zeros(curves.log_p.shape)
        seen[self.of.cell_pair, self.of.cell_level] = self.of.ratings.T @ (posterior * self.of.weight[:, None])
        return seen

    def _gradient(self, parts: Parameters, curves: Curves, posterior: Floats) -> Parameters:
        """Of the log likelihood: what was given less what is expected, at the abilities that the ratings let expect
        (Fisher's identity)."""
        of, seen = self.of, self._seen(curves, posterior)
        at_node = seen.sum(axis=1)
        excess = np.einsum("plq,pl->pq", seen, self.share[of.pair_group]) - at_node * curves.mean
        excess *= curves.slope[of.pair_group, None]
        gap = NODES[None, :] - parts.severity[of.pair_rater][:, None]
        steps = _sums(of.pair_group, (seen - at_node[:, None, :] * np.exp(curves.log_p)).sum(axis=2), len(of.groups))
        steps[:, 0] -= steps.sum(axis=1)
        prior = np.exp(log_prior(self.means(parts)))
        return Parameters(
            -_sums(of.pair_rater, excess.sum(axis=1), len(of.raters)),
            _sums(of.pair_group, (gap * excess).sum(axis=1), len(of.groups)),
            steps,
            self.caseloads.T @ (of.weight * self._centred((posterior - prior) @ NODES)),
        )

    def _unit(self, free: Floats, variance: float) -> Floats:
        """About the standard error of each parameter, were the others and all abilities known."""
        of, parts = self.of, self.split(free)
        curves = self.of_pairs(parts)
        at_node = self._seen(curves, self.posterior(parts, curves)[1]).sum(axis=1)
        told = at_node * curves.slope[of.pair_group, None] ** 2 * curves.variance
        gap = NODES[None, :] - parts.severity[of.pair_rater][:, None]
        p = np.exp(curves.log_p)
        steps = _sums(of.pair_group, (at_node[:, None, :] * p * (1 - p)).sum(axis=2), len(of.groups))
        known = (
            _sums(of.pair_rater, told.sum(axis=1), len(of.raters)) + 1 / variance,
            _sums(of.pair_group, (gap**2 * told).sum(axis=1), len(of.groups)) + 1,
            np.maximum(steps, 1e-3).ravel(),
            (self.caseloads**2).T @ of.weight + 1 / CASELOAD_SD**2,
        )
        return np.asarray(1 / np.sqrt(np.concatenate(known)))

    def _centred(self, values: Floats) -> Floats:
        of = self.of
        totals = np.bincount(of.group, of.weight * values, len(of.groups))
        return np.asarray(values - (totals / np.bincount(of.group, of.weight))[of.group])


def log_prior(means: Floats) -> Floats:
    """Log weights of the nodes for normal abilities of these means and SD 1, (patterns, nodes)."""
    log = -0.5 * (NODES - means[:, None]) ** 2
    return np.asarray(log - logsumexp(log, axis=1, keepdims=True))


def _log_prior(parts: Parameters, variance: float) -> tuple[float, Floats]:
    """(log density of the normal priors up to a constant, minus its gradient)."""
    mean = parts.log_slope.mean()
    off, common = (parts.log_slope - mean) / GROUP_SD, (mean - SLOPE) / SLOPE_SD
    slopes = off / GROUP_SD + common / SLOPE_SD / len(off)
    slant = [parts.severity / variance, slopes, np.zeros(parts.steps.size), parts.caseload / CASELOAD_SD**2]
    told = parts.severity @ slant[0] + off @ off + common**2 + parts.caseload @ slant[3]
    return -0.5 * float(told), np.concatenate(slant)


def _caseloads(of: Design, at_random: bool) -> csr_array:
    """Share of each pair in a pattern, (patterns, columns); responses that one person marked have columns of their own,
    for they may be others than those that several marked. No column where responses were given at random."""
    if at_random:
        return csr_array((len(of.weight), 0))
    pattern, cell = of.ratings.nonzero()
    column = of.cell_pair[cell] + np.where(of.size[pattern] == 1, len(of.pair_group), 0)
    return csr_array((1.0 / of.size[pattern], (pattern, column)), shape=(len(of.weight), 2 * len(of.pair_group)))


def _sums(at: Ints, values: Floats, size: int) -> Floats:
    """Sums of the rows of each code, (size, …)."""
    total = np.zeros((size, *values.shape[1:]))
    np.add.at(total, at, values)
    return total
