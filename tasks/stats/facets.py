"""A many-facet model of people's scores: how severe each rater is, and what an average rater would have given.

log(P_k / P_k-1) = a_g (u_k - u_k-1) (ability - severity) + step_gk: the partial-credit form of the many-facet Rasch
model (Linacre 1989; Masters 1982), where a response is marked by any of the raters. Ability has standard deviation 1
in each group of responses, so severities are in standard deviations of the responses' ability, and a_g is what the
Rasch model calls the spread of abilities; u is the score as a share of the group's range, whose unused values have no
step. As each response answers one item, how hard an item is cannot be told from how able its responses are: both are
in the mean ability and the steps.

Fitted by marginal maximum likelihood (Bock and Aitkin 1981) over a grid of abilities. Unless responses were given to
raters at random, mean ability depends on who marked (a column for each rater, Mundlak 1978), so that only responses
that several marked tell who is severe. Severities have a normal prior whose spread is estimated with them, so that
those of few ratings stay near the average rater, who is 0.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.special import logsumexp

from tasks.stats.arrays import Floats, Ints
from tasks.stats.facet_design import Design

NODES: Final[Floats] = np.linspace(-6, 6, 81)
SLOPE, SLOPE_SD = np.log(8.0), 1.0
"""Prior of log a, which holds most of 1 to 60."""
CASELOAD_SD = 1.0
"""Prior of what the answers that a rater marked differ in mean ability."""
PRIOR_RATERS, PRIOR_SD = 1.0, 0.5
"""The prior of the spread of severities: as much as one further rater tells who is half a standard deviation off."""
ROUNDS, SETTLED = 30, 0.01
"""Times that the spread of severities is estimated anew, and the share by which it then still moves."""
PRECISE = {"maxiter": 2000, "maxfun": 4000, "gtol": 1e-6, "ftol": 1e-12}


class Curves(NamedTuple):
    """What each pair of group and rater gives at each ability of the grid.

    slope: (groups,) a; share: (groups, levels) u, 0 .. 1; log_p: (pairs, levels, nodes), -inf where there is no such
    level; mean, square: (pairs, nodes) expected u and u squared.
    """

    slope: Floats
    share: Floats
    log_p: Floats
    mean: Floats
    square: Floats


class Facets(NamedTuple):
    """The fitted model.

    severity: (raters,) positive where strict, mean 0; covariance: (raters, raters) of its error; spread: SD of the
    severities in the population of raters, all in standard deviations of the ability of responses that the same people
    marked. steps: (groups, levels), -inf where there is no level; caseload: mean ability (patterns,); curves: of the
    pairs of the design; fair: those of an average rater, one for each group.
    """

    of: Design
    severity: Floats
    covariance: Floats
    spread: float
    steps: Floats
    caseload: Floats
    curves: Curves
    fair: Curves

    @property
    def se(self) -> Floats:
        """(raters,) standard errors of the severities."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def log_posterior(self) -> Floats:
        """Log weights of the nodes for each pattern's ability, up to a constant, (patterns, nodes)."""
        told = self.of.ratings @ self.curves.log_p[self.of.cell_pair, self.of.cell_level]
        return np.asarray(told + log_prior(self.caseload))


class _Parameters(NamedTuple):
    severity: Floats
    log_slope: Floats
    steps: Floats
    caseload: Floats


def fit(of: Design, at_random: bool = False) -> Facets:
    """The model of coded ratings. at_random: responses were given to raters by chance, so that raters also compare
    where they share none; without it they have to be linked, see `linked`."""
    model = _Model(of, at_random)
    free, variance = model.start(), PRIOR_SD**2
    for _ in range(ROUNDS):
        free = model.fitted(free, variance)
        covariance = model.covariance(free, variance)
        before, variance = variance, _variance(model.split(free).severity, covariance)
        if abs(variance - before) <= SETTLED * before:
            break
    parts = model.split(free)
    means = np.zeros(len(of.groups))
    return Facets(
        of,
        parts.severity,
        covariance,
        float(np.sqrt(variance)),
        np.where(model.used, parts.steps, -np.inf),
        model.caseloads @ parts.caseload,
        model.curves(parts, of.pair_group, parts.severity[of.pair_rater]),
        model.curves(parts, np.arange(len(of.groups)), means),
    )


def log_prior(means: Floats) -> Floats:
    """Log weights of the nodes for normal abilities of these means and SD 1, (patterns, nodes)."""
    log = -0.5 * (NODES - means[:, None]) ** 2
    return np.asarray(log - logsumexp(log, axis=1, keepdims=True))


def _variance(severity: Floats, covariance: Floats) -> float:
    """The spread of severities by the expectation of their squares (one step of EM)."""
    told = float((severity**2).sum() + np.trace(covariance))
    return (told + PRIOR_RATERS * PRIOR_SD**2) / (len(severity) - 1 + PRIOR_RATERS)


class _Model:
    """The likelihood of coded ratings and its gradient."""

    def __init__(self, of: Design, at_random: bool) -> None:
        self.of, self.at_random = of, at_random
        self.levels = np.array([len(values) for values in of.values])
        width = int(self.levels.max())
        self.used = np.arange(width) < self.levels[:, None]
        self.share = np.zeros((len(of.groups), width))
        for at, values in enumerate(of.values):
            self.share[at, : len(values)] = (values - values[0]) / max(float(np.ptp(values)), 1e-12)
        self.caseloads = _caseloads(of, at_random)
        self.sizes = (len(of.raters), len(of.groups), self.used.size, self.caseloads.shape[1])

    def start(self) -> Floats:
        """Nobody is severe, and the steps give the values as often as they occur."""
        counts = np.zeros(self.used.shape)
        cells = self.of.ratings.T @ self.of.weight
        np.add.at(counts, (self.of.pair_group[self.of.cell_pair], self.of.cell_level), cells)
        steps = np.where(self.used, np.log(np.maximum(counts, 1.0)), 0.0)
        steps += np.where(self.used, -SLOPE * self.share * (1 - self.share), 0.0)
        raters, groups, _, caseloads = self.sizes
        return np.concatenate([np.zeros(raters), np.full(groups, SLOPE), steps.ravel(), np.zeros(caseloads)])

    def split(self, free: Floats) -> _Parameters:
        """The vector as its parts; steps relative to the lowest value's."""
        severity, slope, steps, caseload = np.split(free, np.cumsum(self.sizes)[:-1])
        table = steps.reshape(self.used.shape)
        return _Parameters(severity, slope, table - table[:, :1], caseload)

    def curves(self, parts: _Parameters, group: Ints, severity: Floats) -> Curves:
        """Of pairs of a group and a severity."""
        slope = np.exp(parts.log_slope)
        gap = NODES[None, :] - severity[:, None]
        logits = (slope[:, None] * self.share)[group][:, :, None] * gap[:, None, :] + parts.steps[group][:, :, None]
        logits = np.where(self.used[group][:, :, None], logits, -np.inf)
        log_p = logits - logsumexp(logits, axis=1, keepdims=True)
        p, share = np.exp(log_p), self.share[group]
        mean, square = (np.einsum("plq,pl->pq", p, share**power) for power in (1, 2))
        return Curves(slope, self.share, log_p, mean, square)

    def posterior(self, parts: _Parameters, curves: Curves) -> tuple[Floats, Floats]:
        """(log likelihood of each pattern, its posterior over the nodes)."""
        means = self.caseloads @ parts.caseload
        log = self.of.ratings @ curves.log_p[self.of.cell_pair, self.of.cell_level] + log_prior(means)
        total = logsumexp(log, axis=1)
        return total, np.exp(log - total[:, None])

    def fitted(self, free: Floats, variance: float) -> Floats:
        """The parameters of the highest likelihood, with the priors."""
        found = minimize(
            self._loss,
            free,
            (variance,),
            "L-BFGS-B",
            jac=True,
            options={"maxiter": 2000, "maxfun": 4000, "gtol": 1e-6, "ftol": 1e-12},
        )
        return np.asarray(found.x, dtype=np.float64)

    def covariance(self, free: Floats, variance: float) -> Floats:
        """Of the severities about the average rater, (raters, raters): the information in the differences within
        responses and, where they were given at random, between them."""
        of, parts = self.of, self.split(free)
        curves = self.curves(parts, of.pair_group, parts.severity[of.pair_rater])
        _, posterior = self.posterior(parts, curves)
        known = (curves.slope[of.pair_group, None] ** 2) * (curves.square - curves.mean**2)
        pattern, cell = of.ratings.nonzero()
        told = (posterior[pattern] * known[of.cell_pair[cell]]).sum(axis=1)
        rater = of.pair_rater[of.cell_pair[cell]]
        table = csr_array((told, (pattern, rater)), shape=(len(of.weight), len(of.raters)))
        total = np.maximum(table.sum(axis=1) + (1.0 if self.at_random else 0.0), 1e-12)
        own = np.diag(table.T @ of.weight)
        within = own - (table.T @ csr_array(np.diag(of.weight / total)) @ table).toarray()
        centred = np.eye(len(of.raters)) - 1 / len(of.raters)
        return np.asarray(centred @ np.linalg.inv(within + np.eye(len(of.raters)) / variance) @ centred)

    def _loss(self, free: Floats, variance: float) -> tuple[float, Floats]:
        """Negative log likelihood with the priors, and its gradient."""
        of, parts = self.of, self.split(free)
        curves = self.curves(parts, of.pair_group, parts.severity[of.pair_rater])
        total, posterior = self.posterior(parts, curves)
        prior, slant = _log_prior(parts, variance)
        gradient = self._gradient(parts, curves, posterior)
        return -float(of.weight @ total) - prior, slant - np.concatenate([part.ravel() for part in gradient])

    def _gradient(self, parts: _Parameters, curves: Curves, posterior: Floats) -> _Parameters:
        """Of the log likelihood: what was given less what is expected, at the abilities that the ratings let expect
        (Fisher's identity)."""
        of = self.of
        seen = np.zeros(curves.log_p.shape)
        seen[of.cell_pair, of.cell_level] = of.ratings.T @ (posterior * of.weight[:, None])
        at_node = seen.sum(axis=1)
        excess = np.einsum("plq,pl->pq", seen, self.share[of.pair_group]) - at_node * curves.mean
        excess *= curves.slope[of.pair_group, None]
        gap = NODES[None, :] - parts.severity[of.pair_rater][:, None]
        steps = np.zeros(self.used.shape)
        np.add.at(steps, of.pair_group, (seen - at_node[:, None, :] * np.exp(curves.log_p)).sum(axis=2))
        steps[:, 0] -= steps.sum(axis=1)
        prior = np.exp(log_prior(self.caseloads @ parts.caseload))
        severity, slope = np.zeros(len(of.raters)), np.zeros(len(of.groups))
        np.subtract.at(severity, of.pair_rater, excess.sum(axis=1))
        np.add.at(slope, of.pair_group, (gap * excess).sum(axis=1))
        return _Parameters(
            severity,
            slope,
            steps,
            self.caseloads.T @ (of.weight * ((posterior - prior) @ NODES)),
        )


def _log_prior(parts: _Parameters, variance: float) -> tuple[float, Floats]:
    """(log density of the normal priors up to a constant, minus its gradient)."""
    off = parts.log_slope - SLOPE
    steps = np.zeros(parts.steps.size)
    slant = [parts.severity / variance, off / SLOPE_SD**2, steps, parts.caseload / CASELOAD_SD**2]
    told = (parts.severity @ slant[0], off @ slant[1], parts.caseload @ slant[3])
    return -0.5 * float(sum(told)), np.concatenate(slant)


def _caseloads(of: Design, at_random: bool) -> csr_array:
    """Share of each pair in a pattern, (patterns, columns); responses that one person marked have columns of their own,
    for they may be others than those that several marked."""
    size = 2 * len(of.pair_group)
    if at_random:
        return csr_array((len(of.weight), 0))
    pattern, cell = of.ratings.nonzero()
    column = of.cell_pair[cell] + np.where(of.size[pattern] == 1, len(of.pair_group), 0)
    return csr_array((1.0 / of.size[pattern], (pattern, column)), shape=(len(of.weight), size))
