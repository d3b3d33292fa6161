"""Judgments as local scores: how far each criterion is met on its own, before any dependency (GEAR, section 3.3).

One rule covers the paper's three kinds of verdict: a probability (of two levels the upper one's), a level on a scale,
and partial credit by sub-points, from which a criterion's share and its variance are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.composite import Composition, composed, composition, level_shares
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.stats.bootstrap import cluster_codes
from rubricflow.tasks.core.stats.probability import ROUNDING
from rubricflow.tasks.rewards.reward.compiled import Batch, CompiledGraph, Shorts, batch, some_of


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

    def only(self, chosen: Bools) -> Locals:
        """Some of the responses. chosen: (n,)."""
        columns = [getattr(self, field.name).filter(pa.array(chosen)) for field in fields(self)[1:]]
        return Locals(some_of(self.batch, chosen), *columns)


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
    local: 'probability' takes the expected share, Σ share·p over the levels, where the rater gave probabilities and its
    decision stands (action none or counted), and else the share of the level decided; 'decision' always the latter.

    A criterion without a row or with a null decision is unscored, and so is one made of sub-points where any of them
    is; its share is what `composed` makes of theirs.
    ContractError, naming where: a response without item, rubric, bundle or graph; a criterion that its bundle does not
    decide; two judgments of one criterion by one rater and sample; a level that there is not; probabilities that are
    NaN, outside [0, 1], of another number than the levels, or do not sum to 1.
    """
    names = ("response_id", "criterion_id", "rater_id", "sample")
    response, criterion, rater, sample = (_coded(judgments[name]) for name in names)
    # The item of each response, the rubrics that occur, and which of them each response is under
    items = []
    rubrics = []
    numbers: dict[str, int] = {}
    for name in response.values.to_pylist():
        item = item_of.get(name)
        if item is None:
            raise ContractError(f"response '{name}' has judgments and no item")
        rubric = rubric_of.get(item)
        if rubric is None or rubric not in bundles or rubric not in compiled:
            missing = "rubric" if rubric is None else "graph" if rubric in bundles else "bundle"
            raise ContractError(f"item '{item}' of response '{name}' has no {missing}")
        items.append(item)
        rubrics.append(numbers.setdefault(rubric, len(numbers)))
    used = [(compiled[name], bundles[name], composition(bundles[name])) for name in numbers]
    rubric_of_response = np.array(rubrics, dtype=np.int64)

    # The judgments of one response by one rater in one repetition are one grading
    pairs = response.places.astype(np.int64) * len(rater.values) + rater.places
    grading = _coded(pa.array(pairs * len(sample.values) + sample.places))
    pair, sample_place = np.divmod(np.asarray(grading.values), max(1, len(sample.values)))
    response_place, rater_place = np.divmod(pair, max(1, len(rater.values)))
    rubric_index = rubric_of_response[response_place]

    # The decided criteria that some judgment names: rubric and name as one number, place in its bundle, highest level,
    # and where the shares that its levels count for begin
    number = {name: position for position, name in enumerate(criterion.values.to_pylist())}
    points: list[tuple[int, int, int, int]] = []
    counted: list[float] = []
    for nth, (_, bundle, _parts) in enumerate(used):
        worth = level_shares(bundle)
        for at, decided in enumerate(bundle.criteria):
            if decided.id in number:
                points.append((nth * len(number) + number[decided.id], at, decided.top, len(counted)))
                counted += worth[decided.id]
    keys, place, top, first_level = np.array(points, dtype=np.int64).reshape(-1, 4).T
    rubric_of_row = rubric_of_response[response.places]
    named = pa.array(rubric_of_row * len(number) + criterion.places)
    found = pc.index_in(named, value_set=pa.array(keys))
    if found.null_count:
        row = int(np.argmax(np.asarray(found.is_null())))
        rule = f"rubric '{list(numbers)[rubric_of_row[row]]}' decides no such criterion"
        raise ContractError(f"{_where(judgments, row)}: {rule}")
    point = np.asarray(found, dtype=np.int64)

    sizes = np.array([len(bundle.criteria) for _, bundle, _ in used], dtype=np.int64)
    start = _starts(sizes[rubric_index])
    cell = start[grading.places] + place[point]
    _refuse(judgments, np.bincount(cell, minlength=start[-1])[cell] > 1, "judged twice by one rater and sample")
    # Of all decided criteria, NaN where unscored.
    judged = _shares(judgments, np.array(counted, dtype=np.float64), first_level[point], top[point], local)
    share, decision, doubt = (np.full(start[-1], np.nan) for _ in range(3))
    for values, judged_values in ((share, judged.share), (decision, judged.decided), (doubt, judged.variance)):
        values[cell] = np.where(judged.scored, judged_values, np.nan)
    by_probability, by_decision = (np.zeros(len(rubric_index), dtype=bool) for _ in range(2))
    by_probability[grading.places[judged.likely]] = True
    by_decision[grading.places[judged.scored & ~judged.likely]] = True

    raw_shares, raw_variances = _put_together(used, rubric_index, start, [share, doubt], [composed, _variances])
    scored = ~np.isnan(raw_shares)
    scores = np.where(scored, raw_shares, 0.0)
    whole_decisions = scores
    if by_probability.any():
        whole_decisions = np.nan_to_num(_put_together(used, rubric_index, start, [decision], [composed])[0])
    variance = np.minimum(raw_variances, scores * (1.0 - scores))
    graphs = [graph for graph, _, _ in used]
    responses = pa.array(response_place)
    kinds = pa.array(["decision", "probability", "both"])
    return Locals(
        batch=batch(graphs, rubric_index.astype(np.int32), scores, scored, whole_decisions, variance),
        response_id=response.values.take(responses),
        item_id=pa.array(items, pa.string()).take(responses),
        rater_id=rater.values.take(pa.array(rater_place)),
        sample=sample.values.take(pa.array(sample_place)),
        decided_by=kinds.take(pa.array(by_probability * (1 + by_decision))),
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


class _Shares(NamedTuple):
    """What each judgment decides, (rows,) each."""

    share: Floats
    """In [0, 1]; 0 where unscored."""
    decided: Floats
    """The same without probabilities: the share of the level that was decided."""
    scored: Bools
    likely: Bools
    """Whether the share is made of probabilities."""
    variance: Floats
    """Of the share, by its probabilities; 0 where the verifier decided, NaN where the judge states no doubts."""


def _shares(judgments: pa.Table, counted: Floats, start: Ints, top: Ints, local: str) -> _Shares:
    """The share of each judgment. counted: what the levels of all criteria count for; start, top: (rows,) where those
    of each judgment's criterion begin, and its highest level."""
    scored = np.asarray(judgments["decision"].is_valid())
    level = np.asarray(judgments["decision"].fill_null(0), dtype=np.int64)
    _refuse(judgments, (level < 0) | (level > top), "decided at a level that it does not have")
    decided = counted[start + level]
    share = decided.copy()
    variance = np.full(len(judgments), np.nan)
    likely = np.zeros(len(judgments), dtype=bool)
    if local == "decision":
        return _Shares(share, decided, scored, likely, variance)
    stands = np.asarray(pc.is_in(judgments["action"], value_set=pa.array(["none", "counted"])))
    likely = scored & stands & np.asarray(judgments["level_probabilities"].is_valid())
    variance[scored & ~stands] = 0.0
    # Σ share·p, and the variance of the share
    rows = np.flatnonzero(likely)
    lists = judgments["level_probabilities"].take(pa.array(rows)).combine_chunks()
    sizes = np.asarray(pc.list_value_length(lists), dtype=np.int64)
    _refuse(judgments, sizes != top[rows] + 1, "another number of level probabilities than levels", rows)
    p = lists.flatten().to_numpy(zero_copy_only=False)
    begin = _starts(sizes)[:-1]
    if len(p):
        inside = np.logical_and.reduceat((p >= 0) & (p <= 1), begin)  # false for NaN, too
        _refuse(judgments, ~inside, "a level probability that is NaN or outside [0, 1]", rows)
        sums_to_one = np.abs(np.add.reduceat(p, begin) - 1) <= ROUNDING
        _refuse(judgments, ~sums_to_one, "level probabilities that do not sum to 1", rows)
        worth = counted[np.arange(len(p)) - np.repeat(begin - start[rows], sizes)]
        share[rows] = np.minimum(np.add.reduceat(p * worth, begin), 1.0)
        squares = np.add.reduceat(p * worth**2, begin)
        variance[rows] = np.clip(squares - share[rows] ** 2, 0.0, share[rows] * (1.0 - share[rows]))
    return _Shares(share, decided, scored, likely, variance)


def _starts(sizes: Ints) -> Ints:
    """Where each of these many begins, and the end of the last."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _refuse(judgments: pa.Table, bad: Bools, rule: str, rows: Ints | None = None) -> None:
    """ContractError for the first bad one of the judgments, or of these rows of them."""
    if bad.any():
        first = int(np.argmax(bad))
        raise ContractError(f"{_where(judgments, first if rows is None else int(rows[first]))}: {rule}")


def _where(judgments: pa.Table, row: int) -> str:
    """Whose judgment of what it is, for an error."""
    of: Record = judgments.slice(row, 1).to_pylist()[0]
    return (
        f"response '{of['response_id']}', criterion '{of['criterion_id']}' by rater '{of['rater_id']}', "
        f"sample {of['sample']}"
    )


Columns = Mapping[str, Floats]
"""Criterion → a value for each response."""


def _put_together(
    used: Sequence[tuple[CompiledGraph, Bundle, Composition]],
    rubric_index: Ints,
    start: Ints,
    decided: Sequence[Floats],
    ways: Sequence[Callable[[Composition, Columns], Columns]],
) -> list[Floats]:
    """Values of the criteria that are no sub-points, flat as in `Batch`, by what each way makes of the columns of the
    decided ones. start: (n + 1,) where each response's decided criteria begin."""
    into = _starts(np.array([len(graph.criteria) for graph, _, _ in used], dtype=np.int64)[rubric_index])
    values = [np.empty(into[-1]) for _ in ways]
    by_rubric = np.argsort(rubric_index, kind="stable")
    ends = np.searchsorted(rubric_index[by_rubric], np.arange(len(used)), side="right")
    for (graph, bundle, parts), members in zip(used, np.split(by_rubric, ends[:-1]), strict=False):
        cells = start[members][:, None] + np.arange(len(bundle.criteria))
        for reached, column, way in zip(values, decided, ways, strict=True):
            columns = {criterion.id: column[cells[:, place]] for place, criterion in enumerate(bundle.criteria)}
            made = way(parts, columns)
            for place, name in enumerate(graph.criteria):
                reached[into[members] + place] = made[name]
    return values


def _variances(parts: Composition, columns: Columns) -> Columns:
    """The variance of each criterion, as if sub-points were independent; NaN for all where some
    cannot hold together, and for what is made by counting, since there the share is no sum."""
    reached = dict(columns)
    for composite, sub_points, _ in parts.composites:
        terms = [(point.weight / composite.weight) ** 2 * reached[point.id] for point in sub_points]
        reached[composite.id] = np.sum(terms, axis=0) + (np.nan if composite.count else 0.0)
    unknown = np.nan if parts.exclusions or parts.alternatives else 0.0
    return {name: values + unknown for name, values in reached.items()}
