"""Answers compared two at a time: their strengths, and how well a judge's margins agree with people's preferences.

Strengths are by Bradley and Terry's model (1952) with an effect of order (Davidson and Beaver 1977), as a logistic
regression of differences. The log odds that the answer shown first wins are its strength less the other's, plus what
being shown first is worth. A tie is half a win of each. Strengths have a normal prior, so that an answer that wins
everything has a finite one, and what nothing compares stands apart: its strengths are never held against one another.

A margin is how far a judge holds answer a above answer b: a difference of strengths or of scores. Several samples
(other prompts, other draws) give several margins for a pair. What is made of them, the best one alone, their mean or
weights of their own, is chosen inside folds of whole items, so that no pair is judged by a rule that has seen its
item."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import coo_array, csr_array, hstack, vstack
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.bootstrap import folds_of

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


def strengths(first: ArrayLike, second: ArrayLike, won: ArrayLike, count: int) -> Strengths:
    """The strengths of `count` answers by (n,) comparisons: numbers of the answers shown first and second, and how far
    the first one won: 1, 0, or 0.5 for a tie. ValueError for an answer against itself, or another outcome."""
    one = np.asarray(first, int)
    other = np.asarray(second, int)
    outcome = np.asarray(won, float)
    if np.any(one == other) or np.any((outcome < 0) | (outcome > 1)):
        raise ValueError("a comparison is of two answers, and its outcome from 0 to 1")
    rows = np.arange(len(one))
    ones = np.ones(len(one))
    graph = coo_array((ones, (one, other)), (count, count))
    connected = np.asarray(connected_components(graph, directed=False)[1], int)
    if not len(one):
        return Strengths(np.zeros(count), np.zeros(count), connected, 0.0)
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
    by_set = np.argsort(connected, kind="stable")
    of_order = information[:-1, [-1]].toarray()[:, 0]
    inner = information[by_set][:, by_set].tocsr()
    ends = np.cumsum(np.bincount(connected))
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        members = by_set[start:end]
        precision = inner[start:end, start:end].toarray() + np.eye(end - start) * PRIOR_SD**-2
        block = np.linalg.inv(precision)
        joint = of_order[members]
        left -= joint @ block @ joint
        pulled[members], means = block @ joint, block.mean(axis=1)
        pulled[members] -= pulled[members].mean()
        strength[members] = fitted[members] - fitted[members].mean()
        variance[members] = np.diag(block) - 2 * means + means.mean()
    error = np.sqrt(variance + pulled**2 / left)
    return Strengths(strength, error, connected, float(_LOOSE * fitted[-1]))


def win_shares(strength: Floats) -> Floats:
    """(n,) The share of the others that each of n answers is expected to beat, in whatever order they are shown; 0.5
    for one alone."""
    count = len(strength)
    if count < 2:
        return np.full(count, 0.5)
    beaten = np.array([expit(one - strength).sum() for one in strength])  # all pairs at once may not be held
    return np.asarray((beaten - 0.5) / (count - 1))


FOLDS, REPEATS, INNER = 10, 3, 5
"""Folds in which a rule is tested, how often these are drawn, and those inside in which it is chosen."""
_VARIANCES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""That weights may have around their mean, of margins of unit size."""
_FREE = 10.0
"""By how much the mean's weight is freer than that."""
_STEPS = 60
Rule = Callable[[Floats], Floats]
"""Margins (n, samples) → log odds (n,) that a is preferred."""


def right(margin: Floats, preferred: Floats) -> Floats:
    """(n,) 1 where a margin has the sign of the preference (1 for a, -1 for b), 0 where it has the other, and a half
    where it has none: who must say something then tosses a coin."""
    return np.where(margin == 0, 0.5, (np.sign(margin) == preferred).astype(float))


def cross_fitted(margins: Floats, preferred: Floats, items: Sequence[str], seed: int = 0) -> tuple[Floats, list[str]]:
    """(n,) log odds that a is preferred, by rules chosen and fitted without the row's item, the mean over several draws
    of the folds; and the rules' names, fold by fold.

    margins: (n, samples), 0 where there is none; preferred: 1 or -1. ValueError for fewer than two items a fold.
    """
    if len(set(items)) < 2 * FOLDS:
        raise ValueError(f"a rule is chosen by {2 * FOLDS} items at least, not {len(set(items))}")
    odds = np.zeros(len(preferred))
    names = []
    for draw in range(REPEATS):
        fold = folds_of(items, FOLDS, seed + draw)
        for number in range(FOLDS):
            seen = fold != number
            rule, name = chosen(
                margins[seen], preferred[seen], [items[at] for at in np.flatnonzero(seen).tolist()], seed
            )
            odds[~seen] += rule(margins[~seen]) / REPEATS
            names.append(name)
    return odds, names


def chosen(margins: Floats, preferred: Floats, items: Sequence[str], seed: int = 0) -> tuple[Rule, str]:
    """The rule with the least log loss in folds of these items, and its name: 'best', 'mean' or 'learned'."""
    fold = folds_of(items, INNER, seed + REPEATS)
    losses = 0.0
    for number in range(INNER):
        seen = fold != number
        odds = np.array([rule(margins[~seen]) for rule, _ in _rules(margins[seen], preferred[seen])])
        losses = losses + np.logaddexp(0, -preferred[~seen] * odds).sum(axis=1)
    return _rules(margins, preferred)[int(np.argmin(losses))]


def _rules(margins: Floats, preferred: Floats) -> list[tuple[Rule, str]]:
    """All rules, fitted: the sample that is right most often, the mean, and a weight for each sample, drawn to the mean
    of all as strongly as each of the variances says."""
    size = np.sqrt((margins**2).mean(axis=0))
    size[size == 0] = 1.0
    told = margins / size
    best = int(np.argmax([right(column, preferred).mean() for column in told.T]))
    rules = [(_fitted(told[:, [best]], preferred, 100.0, lambda new: new[:, [best]] / size[best]), "best")]
    rules += [(_fitted(_with_mean(told)[:, :1], preferred, 1.0, lambda new: _with_mean(new / size)[:, :1]), "mean")]
    for variance in _VARIANCES:
        rules.append((_fitted(_with_mean(told), preferred, variance, lambda new: _with_mean(new / size)), "learned"))
    return rules


def _with_mean(told: Floats) -> Floats:
    return np.column_stack([_FREE * told.mean(axis=1), told])


def _fitted(columns: Floats, preferred: Floats, variance: float, columns_of: Rule) -> Rule:
    """A logistic regression without intercept, so that to exchange a and b exchanges the verdict, of weights with a
    normal prior around 0: by Newton's steps. Rules are fitted 1,500 times; scikit-learn takes a minute for that."""
    signed = columns * preferred[:, None]
    weights = np.zeros(columns.shape[1])
    for _ in range(_STEPS):
        missed = expit(-(signed @ weights))
        slope = signed.T @ missed - weights / variance
        curved = (signed * (missed * (1 - missed))[:, None]).T @ signed + np.eye(len(weights)) / variance
        step = np.linalg.solve(curved, slope)
        weights = weights + step * min(1.0, 2.0 / float(np.abs(signed @ step).max(initial=1e-300)))
        if np.abs(step).max() < 1e-8:
            break
    return lambda new: np.asarray(columns_of(new) @ weights)
