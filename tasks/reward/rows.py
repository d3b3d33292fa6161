"""Rewards and dependency cases as their tables, column by column."""

from __future__ import annotations

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


def rewards(of: Locals, found: Aggregated, aggregation: Aggregation, settings: Reward) -> pa.Table:
    """The table `rewards` of a batch under one aggregation; NaN is null.

    `inference` and `retention` are the study's for gear, 'none' and empty for the aggregations that use neither; `eta`
    is the study's for all.
    """
    batch, n, typed = of.batch, len(of.batch.of), aggregation == "gear"
    before = np.concatenate([[0], np.cumsum(~batch.scored)])
    return _table(
        Rewards,
        {
            **_who(of, np.arange(n)),
            "graph_id": pa.array([one.graph_id for one in batch.wired], pa.string()).take(pa.array(batch.of)),
            "aggregation": pa.repeat(aggregation, n),
            "reward": _or_null(found.reward),
            "low": _or_null(found.low),
            "high": _or_null(found.high),
            "reward_variance": _or_null(reward_variances(batch, aggregation)),
            "marginals": _marginals(batch, found.marginal),
            "inference": pa.repeat(settings.inference if typed else "none", n),
            "eta": pa.repeat(settings.eta, n),
            "retention": _same_map(settings.retention.model_dump() if typed else {}, n),
            "unscored": pa.array(np.diff(before[batch.start])),
            "decided_by": of.decided_by,
        },
    )


def cases(of: Locals, found: Cases, aggregation: Aggregation) -> pa.Table:
    """The table `edge_cases` of the cases of a batch under one aggregation."""
    batch, response = of.batch, of.batch.of[found.response]
    first_name = np.cumsum([0, *(len(one.criteria) for one in batch.wired)])[response]
    first_edge = np.cumsum([0, *(len(one.parent) for one in batch.wired)])[response]
    parents = np.concatenate([np.empty(0, dtype=np.int64), *(one.parent for one in batch.wired)])
    names = _names(batch)
    return _table(
        EdgeCases,
        {
            **_who(of, found.response),
            "aggregation": pa.repeat(aggregation, len(found.response)),
            "parent": names.take(pa.array(first_name + parents[first_edge + found.edge])),
            "child": names.take(pa.array(first_name + found.child - batch.start[found.response])),
            "relation": pa.array(RELATIONS, pa.string()).take(pa.array(found.relation)),
            "state": pa.array(["satisfied", "violated"]).take(pa.array(found.violated.astype(np.int64))),
            "effective": pa.array(found.effective),
            "leaked": _or_null(found.leaked),
            "preserved": _or_null(found.preserved),
        },
    )


def _table(row: type[Row], columns: dict[str, pa.Array]) -> pa.Table:
    want = schema(row)
    return pa.Table.from_arrays([columns[name] for name in want.names], schema=want)


def _who(of: Locals, at: Ints) -> dict[str, pa.Array]:
    """Whose judgments of what, for these responses of the batch."""
    places = pa.array(at)
    rubrics = pa.array([one.rubric_id for one in of.batch.wired], pa.string())
    return {
        "response_id": of.response_id.take(places),
        "item_id": of.item_id.take(places),
        "rubric_id": rubrics.take(pa.array(of.batch.of[at])),
        "rater_id": of.rater_id.take(places),
        "sample": of.sample.take(places),
    }


def _marginals(batch: Batch, marginal: Floats) -> pa.Array:
    """(n,) maps from criteria to their shares, without those that have none."""
    sizes = np.diff(batch.start)
    first = np.cumsum([0, *(len(one.criteria) for one in batch.wired)])[batch.of] - batch.start[:-1]
    known = np.flatnonzero(~np.isnan(marginal))
    names = _names(batch).take(pa.array((np.repeat(first, sizes) + np.arange(len(marginal)))[known]))
    ends = np.searchsorted(known, batch.start)
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), names, pa.array(marginal[known]))


def _names(batch: Batch) -> pa.Array:
    """The criteria of all rubrics, one after the other."""
    return pa.array([name for one in batch.wired for name in one.criteria], pa.string())


def _same_map(values: dict[str, float], n: int) -> pa.Array:
    """(n,) times the same map."""
    one = pa.array([list(values.items())], pa.map_(pa.string(), pa.float64()))
    return one.take(pa.array(np.zeros(n, dtype=np.int64)))


def _or_null(values: Floats) -> pa.Array:
    """NaN as null."""
    return pa.array(values, from_pandas=True)
