"""How well a judge's margins between two answers agree with people's preferences, and the best use of several margins.

A margin is how far a judge holds answer a above answer b: a difference of strengths or of scores. Several samples
(other prompts, other draws) give several margins for a pair. What is made of them, the best one alone, their mean or
weights of their own, is chosen inside folds of whole items, so that no pair is judged by a rule that has seen its
item.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import expit

from rubricflow.tasks.core.stats.arrays import Floats, Ints

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


def folds_of(items: Sequence[str], folds: int, seed: int) -> Ints:
    """(n,) The fold of each row: whole items, as even as can be, by a digest of their ids."""
    names = sorted(set(items), key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    place = {name: number % folds for number, name in enumerate(names)}
    return np.array([place[name] for name in items], int)


def cross_fitted(margins: Floats, preferred: Floats, items: Sequence[str], seed: int = 0) -> tuple[Floats, list[str]]:
    """(n,) log odds that a is preferred, by rules chosen and fitted without the row's item, the mean over several draws
    of the folds; and the rules' names, fold by fold.

    margins: (n, samples), 0 where there is none; preferred: 1 or -1. ValueError for fewer than two items a fold.
    """
    if len(set(items)) < 2 * FOLDS:
        raise ValueError(f"a rule is chosen by {2 * FOLDS} items at least, not {len(set(items))}")
    odds, names = np.zeros(len(preferred)), []
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
    fold, losses = folds_of(items, INNER, seed + REPEATS), 0.0
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
    signed, weights = columns * preferred[:, None], np.zeros(columns.shape[1])
    for _ in range(_STEPS):
        missed = expit(-(signed @ weights))
        slope = signed.T @ missed - weights / variance
        curved = (signed * (missed * (1 - missed))[:, None]).T @ signed + np.eye(len(weights)) / variance
        step = np.linalg.solve(curved, slope)
        weights = weights + step * min(1.0, 2.0 / float(np.abs(signed @ step).max(initial=1e-300)))
        if np.abs(step).max() < 1e-8:
            break
    return lambda new: np.asarray(columns_of(new) @ weights)
