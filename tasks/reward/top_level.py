"""From the criteria that are decided to those that count: what a criterion with sub-points is worth, and how sure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tasks.contracts.bundle import Bundle
from tasks.contracts.composite import Composition, composed, composition
from tasks.reward.shares import starts
from tasks.reward.wire import Wired
from tasks.stats.arrays import Bools, Floats, Ints

Columns = Mapping[str, Floats]
"""Criterion → a value for each response."""


class TopLevelCriteria:
    """The criteria that are no sub-points, of the responses of a batch; flat as in `Batch`."""

    def __init__(self, used: Sequence[tuple[Wired, Bundle]], rubric_index: Ints, start: Ints) -> None:
        """used: the rubrics. rubric_index: (n,) which of them each response is under. start: (n + 1,) where each
        response's decided criteria begin."""
        self._used = [(wired, bundle, composition(bundle)) for wired, bundle in used]
        self._rubric_index, self._start = rubric_index, start
        self._into = starts(np.array([len(wired.criteria) for wired, _ in used], dtype=np.int64)[rubric_index])

    def shares(self, decided: Floats) -> tuple[Floats, Bools]:
        """Shares, 0 where unscored, and whether they are scored. decided: of the decided criteria, NaN for those that
        are not."""
        shares = self._put_together(decided, lambda parts, columns: composed(parts, columns, _clipped))
        scored = ~np.isnan(shares)
        return np.where(scored, shares, 0.0), scored

    def variances(self, decided: Floats, shares: Floats) -> Floats:
        """Variances of the shares, as if sub-points were independent; NaN where one of theirs is. decided: of the
        decided criteria; shares: as `shares` gives them."""
        return np.minimum(self._put_together(decided, _variances), shares * (1.0 - shares))

    def _put_together(self, decided: Floats, put_together: Callable[[Composition, Columns], Columns]) -> Floats:
        """Values of the top-level criteria, by what is made of the columns of the decided ones."""
        values = np.empty(self._into[-1])
        by_rubric = np.argsort(self._rubric_index, kind="stable")
        ends = np.searchsorted(self._rubric_index[by_rubric], np.arange(len(self._used)), side="right")
        members_of = np.split(by_rubric, ends[:-1])
        for (wired, bundle, parts), members in zip(self._used, members_of, strict=False):
            cells = self._start[members][:, None] + np.arange(len(bundle.criteria))
            columns = {c.id: decided[cells[:, place]] for place, c in enumerate(bundle.criteria)}
            reached = put_together(parts, columns)
            for place, name in enumerate(wired.criteria):
                values[self._into[members] + place] = reached[name]
        return values


def _variances(parts: Composition, columns: Columns) -> Columns:
    """The variance of each criterion; NaN for all where some cannot hold together, and for what is made by counting,
    since there the share is no sum."""
    reached = dict(columns)
    for composite, sub_points, _ in parts.composites:
        terms = [(point.weight / composite.weight) ** 2 * reached[point.id] for point in sub_points]
        reached[composite.id] = np.sum(terms, axis=0) + (np.nan if composite.count else 0.0)
    unknown = np.nan if parts.exclusions or parts.alternatives else 0.0
    return {name: values + unknown for name, values in reached.items()}


def _clipped(share: Floats) -> Floats:
    return np.clip(share, 0.0, 1.0)
