"""Rewards and dependency cases as their tables, column by column, a part of the responses at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tasks.contracts.schema import Row, schema
from tasks.contracts.settings.reward import Aggregation, Reward
from tasks.contracts.tables.reward import EdgeCases, Rewards
from tasks.reward.aggregate import Aggregated
from tasks.reward.leakage import RELATIONS, Cases
from tasks.reward.local import Locals
from tasks.reward.variance import reward_variances
from tasks.reward.wire import Batch
from tasks.stats.arrays import Floats, Ints

PART = 1_000_000
"""Responses, criteria and dependencies whose rows are in a part, together; more only where one response has more."""


def parts(batch: Batch) -> list[slice]:
    """The responses of a batch in parts, one after the other; a single empty one where there are none."""
    sizes = [1 + len(rubric.criteria) + len(rubric.parent) for rubric in batch.wired]
    filled = np.cumsum(np.array(sizes, dtype=np.int64)[batch.rubric_index]) // PART
    cuts = (np.flatnonzero(np.diff(filled)) + 1).tolist()
    return [slice(*ends) for ends in itertools.pairwise([0, *cuts, len(filled)])]


def rewards(judged: Locals, aggregated: Aggregated, aggregation: Aggregation, settings: Reward) -> Iterator[pa.Table]:
    """The table `rewards` of a batch under one aggregation, in `parts`; NaN is null.

    `inference` and `retention` are the study's for gear, 'none' and empty for the aggregations that use neither; `eta`
    is the study's for all.
    """
    # Of all at once: the last digit of a sum by BLAS depends on the rows beside it.
    variance = reward_variances(judged.batch, aggregation)
    for part in parts(judged.batch):
        of_part = aggregated.part(part, judged.batch.start)
        yield _rewards(judged.part(part), of_part, variance[part], aggregation, settings)


def _rewards(
    judged: Locals, aggregated: Aggregated, variance: Floats, aggregation: Aggregation, settings: Reward
) -> pa.Table:
    batch, n = judged.batch, len(judged.batch.rubric_index)
    unscored_before = np.concatenate([[0], np.cumsum(~batch.scored)])
    graph_ids = pa.array([rubric.graph_id for rubric in batch.wired], pa.string())
    typed = aggregation == "gear"
    inference = settings.inference if typed else "none"
    retention = settings.retention.model_dump() if typed else {}
    return _table(
        Rewards,
        {
            **_identifiers(judged, np.arange(n)),
            "graph_id": graph_ids.take(pa.array(batch.rubric_index)),
            "aggregation": pa.repeat(aggregation, n),
            "reward": _or_null(aggregated.reward),
            "low": _or_null(aggregated.low),
            "high": _or_null(aggregated.high),
            "reward_variance": _or_null(variance),
            "marginals": _marginals(batch, aggregated.marginal),
            "inference": pa.repeat(inference, n),
            "eta": pa.repeat(settings.eta, n),
            "retention": _same_map(retention, n),
            "unscored": pa.array(np.diff(unscored_before[batch.start])),
            "decided_by": judged.decided_by,
        },
    )


def cases(judged: Locals, edge_cases: Cases, aggregation: Aggregation) -> Iterator[pa.Table]:
    """The table `edge_cases` of the cases of a batch under one aggregation, in the same parts."""
    for part in parts(judged.batch):
        here = slice(*np.searchsorted(edge_cases.response, [part.start, part.stop]))
        yield _cases(judged, edge_cases.part(here), aggregation)


def _cases(judged: Locals, edge_cases: Cases, aggregation: Aggregation) -> pa.Table:
    batch, rubric_index = judged.batch, judged.batch.rubric_index[edge_cases.response]
    first_name = np.cumsum([0, *(len(rubric.criteria) for rubric in batch.wired)])[rubric_index]
    first_edge = np.cumsum([0, *(len(rubric.parent) for rubric in batch.wired)])[rubric_index]
    parents = np.concatenate([np.empty(0, dtype=np.int64), *(rubric.parent for rubric in batch.wired)])
    names = _names(batch)
    parent = first_name + parents[first_edge + edge_cases.edge]
    child = first_name + edge_cases.child - batch.start[edge_cases.response]
    states = pa.array(["satisfied", "violated"])
    return _table(
        EdgeCases,
        {
            **_identifiers(judged, edge_cases.response),
            "aggregation": pa.repeat(aggregation, len(edge_cases.response)),
            "parent": names.take(pa.array(parent)),
            "child": names.take(pa.array(child)),
            "relation": pa.array(RELATIONS, pa.string()).take(pa.array(edge_cases.relation)),
            "state": states.take(pa.array(edge_cases.violated.astype(np.int64))),
            "effective": pa.array(edge_cases.effective),
            "leaked": _or_null(edge_cases.leaked),
            "preserved": _or_null(edge_cases.preserved),
        },
    )


def _table(row: type[Row], columns: dict[str, pa.Array]) -> pa.Table:
    want = schema(row)
    return pa.Table.from_arrays([columns[name] for name in want.names], schema=want)


def _identifiers(judged: Locals, response: Ints) -> dict[str, pa.Array]:
    """Whose judgments of what, for these responses of the batch."""
    places = pa.array(response)
    rubrics = pa.array([rubric.rubric_id for rubric in judged.batch.wired], pa.string())
    return {
        "response_id": judged.response_id.take(places),
        "item_id": judged.item_id.take(places),
        "rubric_id": rubrics.take(pa.array(judged.batch.rubric_index[response])),
        "rater_id": judged.rater_id.take(places),
        "sample": judged.sample.take(places),
    }


def _marginals(batch: Batch, marginal: Floats) -> pa.Array:
    """(n,) maps from criteria to their shares, without those that have none."""
    sizes = np.diff(batch.start)
    first = np.cumsum([0, *(len(rubric.criteria) for rubric in batch.wired)])[batch.rubric_index] - batch.start[:-1]
    valid = np.flatnonzero(~np.isnan(marginal))
    names = _names(batch).take(pa.array((np.repeat(first, sizes) + np.arange(len(marginal)))[valid]))
    ends = np.searchsorted(valid, batch.start)
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), names, pa.array(marginal[valid]))


def _names(batch: Batch) -> pa.Array:
    """The criteria of all rubrics, one after the other."""
    names = itertools.chain.from_iterable(rubric.criteria for rubric in batch.wired)
    return pa.array(list(names), pa.string())


def _same_map(values: dict[str, float], n: int) -> pa.Array:
    """(n,) times the same map."""
    single = pa.array([list(values.items())], pa.map_(pa.string(), pa.float64()))
    return single.take(pa.array(np.zeros(n, dtype=np.int64)))


def _or_null(values: Floats) -> pa.Array:
    """NaN as null."""
    return pa.array(values, from_pandas=True)
