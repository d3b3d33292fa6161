"""Ratings as the many-facet model takes them: which cell each rating is in, and who shares answers with whom."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from tasks.stats.arrays import Floats, Ints

Key = TypeVar("Key", bound=Any)


class Rating(NamedTuple):
    """One person's score of one response; group: responses whose scores have the same steps, such as those of a rubric;
    score: finite, in score units."""

    response: str
    group: str
    rater: str
    score: float


class Design(NamedTuple):
    """Coded ratings. Responses with the same group, raters and scores are one pattern; a cell is a rater's giving one
    value in one group; a pair is a rater in a group.

    responses, raters, groups: ids in sorted order; values: the distinct scores of each group, ascending.
    pattern: (responses,) each one's pattern; weight: (patterns,) their number; group: (patterns,) of `groups`.
    ratings: (patterns, cells) 1 where the cell is part of the pattern.
    cell_pair, cell_level: (cells,) of pairs and of the group's values; pair_group, pair_rater: (pairs,).
    """

    responses: tuple[str, ...]
    raters: tuple[str, ...]
    groups: tuple[str, ...]
    values: tuple[Floats, ...]
    pattern: Ints
    weight: Floats
    group: Ints
    ratings: csr_array
    cell_pair: Ints
    cell_level: Ints
    pair_group: Ints
    pair_rater: Ints

    @property
    def size(self) -> Ints:
        """(patterns,) ratings of each."""
        return np.asarray(np.diff(self.ratings.indptr), dtype=np.int64)


def design(ratings: Sequence[Rating]) -> Design:
    """Ratings in any order, coded so that equal sets give equal codes.

    ValueError without any, where a rater scores a response twice, a response is in two groups, or a score is no finite
    number.
    """
    _check(ratings)
    rows = sorted(ratings)
    responses = _order(row.response for row in rows)
    groups = _order(row.group for row in rows)
    raters = _order(row.rater for row in rows)
    scores: list[set[float]] = [set() for _ in groups]
    for row in rows:
        scores[groups[row.group]].add(row.score)
    values = [sorted(of_group) for of_group in scores]
    levels = [_order(of_group) for of_group in scores]
    codes = [(groups[row.group], raters[row.rater], levels[groups[row.group]][row.score]) for row in rows]
    pairs = _order([(group, rater) for group, rater, _ in codes])
    cells = _order(codes)
    cells_of: list[list[int]] = [[] for _ in responses]
    for row, code in zip(rows, codes, strict=True):
        cells_of[responses[row.response]].append(cells[code])
    keys = [tuple(sorted(of_response)) for of_response in cells_of]
    patterns = _order(keys)
    pattern = np.array([patterns[key] for key in keys])
    cell_codes = np.array(list(cells))
    pair_codes = np.array(list(pairs))
    flat = np.array(list(chain.from_iterable(patterns)))
    ends = np.cumsum([0, *(len(key) for key in patterns)])
    return Design(
        responses=tuple(responses),
        raters=tuple(raters),
        groups=tuple(groups),
        values=tuple(map(np.array, values)),
        pattern=pattern,
        weight=np.bincount(pattern).astype(np.float64),
        group=cell_codes[flat[ends[:-1]], 0],
        ratings=csr_array((np.ones(len(flat)), flat, ends), shape=(len(patterns), len(cells))),
        cell_pair=np.array([pairs[group, rater] for group, rater, _ in cells]),
        cell_level=cell_codes[:, 2],
        pair_group=pair_codes[:, 0],
        pair_rater=pair_codes[:, 1],
    )


def linked(coded: Design) -> list[tuple[str, ...]]:
    """Raters in sets that shared responses link, directly or by way of others, the largest first; severities of two
    sets do not compare."""
    pairs: npt.NDArray[np.int64] = coded.pair_rater[coded.cell_pair]
    by_rater = coded.ratings @ csr_array((np.ones(len(pairs)), (np.arange(len(pairs)), pairs)))
    count, label = connected_components(by_rater.T @ by_rater, directed=False)
    sets: list[list[str]] = [[] for _ in range(count)]
    for rater, number in zip(coded.raters, label, strict=True):
        sets[number].append(rater)
    return sorted(map(tuple, sets), key=lambda names: (-len(names), names))


def _check(ratings: Sequence[Rating]) -> None:
    if not ratings:
        raise ValueError("there are no ratings")
    seen: set[tuple[str, str]] = set()
    group_of: dict[str, str] = {}
    for row in ratings:
        if not np.isfinite(row.score):
            raise ValueError(f"the score of response '{row.response}' by '{row.rater}' is no finite number")
        if (row.response, row.rater) in seen:
            raise ValueError(f"rater '{row.rater}' scores response '{row.response}' twice")
        if group_of.setdefault(row.response, row.group) != row.group:
            raise ValueError(f"response '{row.response}' is in two groups")
        seen.add((row.response, row.rater))


def _order(keys: Iterable[Key]) -> dict[Key, int]:
    """Every key's place among the distinct ones in their order."""
    return {key: place for place, key in enumerate(sorted(set(keys)))}
