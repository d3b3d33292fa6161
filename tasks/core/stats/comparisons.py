"""Strengths of answers from comparisons of two: Bradley and Terry's model (1952) with an effect of order (Davidson and
Beaver 1977), as a logistic regression of differences.

The log odds that the answer shown first wins are its strength less the other's, plus what being shown first is worth. A
tie is half a win of each. Strengths have a normal prior, so that an answer that wins everything has a finite one, and
what nothing compares stands apart: its strengths are never held against one another.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, csr_array, hstack, vstack
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from rubricflow.tasks.core.stats.arrays import Floats, Ints

PRIOR_SD = 2.0
"""Of the strengths, in log odds: two answers that differ by it are told apart 88 times in 100."""
_LOOSE = 5.0
"""Times that, of the effect of order."""


class Strengths(NamedTuple):
    """What comparisons say of answers. The errors are those of the model: verdicts independent of one another, given
    the strengths."""

    strength: Floats
    """(n,), log odds, from the mean of those that it is compared with, directly or by way of others."""
    error: Floats
    """(n,), standard error of that."""
    connected: Ints
    """(n,), number of the set of answers that chains of comparisons join."""
    order: float
    """Log odds that the answer shown first wins against one as strong."""
    order_error: float


def strengths(first: ArrayLike, second: ArrayLike, won: ArrayLike, count: int) -> Strengths:
    """The strengths of `count` answers by (n,) comparisons: numbers of the answers shown first and second, and how far
    the first one won: 1, 0, or 0.5 for a tie. ValueError for an answer against itself, or another outcome."""
    one, other, outcome = np.asarray(first, int), np.asarray(second, int), np.asarray(won, float)
    if np.any(one == other) or np.any((outcome < 0) | (outcome > 1)):
        raise ValueError("a comparison is of two answers, and its outcome from 0 to 1")
    rows, ones = np.arange(len(one)), np.ones(len(one))
    graph = coo_array((ones, (one, other)), (count, count))
    connected = np.asarray(connected_components(graph, directed=False)[1], int)
    if not len(one):
        return Strengths(np.zeros(count), np.zeros(count), connected, 0.0, _LOOSE * PRIOR_SD)
    difference = csr_array(
        (np.concatenate([ones, -ones]), (np.tile(rows, 2), np.concatenate([one, other]))), (len(one), count)
    )
    told = hstack([difference, csr_array(np.full((len(one), 1), _LOOSE))], format="csr")
    from sklearn.linear_model import LogisticRegression  # a second, which commands that judge nothing do not have

    model = LogisticRegression(C=PRIOR_SD**2, fit_intercept=False, tol=1e-8, max_iter=2_000)
    model.fit(vstack([told, told]), np.repeat([1, 0], len(one)), np.concatenate([outcome, 1 - outcome]))
    fitted = model.coef_[0]
    chance = expit(told @ fitted)
    information = (told.T @ (told.multiply((chance * (1 - chance))[:, None]))).tocsr()
    # The inverse of an arrow: a block for each set of answers, all joined by the effect of order alone. What counts is
    # the difference from the set's mean: the mean itself is the prior's.
    left, strength, variance, pulled = information[-1, -1] + PRIOR_SD**-2, *np.zeros((3, count))
    by_set, of_order = np.argsort(connected, kind="stable"), information[:-1, [-1]].toarray()[:, 0]
    inner = information[by_set][:, by_set].tocsr()
    ends = np.cumsum(np.bincount(connected))
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        members = by_set[start:end]
        precision = inner[start:end, start:end].toarray() + np.eye(end - start) * PRIOR_SD**-2
        block, joint = np.linalg.inv(precision), of_order[members]
        left -= joint @ block @ joint
        pulled[members], means = block @ joint, block.mean(axis=1)
        pulled[members] -= pulled[members].mean()
        strength[members] = fitted[members] - fitted[members].mean()
        variance[members] = np.diag(block) - 2 * means + means.mean()
    error = np.sqrt(variance + pulled**2 / left)
    return Strengths(strength, error, connected, float(_LOOSE * fitted[-1]), float(_LOOSE / np.sqrt(left)))


def win_shares(strength: Floats) -> Floats:
    """(n,) The share of the others that each of n answers is expected to beat, in whatever order they are shown; 0.5
    for one alone."""
    count = len(strength)
    if count < 2:
        return np.full(count, 0.5)
    beaten = np.array([expit(one - strength).sum() for one in strength])  # all pairs at once may not be held
    return np.asarray((beaten - 0.5) / (count - 1))
