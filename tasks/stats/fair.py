"""Fair scores: what an average rater would have given each response, by the many-facet model."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from scipy.special import softmax

from tasks.stats.arrays import Floats, Ints
from tasks.stats.facet_likelihood import NODES
from tasks.stats.facets import Facets

REACH: Final = 60.0
HALVINGS: Final = 60


class FairScores(NamedTuple):
    """One entry for each response of the design, in its order.

    score: score units, between the lowest and the highest that anyone gave in the group; se: its standard error, score
    units; ability, ability_se: posterior mean and SD, in standard deviations of ability; ratings: behind each.
    """

    score: Floats
    se: Floats
    ability: Floats
    ability_se: Floats
    ratings: Ints


def fair_scores(fitted: Facets) -> FairScores:
    """The fair average (Linacre 1989) of every response: the expected score of an average rater at the ability at which
    its raters together would be expected to give what they gave.

    Raters of equal severity leave a response the mean of its ratings; nobody is shrunk to the mean of the others, so
    that what is fitted to fair scores keeps its slope. Where all gave the lowest or the highest value, so would the
    average rater. The standard error is the root of the expected squared distance of the fair score from the average
    rater's expected one, over the posterior of ability and the error of the severities; it is finite there too.
    """
    of, fair = fitted.of, fitted.fair
    share, told = _at_ability(fitted)
    posterior = softmax(fitted.log_posterior, axis=1)
    ability = posterior @ NODES
    off = (posterior * (share[:, None] - fair.mean[of.group]) ** 2).sum(axis=1)
    low = np.array([values[0] for values in of.values])[of.group]
    span = np.array([np.ptp(values) for values in of.values])[of.group]
    score = np.where(np.isclose(share, 0) | np.isclose(share, 1), np.round(share), share) * span + low
    spread = np.sqrt(np.maximum(posterior @ NODES**2 - ability**2, 0.0))
    at = of.pattern
    return FairScores(score[at], (np.sqrt(off + told) * span)[at], ability[at], spread[at], of.size[at])


def _at_ability(fitted: Facets) -> tuple[Floats, Floats]:
    """Of each pattern: the average rater's expected share of the range; what the error of the severities adds to its
    squared error."""
    of = fitted.of
    pattern, cell = of.ratings.nonzero()
    group, rater = of.group[pattern], of.pair_rater[of.cell_pair[cell]]
    given = fitted.fair.share[group, of.cell_level[cell]]
    wanted = np.bincount(pattern, given)
    low, high = np.full(len(of.weight), -REACH), np.full(len(of.weight), REACH)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        mean, _ = _expected(fitted, group, middle[pattern] - fitted.severity[rater])
        below = np.bincount(pattern, mean) < wanted
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    ability = (low + high) / 2
    _, spread = _expected(fitted, group, ability[pattern] - fitted.severity[rater])
    fair, own = _expected(fitted, of.group, ability)
    weights = np.zeros((len(of.weight), len(of.raters)))
    weights[pattern, rater] = spread / np.maximum(np.bincount(pattern, spread), 1e-12)[pattern]
    error = np.einsum("pr,rs,ps->p", weights, fitted.covariance, weights)
    slope = fitted.curves.slope[of.group]
    ends = (wanted == 0) | (wanted == of.size)
    fair = np.where(ends, wanted / of.size, fair)
    return fair, np.where(ends, 0.0, (slope * own) ** 2 * error)


def _expected(fitted: Facets, group: Ints, gap: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of the share given, at ability less severity."""
    share = fitted.fair.share[group]
    p = softmax(fitted.curves.slope[group, None] * share * gap[:, None] + fitted.steps[group], axis=1)
    mean = (p * share).sum(axis=1)
    return mean, (p * share**2).sum(axis=1) - mean**2
