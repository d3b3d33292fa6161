"""Ratings as the many-facet model takes them: which cell each rating is in, and who shares answers with whom."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from tasks.stats.arrays import Floats, Ints

Texts: TypeAlias = "pa.Array | pa.ChunkedArray"


class Rating(NamedTuple):
    """One person's score of one response; group: responses whose scores have the same steps, such as those of a rubric;
    score: finite, in score units."""

    response: str
    group: str
    rater: str
    score: float


class RatingColumns(NamedTuple):
    """The same of many ratings, column by column: (n,) each."""

    response: Texts
    group: Texts
    rater: Texts
    score: Floats


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
    response, group, rater, score = zip(*ratings, strict=True) if ratings else ((), (), (), ())
    responses, groups, raters = (pa.array(column, pa.string()) for column in (response, group, rater))
    return design_of_columns(RatingColumns(responses, groups, raters, np.array(score, dtype=np.float64)))


def design_of_columns(ratings: RatingColumns) -> Design:
    """The same as `design`: a few words of memory for each rating, however many there are."""
    responses, response = _coded(ratings.response)
    groups, group = _coded(ratings.group)
    raters, rater = _coded(ratings.rater)
    _check(ratings, response, group, rater)
    values = tuple(np.unique(ratings.score[group == code]) for code in range(len(groups)))
    level = np.zeros(len(group), np.int64)
    for code, group_values in enumerate(values):
        in_group = group == code
        level[in_group] = np.searchsorted(group_values, ratings.score[in_group])
    levels = max(map(len, values))
    pairs, pair = np.unique(group * len(raters) + rater, return_inverse=True)
    cells, cell = np.unique(pair * levels + level, return_inverse=True)
    patterns, pattern = _patterns(response, cell)
    flat = np.array(list(chain.from_iterable(patterns)))
    ends = np.cumsum([0, *map(len, patterns)])
    cell_pair = cells // levels
    pair_group = pairs // len(raters)
    return Design(
        responses=tuple(responses),
        raters=tuple(raters),
        groups=tuple(groups),
        values=values,
        pattern=pattern,
        weight=np.bincount(pattern).astype(np.float64),
        group=pair_group[cell_pair[flat[ends[:-1]]]],
        ratings=csr_array((np.ones(len(flat)), flat, ends), shape=(len(patterns), len(cells))),
        cell_pair=cell_pair,
        cell_level=cells % levels,
        pair_group=pair_group,
        pair_rater=pairs % len(raters),
    )


def _patterns(response: Ints, cell: Ints) -> tuple[list[tuple[int, ...]], Ints]:
    """The distinct sets of cells that responses have, each ascending, in order; and each response's place among them.

    Responses of the same number of ratings are looked at together, as rows of a matrix.
    """
    order = np.lexsort((cell, response))
    sizes = np.bincount(response)
    firsts = np.cumsum(sizes) - sizes
    sets: list[tuple[int, ...]] = []
    set_of = np.zeros(len(sizes), np.int64)
    for size in np.unique(sizes):
        responses = np.flatnonzero(sizes == size)
        rows = cell[order[firsts[responses, None] + np.arange(size)]]
        distinct, number_of = np.unique(rows, axis=0, return_inverse=True)
        set_of[responses] = number_of.ravel() + len(sets)
        sets += [tuple(row) for row in distinct.tolist()]
    turn = sorted(range(len(sets)), key=sets.__getitem__)
    place = np.zeros(len(sets), np.int64)
    place[turn] = np.arange(len(sets))
    return [sets[number] for number in turn], place[set_of]


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


def _check(ratings: RatingColumns, response: Ints, group: Ints, rater: Ints) -> None:
    if not len(response):
        raise ValueError("there are no ratings")
    names, raters = ratings.response, ratings.rater
    lacking = np.flatnonzero(~np.isfinite(ratings.score))
    if len(lacking):
        first = int(lacking[0])
        raise ValueError(f"the score of response '{names[first]}' by '{raters[first]}' is no finite number")
    repeated = _repeated(response * (int(rater.max()) + 1) + rater)
    if repeated is not None:
        raise ValueError(f"rater '{raters[repeated]}' scores response '{names[repeated]}' twice")
    first_group = np.zeros(int(response.max()) + 1, np.int64)
    first_group[response[::-1]] = group[::-1]
    apart = np.flatnonzero(first_group[response] != group)
    if len(apart):
        raise ValueError(f"response '{names[int(apart[0])]}' is in two groups")


def _repeated(keys: Ints) -> int | None:
    """The place of the first key that occurs before; None where all differ."""
    _, firsts = np.unique(keys, return_index=True)
    if len(firsts) == len(keys):
        return None
    return int(np.setdiff1d(np.arange(len(keys)), firsts)[0])


def _coded(texts: Texts) -> tuple[list[str], Ints]:
    """The distinct texts in the order of their code points, and each row's place among them, (n,)."""
    names = pc.unique(texts)
    names = names.take(pc.sort_indices(names))
    places = pc.index_in(texts, value_set=names)
    return names.to_pylist(), places.to_numpy(zero_copy_only=False).astype(np.int64)
