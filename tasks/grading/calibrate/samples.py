"""One machine grading per response: repeated samples are averaged."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.grading.calibrate.features import map_entries


def one_per_response(gradings: pa.Table) -> pa.Table:
    """Gradings of one rater with a response's samples as one row; without repetitions the table is returned as it is.

    gradings: columns `response_id`, `sample`, `status`, `score`, `trait_scores`, `signals` and any others. Scores,
    trait scores and signals are means over the scored samples that give them; the rest is the first such sample's.
    Where none is scored, one sample speaks for all: the first prechecked or, failing that, the first.
    """
    if pc.count_distinct(gradings["response_id"]).as_py() == len(gradings):
        return gradings
    rank = pc.index_in(gradings["status"], value_set=pa.array(["scored", "precheck", "unscored"]))
    by = [(name, "ascending") for name in ("response_id", "rank", "sample")]
    ranked = gradings.append_column("rank", rank).sort_by(by).combine_chunks()
    response = ranked["response_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    first = np.concatenate([[True], np.diff(response) > 0])
    counts = first | (ranked["rank"].to_numpy() == 0)
    counted, group = ranked.filter(pa.array(counts)), response[counts]
    scores = counted.group_by("response_id", use_threads=False).aggregate([("score", "mean")])
    table = ranked.filter(pa.array(first)).drop_columns(["rank"])
    table = _replace(table, "score", scores["score_mean"])
    for name in ("trait_scores", "signals"):
        table = _replace(table, name, _mean_map(counted[name].combine_chunks(), group, len(table)))
    return table


def _mean_map(column: pa.MapArray, group: npt.NDArray[np.int32], groups: int) -> pa.MapArray:
    """Key-wise means of a map column's rows, one map per group 0 .. groups - 1; group: (n,)."""
    row, entries = map_entries(column)
    long = pa.table({"group": group[row], "key": entries["key"], "value": entries["value"]})
    means = long.group_by(["group", "key"], use_threads=False).aggregate([("value", "mean")])
    means = means.sort_by([("group", "ascending"), ("key", "ascending")]).combine_chunks()
    ends = np.cumsum(np.bincount(means["group"].to_numpy(), minlength=groups))
    offsets = pa.array(np.concatenate([[0], ends]), pa.int32())
    return pa.MapArray.from_arrays(offsets, means["key"].combine_chunks(), means["value_mean"].combine_chunks())


def _replace(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)
