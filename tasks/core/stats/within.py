"""Agreement inside items: what is left of it where the items' means count for nothing."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rubricflow.tasks.core.stats.agreement import Stat, checked_pair
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.bootstrap import Interval, cluster_codes, draw_totals, interval, sums_by_code

TIE = 1e-12
"""Sums of squares below which scores are the same; they are shares of a scale."""


def within_items(
    human: npt.ArrayLike,
    machine: npt.ArrayLike,
    items: npt.ArrayLike,
    clusters: npt.ArrayLike,
    draws: int = 2000,
    seed: int = 0,
) -> tuple[Stat, Interval | None]:
    """Correlation of two scores' deviations from their means in each item, -1 .. 1, and its 95% interval.

    human, machine: (n,) finite, as shares of each item's scale; items: (n,) ids; clusters: (n,) what is resampled.
    Scores that know an item's mean and nothing more of a response have 0 or, where they were cross-fitted, less.
    Undefined where either is the same for all responses of every item; no interval then, nor without draws.
    """
    human, machine = checked_pair(human, machine)
    codes = np.unique(np.asarray(items), return_inverse=True)[1]
    size = np.bincount(codes)
    apart = [scores - (np.bincount(codes, weights=scores) / size)[codes] for scores in (human, machine)]
    terms = np.stack([apart[0] * apart[1], apart[0] ** 2, apart[1] ** 2], axis=1)
    value = float(_correlation(terms.sum(axis=0, keepdims=True))[0])
    if np.isnan(value):
        return Stat(None, "undefined: no item in which both scores differ from response to response"), None
    if not draws:
        return Stat(value), None
    cluster, count = cluster_codes(clusters)
    (totals,) = draw_totals([sums_by_code(terms, cluster, count)], draws, seed)
    drawn = value + _widening(codes, terms) * (_correlation(totals) - value)
    return Stat(value), interval(np.clip(drawn, -1.0, 1.0), count)


def _widening(codes: Ints, terms: Floats) -> float:
    """By what draws vary less than samples do, since deviations of one item add up to 0: the product of two independent
    scores' deviations, added up over an item's n responses, has the variance of both sums of squares over n − 1, and in
    draws of rows over n."""
    size = np.bincount(codes)
    squares = np.bincount(codes, weights=terms[:, 1]) * np.bincount(codes, weights=terms[:, 2])
    sampled, drawn = (float(np.sum(squares[size > 1] / (size[size > 1] - less))) for less in (1, 0))
    return float(np.sqrt(sampled / drawn)) if drawn > 0 else 1.0


def _correlation(totals: Floats) -> Floats:
    """(draws, 3) sums of products and of both squares → (draws,), NaN where either score does not vary."""
    varies = (totals[:, 1:] > TIE).all(axis=1)
    spread = np.sqrt(np.where(varies, totals[:, 1] * totals[:, 2], 1.0))
    return np.where(varies, np.clip(totals[:, 0] / spread, -1.0, 1.0), np.nan)
