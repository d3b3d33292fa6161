"""Judgments as local scores: how far each criterion is met on its own, before any dependency (GEAR, section 3.3).

One rule covers the paper's three kinds of verdict: a probability (of two levels the upper one's), a level on a scale,
and partial credit by sub-points.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.composite import levels_counted
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.stats.arrays import Bools, Ints
from rubricflow.tasks.core.stats.bootstrap import cluster_codes
from rubricflow.tasks.rewards.reward.compiled import Batch, CompiledGraph, Shorts, batch
from rubricflow.tasks.rewards.reward.shares import TopLevelCriteria, Worth, refuse, shares, starts, where

ROWS = 200_000
"""Judgments that are taken as numbers at a time."""


@dataclass(frozen=True)
class Locals:
    """A batch, and who each of its n responses is: one rater's judgments of a response are one response of it."""

    batch: Batch
    """The local scores; only rubrics that occur."""
    response_id: pa.Array
    """(n,)."""
    item_id: pa.Array
    """(n,)."""
    rater_id: pa.Array
    """(n,)."""
    sample: pa.Array
    """(n,) number of the repetition."""
    decided_by: pa.Array
    """(n,) 'probability', 'decision' or 'both': what the local scores come from; 'decision' where none is scored."""

    @cached_property
    def item(self) -> Ints:
        """(n,) number of each response's item, items in the order of their ids."""
        item_ids = pc.unique(self.item_id)
        ordered = item_ids.take(pc.sort_indices(item_ids))
        return np.asarray(pc.index_in(self.item_id, value_set=ordered), dtype=np.int64)

    @cached_property
    def clusters(self) -> tuple[Ints, int]:
        """What a bootstrap resamples, as `cluster_codes` gives it: the items."""
        return cluster_codes(self.item)

    def part(self, responses: slice) -> Locals:
        """Some neighbouring responses, as `Batch.part` takes them."""
        return Locals(
            batch=self.batch.part(responses),
            response_id=self.response_id[responses],
            item_id=self.item_id[responses],
            rater_id=self.rater_id[responses],
            sample=self.sample[responses],
            decided_by=self.decided_by[responses],
        )

    def only(self, chosen: Bools) -> Locals:
        """Some of the responses and the rubrics that they are under. chosen: (n,)."""
        everyone, places = self.batch, pa.array(np.flatnonzero(chosen))
        rubrics, rubric_index = np.unique(everyone.rubric_index[chosen], return_inverse=True)
        cells = np.repeat(chosen, np.diff(everyone.start))
        chosen_batch = batch(
            [everyone.compiled[rubric] for rubric in rubrics],
            rubric_index.astype(np.int32),
            everyone.local[cells],
            scored=everyone.scored[cells],
            decided=everyone.decided[cells],
            variance=everyone.variance[cells],
        )
        return Locals(
            batch=chosen_batch,
            response_id=self.response_id.take(places),
            item_id=self.item_id.take(places),
            rater_id=self.rater_id.take(places),
            sample=self.sample.take(places),
            decided_by=self.decided_by.take(places),
        )


def local_scores(
    judgments: pa.Table,
    item_of: Mapping[str, str],
    rubric_of: Mapping[str, str],
    bundles: Mapping[str, Bundle],
    compiled: Mapping[str, CompiledGraph],
    local: Literal["probability", "decision"],
) -> Locals:
    """The local scores of all responses that have judgments, in the order in which they first occur.

    judgments: rows of the table `judgments`: response_id, criterion_id, rater_id, sample, decision, action and, for
    probabilities, level_probabilities; ids as strings or as a dictionary of those that occur. item_of: response → item;
    rubric_of: item → rubric; bundles and compiled by rubric.
    local: 'probability' takes the expected share of the levels, Σ level·p / M, where the rater gave probabilities and
    its decision stands (action none or counted), and else decision / M; 'decision' always the latter.

    A criterion without a row or with a null decision is unscored, and so is one made of sub-points where any of them
    is; its share is what `composed` makes of theirs.
    ContractError, naming where: a response without item, rubric, bundle or graph; a criterion that its bundle does not
    decide; two judgments of one criterion by one rater and sample; a level that there is not; probabilities that are
    NaN, outside [0, 1], of another number than the levels, or do not sum to 1.
    """
    coded = {name: _coded(judgments[name]) for name in ("response_id", "criterion_id", "rater_id", "sample")}
    response, rater, sample = coded["response_id"], coded["rater_id"], coded["sample"]
    of_response = _rubrics(response.values.to_pylist(), item_of, rubric_of, bundles, compiled)
    gradings = _gradings(response, rater, sample)
    rubric_index = of_response.rubric[gradings.response]

    used = [(compiled[name], bundles[name]) for name in of_response.rubrics]
    points = _points([bundle for _, bundle in used], coded["criterion_id"].values)
    point = _point_of(
        judgments, points, of_response.rubric[response.places], coded["criterion_id"], of_response.rubrics
    )
    start = starts(points.sizes[rubric_index])
    cell = start[gradings.place] + points.place[point]
    refuse(judgments, np.bincount(cell, minlength=start[-1])[cell] > 1, "judged twice by one rater and sample")
    # Of all decided criteria, NaN where unscored.
    share, decision, doubt = (np.full(start[-1], np.nan) for _ in range(3))
    by_probability, by_decision = (np.zeros(len(rubric_index), dtype=bool) for _ in range(2))
    for first in range(0, len(judgments), ROWS):
        part = slice(first, first + ROWS)
        worth = Worth(points.counted, points.levels[point[part]], points.top[point[part]])
        judged = shares(judgments.slice(first, ROWS), worth, local)
        for values, of_part in ((share, judged.share), (decision, judged.decided), (doubt, judged.variance)):
            values[cell[part]] = np.where(judged.scored, of_part, np.nan)
        by_probability[gradings.place[part][judged.likely]] = True
        by_decision[gradings.place[part][judged.scored & ~judged.likely]] = True

    rewarded = TopLevelCriteria(used, rubric_index, start)
    scores, scored = rewarded.shares(share)
    decided = rewarded.shares(decision)[0] if by_probability.any() else scores
    variance = rewarded.variances(doubt, scores)
    graphs = [graph for graph, _ in used]
    responses = pa.array(gradings.response)
    return Locals(
        batch=batch(graphs, rubric_index.astype(np.int32), scores, scored, decided, variance),
        response_id=response.values.take(responses),
        item_id=pa.array(of_response.items, pa.string()).take(responses),
        rater_id=rater.values.take(pa.array(gradings.rater)),
        sample=sample.values.take(pa.array(gradings.sample)),
        decided_by=_decided_by(by_probability, by_decision),
    )


class _Coded(NamedTuple):
    """A column as numbers: (rows,) the place of each row's value among the distinct `values`, which stand in the order
    in which they first occur."""

    places: Shorts
    values: pa.Array


def _coded(column: pa.ChunkedArray | pa.Array) -> _Coded:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    return _Coded(np.asarray(encoded.indices, dtype=np.int32), encoded.dictionary)


class _Gradings(NamedTuple):
    """The n gradings that the judgments make up: those of one response by one rater in one repetition are one."""

    place: Shorts
    """(rows,) which of them each judgment belongs to; they stand in the order in which they first occur."""
    response: Ints
    """(n,) place of each one's response among the distinct ones."""
    rater: Ints
    """(n,) place of its rater."""
    sample: Ints
    """(n,) place of the repetition's number."""


def _gradings(response: _Coded, rater: _Coded, sample: _Coded) -> _Gradings:
    responses_and_raters = response.places.astype(np.int64) * len(rater.values) + rater.places
    keys = _coded(pa.array(responses_and_raters * len(sample.values) + sample.places))
    combined, sample_place = np.divmod(np.asarray(keys.values), max(1, len(sample.values)))
    response_place, rater_place = np.divmod(combined, max(1, len(rater.values)))
    return _Gradings(keys.places, response_place, rater_place, sample_place)


class _Rubrics(NamedTuple):
    """The item of each response, the rubrics that occur, and which of them each response is under."""

    items: list[str]
    rubrics: list[str]
    rubric: Ints


def _rubrics(
    responses: Iterable[str],
    item_of: Mapping[str, str],
    rubric_of: Mapping[str, str],
    bundles: Mapping[str, Bundle],
    compiled: Mapping[str, CompiledGraph],
) -> _Rubrics:
    items: list[str] = []
    rubric_index: list[int] = []
    numbers: dict[str, int] = {}
    for response in responses:
        item = item_of.get(response)
        if item is None:
            raise ContractError(f"response '{response}' has judgments and no item")
        rubric = rubric_of.get(item)
        if rubric is None or rubric not in bundles or rubric not in compiled:
            missing = _missing(rubric, bundles)
            raise ContractError(f"item '{item}' of response '{response}' has no {missing}")
        items.append(item)
        rubric_index.append(numbers.setdefault(rubric, len(numbers)))
    return _Rubrics(items, list(numbers), np.array(rubric_index, dtype=np.int64))


def _missing(rubric: str | None, bundles: Mapping[str, Bundle]) -> str:
    if rubric is None:
        return "rubric"
    return "graph" if rubric in bundles else "bundle"


class _Points(NamedTuple):
    """The decided criteria of all rubrics that some judgment names."""

    keys: pa.Array
    """Rubric's number · number of names + number of the criterion's name."""
    place: Ints
    """Place in its bundle."""
    top: Ints
    """M, the highest level."""
    counted: Ints
    """The levels that their levels count as, one criterion after the other."""
    levels: Ints
    """Where those of each criterion begin."""
    sizes: Ints
    """(rubrics,) decided criteria of each."""


def _points(bundles: Sequence[Bundle], names: pa.Array) -> _Points:
    number = {name: position for position, name in enumerate(names.to_pylist())}
    rows: list[tuple[int, int, int, int]] = []
    counted: list[int] = []
    for rubric, bundle in enumerate(bundles):
        worth = levels_counted(bundle)
        for nth, criterion in enumerate(bundle.criteria):
            if criterion.id in number:
                rows.append((rubric * len(number) + number[criterion.id], nth, criterion.top, len(counted)))
                counted += worth[criterion.id]
    keys, place, top, levels = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    sizes = np.array([len(bundle.criteria) for bundle in bundles], dtype=np.int64)
    return _Points(pa.array(keys), place, top, np.array(counted, dtype=np.int64), levels, sizes)


def _point_of(judgments: pa.Table, points: _Points, rubric: Ints, criterion: _Coded, rubrics: Sequence[str]) -> Ints:
    """(rows,) which of the points each judgment is of."""
    places = pc.index_in(pa.array(rubric * len(criterion.values) + criterion.places), value_set=points.keys)
    if places.null_count:
        row = int(np.argmax(np.asarray(places.is_null())))
        raise ContractError(f"{where(judgments, row)}: rubric '{rubrics[rubric[row]]}' decides no such criterion")
    return np.asarray(places, dtype=np.int64)


def _decided_by(by_probability: Bools, by_decision: Bools) -> pa.Array:
    """(n,) what the local scores of each response come from."""
    kinds = pa.array(["decision", "probability", "both"])
    return kinds.take(pa.array(by_probability * (1 + by_decision)))
