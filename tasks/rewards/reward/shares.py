"""What each judgment says of its criterion: the share of the levels, from 0 to 1.

From the criteria that are decided to those that count: what a criterion with sub-points is worth, and how sure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.composite import Composition, composed, composition
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.stats.ordinal import ROUNDING
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph


class Shares(NamedTuple):
    """What each judgment says, (rows,) each."""

    share: Floats
    """In [0, 1]; 0 where unscored."""
    decided: Floats
    """The same without probabilities: the share of the level that was decided."""
    scored: Bools
    likely: Bools
    """Whether the share is made of probabilities."""
    variance: Floats
    """Of the share, by its probabilities; 0 where the verifier decided, NaN where the judge says nothing of its
    doubts."""


class Worth(NamedTuple):
    """The levels that the levels of criteria count as, see `levels_counted`."""

    counted: Ints
    """Those of all criteria, one criterion after the other."""
    start: Ints
    """(rows,) where those of each judgment's criterion begin."""
    top: Ints
    """(rows,) M of each judgment's criterion."""


def shares(judgments: pa.Table, worth: Worth, local: str) -> Shares:
    """The share of each judgment.

    judgments: rows of the table `judgments`; local: as in `local_scores`, which says the rule. ContractError for a
    level off its criterion's, or probabilities that are none.
    """
    top = worth.top
    scored = np.asarray(judgments["decision"].is_valid())
    level = np.asarray(judgments["decision"].fill_null(0), dtype=np.int64)
    refuse(judgments, (level < 0) | (level > top), "decided at a level that it does not have")
    decided = worth.counted[worth.start + level] / np.maximum(top, 1)
    share, variance = decided.copy(), np.full(len(judgments), np.nan)
    likely = np.zeros(len(judgments), dtype=bool)
    if local == "probability":
        stands = np.asarray(pc.is_in(judgments["action"], value_set=pa.array(["none", "counted"])))
        likely = scored & stands & np.asarray(judgments["level_probabilities"].is_valid())
        share[likely], variance[likely] = _expected(judgments, np.flatnonzero(likely), worth)
        variance[scored & ~stands] = 0.0
    return Shares(share, decided, scored, likely, variance)


def _expected(judgments: pa.Table, rows: Ints, worth: Worth) -> tuple[Floats, Floats]:
    """Σ level·p / M of these rows, over the levels that count, and the variance of level / M."""
    lists = judgments["level_probabilities"].take(pa.array(rows)).combine_chunks()
    sizes, top = np.asarray(pc.list_value_length(lists), dtype=np.int64), worth.top[rows]
    refuse(judgments, sizes != top + 1, "another number of level probabilities than levels", rows)
    start = starts(sizes)
    p = lists.flatten().to_numpy(zero_copy_only=False)
    if not len(p):
        return np.empty(0), np.empty(0)
    inside = np.logical_and.reduceat((p >= 0) & (p <= 1), start[:-1])  # false for NaN, too
    refuse(judgments, ~inside, "a level probability that is NaN or outside [0, 1]", rows)
    sums_to_one = np.abs(np.add.reduceat(p, start[:-1]) - 1) <= ROUNDING
    refuse(judgments, ~sums_to_one, "level probabilities that do not sum to 1", rows)
    level = worth.counted[np.arange(len(p)) - np.repeat(start[:-1] - worth.start[rows], sizes)]
    most = np.maximum(top, 1)
    share = np.minimum(np.add.reduceat(p * level, start[:-1]) / most, 1.0)
    squares = np.add.reduceat(p * level**2, start[:-1]) / most**2
    return share, np.clip(squares - share**2, 0.0, share * (1.0 - share))


def starts(sizes: Ints) -> Ints:
    """Where each of these many begins, and the end of the last."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def refuse(judgments: pa.Table, bad: Bools, rule: str, rows: Ints | None = None) -> None:
    """ContractError for the first bad one of the judgments, or of these rows of them."""
    if bad.any():
        first = int(np.argmax(bad))
        raise ContractError(f"{where(judgments, first if rows is None else int(rows[first]))}: {rule}")


def where(judgments: pa.Table, row: int) -> str:
    """Whose judgment of what it is, for an error."""

    def of(name: str) -> Any:
        return judgments[name][row].as_py()

    return (
        f"response '{of('response_id')}', criterion '{of('criterion_id')}' by rater '{of('rater_id')}', "
        f"sample {of('sample')}"
    )


Columns = Mapping[str, Floats]
"""Criterion → a value for each response."""


class TopLevelCriteria:
    """The criteria that are no sub-points, of the responses of a batch; flat as in `Batch`."""

    def __init__(self, used: Sequence[tuple[CompiledGraph, Bundle]], rubric_index: Ints, start: Ints) -> None:
        """used: the rubrics. rubric_index: (n,) which of them each response is under. start: (n + 1,) where each
        response's decided criteria begin."""
        self._used = [(compiled, bundle, composition(bundle)) for compiled, bundle in used]
        self._rubric_index, self._start = rubric_index, start
        self._into = starts(np.array([len(compiled.criteria) for compiled, _ in used], dtype=np.int64)[rubric_index])

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
        for (compiled, bundle, parts), members in zip(self._used, members_of, strict=False):
            cells = self._start[members][:, None] + np.arange(len(bundle.criteria))
            columns = {c.id: decided[cells[:, place]] for place, c in enumerate(bundle.criteria)}
            reached = put_together(parts, columns)
            for place, name in enumerate(compiled.criteria):
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
