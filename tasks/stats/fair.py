"""Fair scores: what an average rater would have given each response, by the many-facet model."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import softmax

from tasks.stats.arrays import Floats, Ints
from tasks.stats.facet_likelihood import NODES
from tasks.stats.facets import Facets


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
    """The fair average (Linacre 1989) of every response: the mean of its ratings, less what its raters are expected to
    give above an average rater, over the posterior of its ability.

    Raters of equal severity leave the mean as it is. Nothing is shrunk to what other responses have, so that what is
    fitted to fair scores keeps its slope. The standard error is the root of the expected squared distance from what an
    average rater gives on average, over the posterior and the error of the severities; it is above 0 where all gave the
    same, too.
    """
    design, posterior = fitted.design, softmax(fitted.log_posterior, axis=1)
    pattern, cell = design.ratings.nonzero()
    pair, weight = design.cell_pair[cell], 1 / design.size[pattern]
    average = (posterior * fitted.fair.mean[design.group]).sum(axis=1)
    above = (posterior[pattern] * fitted.curves.mean[pair]).sum(axis=1) - average[pattern]
    observed = fitted.curves.share[design.group[pattern], design.cell_level[cell]]
    share = np.clip(np.bincount(pattern, weight * (observed - above)), 0, 1)
    off = (posterior * (share[:, None] - fitted.fair.mean[design.group]) ** 2).sum(axis=1)
    steep = fitted.curves.slope[design.group[pattern]] * (posterior[pattern] * fitted.curves.variance[pair]).sum(axis=1)
    shape = len(design.weight), len(design.raters)
    by_rater = csr_array((weight * steep, (pattern, design.pair_rater[pair])), shape=shape)
    rater_error = np.asarray(by_rater.multiply(by_rater @ fitted.covariance).sum(axis=1))
    low = np.array([values.min() for values in design.values])[design.group]
    span = np.array([np.ptp(values) for values in design.values])[design.group]
    ability = posterior @ NODES
    spread = np.sqrt(np.maximum(posterior @ NODES**2 - ability**2, 0.0))
    columns = share * span + low, np.sqrt(off + rater_error) * span, ability, spread
    score, se, ability, spread = (column[design.pattern] for column in columns)
    return FairScores(score, se, ability, spread, design.size[design.pattern])
