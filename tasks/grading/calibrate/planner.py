"""Which responses people should mark next: some chosen because they teach the mapping most, the others by chance.

A label that was chosen may teach a mapping, but does not stand for the responses that were not chosen: agreement,
intervals and the promise rest on the others alone. So a proposal holds both kinds, and says which is which.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy.stats import zscore

from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.grading.calibrate.curve import DIGITS

Sampled = Literal["chosen", "drawn"]
ITEM_PRECISION = 4.0
"""What is known of an item's offset before any label, in labels: its standard deviation is half that of residuals."""


class RidgeDesign(NamedTuple):
    """What a ridge is fitted on, (n, p), and the strength of its penalty on each column, (p,)."""

    terms: Floats
    penalty: Floats


class LabelProposal(NamedTuple):
    """One response to mark.

    row: its place in the design; sampled: how it came to be asked about; gain: share of the mapping's mean variance
    over all responses that can be asked about that its label removes, 0 .. 1.
    """

    row: int
    sampled: Sampled
    gain: float


def design(matrix: Floats, item: Ints) -> RidgeDesign:
    """An intercept, the features in standard deviations and, for several items, a column for each.

    matrix: (n, d) finite features; item: (n,) number of each row's item. The penalties take the features together to
    explain as much as they leave, an item's offset a quarter of that, and the mean to be worth one label.
    """
    rounded = np.round(matrix, DIGITS)
    varies = np.ptp(rounded, axis=0) > 0 if len(rounded) else np.zeros(rounded.shape[1], dtype=np.bool_)
    features = zscore(rounded[:, varies], axis=0)
    offsets = np.equal.outer(item, np.unique(item)).astype(np.float64)
    offsets = offsets if offsets.shape[1] > 1 else offsets[:, :0]
    columns = features.shape[1]
    strength = [1.0] + [float(columns)] * columns + [ITEM_PRECISION] * offsets.shape[1]
    return RidgeDesign(np.column_stack([np.ones(len(matrix)), features, offsets]), np.array(strength))


def proposals(
    ridge: RidgeDesign, taught: Bools, askable: Bools, choosable: Bools, order: Ints, count: int
) -> list[LabelProposal]:
    """The responses to mark next, first to mark first; a longer proposal begins with a shorter one.

    taught: (n,) whether the mapping has the row's label; askable: (n,) whether people can be asked about it; choosable:
    (n,) those of them that may be chosen; order: all rows in an order by chance, in which they are drawn. A chosen row
    is the one whose label lowers the ridge's mean variance over the askable rows most, which no human score has a part
    in (Cohn, Ghahramani and Jordan 1996). With v that mean variance in units of the residual's, v / (1 + v) of a
    prediction's squared error comes from the mapping, and so many of the proposals are chosen: many at first, fewer as
    labels come in.
    """
    if not askable.any():
        return []
    variance = _Variance(ridge, taught, askable)
    unproposed = askable.copy()
    drawn = iter(order[askable[order]].tolist())
    proposed: list[LabelProposal] = []
    owed = 0.0
    for _ in range(min(count, int(askable.sum()))):
        before = variance.mean
        owed += before / (1 + before)
        sampled: Sampled = "chosen" if owed >= 0.5 and (unproposed & choosable).any() else "drawn"
        if sampled == "chosen":
            owed -= 1
            row = int(np.argmax(np.where(unproposed & choosable, variance.gains(), -np.inf)))
        else:
            row = next(row for row in drawn if unproposed[row])
        unproposed[row] = False
        variance.add(row)
        proposed.append(LabelProposal(row, sampled, max(0.0, 1 - variance.mean / before)))
    return proposed


def by_chance(response_ids: Sequence[str], seed: int) -> Ints:
    """An order of responses by chance that is always the same, by the SHA-256 of seed and id, and goes its own way
    beside that of the split."""
    number = [hashlib.sha256(f"next:{seed}:{name}".encode()).digest() for name in response_ids]
    return np.array(sorted(range(len(number)), key=number.__getitem__), dtype=np.int64)


class _Variance:
    """The variance of a ridge's predictions, in units of the residual's, as rows are labelled one after the other."""

    def __init__(self, ridge: RidgeDesign, taught: Bools, askable: Bools) -> None:
        self._terms = ridge.terms
        labelled = ridge.terms[taught]
        self._leverage = ridge.terms @ np.linalg.inv(labelled.T @ labelled + np.diag(ridge.penalty))  # (n, p): X C
        askable_terms = ridge.terms[askable]
        self._wanted = (
            askable_terms.T @ askable_terms / len(askable_terms)
        )  # (p, p): the mean of x x' over what can be asked about
        self._own = (self._leverage * ridge.terms).sum(axis=1)  # (n,): x' C x
        self._askable = askable

    @property
    def mean(self) -> float:
        """Mean over the askable rows."""
        return float(self._own[self._askable].mean())

    def gains(self) -> Floats:
        """By how much each row's label would lower the mean, (n,)."""
        gain = ((self._leverage @ self._wanted) * self._leverage).sum(axis=1) / (1 + self._own)
        return np.asarray(gain, dtype=np.float64)

    def add(self, row: int) -> None:
        """A row is labelled (Sherman and Morrison 1950)."""
        shared = self._leverage @ self._terms[row]
        self._leverage = self._leverage - np.outer(shared, self._leverage[row] / (1 + self._own[row]))
        self._own = self._own - shared**2 / (1 + self._own[row])
