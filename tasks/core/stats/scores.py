"""The score frame: one row per held-out response, one column per rater."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts import ScaleBounds
from rubricflow.tasks.core.contracts.tables.data import MEASURED
from rubricflow.tasks.core.stats.bootstrap import cluster_codes

MEAN = "mean"
FAIR = "fair"
"""The rater id under which ingest writes fair scores."""
GIVEN = ["response_id", "rater_id", "rater_kind", "score"]
"""The columns of `gradings` that `target_scores` takes."""
OF_SEVERAL = (MEAN, FAIR)
"""Targets that are made of the scores of all persons."""


SIGNALS = ("length", "criterion.")
"""Signals that figures are given for, by the beginning of their names."""
PROBABILITIES = "level_probabilities"


class ScoreTables(NamedTuple):
    """What people and the machine said: columns of the tables of these names; the machine's gradings as `narrow` makes
    them; predictions with `response_id`, `score` and what else is to be known of them."""

    items: pa.Table
    responses: pa.Table
    people: pa.Table
    gradings: pa.Table
    predictions: pa.Table


class ScoreFrame(NamedTuple):
    """The score frame and what goes with it.

    frame: one row per response: `response_id`, `item_id`, `type`, `author_id`, `split`; `group:<variable>`;
    `human:<rater>` for every person, `target`, `raw` and `calibrated`, NaN where there is no score; `again`, whether
    all samples have one and the same score, 1 or 0, NaN where fewer than two have any; the other columns of the
    predictions; `signal:<name>` of the machine; `row`, its own number; `cluster`, the author, or the response itself
    where an author is missing, as a number.
    groups: the group variables; raters: the persons who scored; likely: level probabilities of each row, null where it
    has none or the predictions have no such column.
    """

    frame: pd.DataFrame
    groups: list[str]
    raters: list[str]
    likely: pa.ChunkedArray


def steps_off(
    rows: pd.DataFrame, scales: Mapping[str, ScaleBounds], score: str = "calibrated", of: str = "target"
) -> pd.Series:
    """How far each row's score lies above another one of its own, in steps of its item's scale. scales: item → (lowest,
    highest, step)."""
    return (rows[score] - rows[of]) / rows["item_id"].map({item: scale[2] for item, scale in scales.items()}).astype(
        float
    )


def score_frame(parts: Iterable[ScoreTables], target: str, splits: tuple[str, ...] = MEASURED) -> ScoreFrame:
    """The scores of the responses of these splits.

    parts: the tables of some items each. target: a rater id, or 'mean' for the mean of the available persons. An
    adjudicated score can be the target but is no person: it would flatter the agreement between people.
    """
    frames, likely = zip(*(_part(tables, target, splits) for tables in parts), strict=True)
    frame = _joined(frames)
    frame["row"] = np.arange(len(frame))
    ids = pa.array(frame[f"{resampled(frame)}_id"], pa.string())
    # Codes in the order of the ids, whatever the order of the rows.
    known = pc.unique(ids)
    places = pc.index_in(ids, value_set=known.take(pc.sort_indices(known)))
    frame["cluster"] = cluster_codes(places.to_numpy(zero_copy_only=False))[0]
    groups, raters = (
        sorted(name.removeprefix(kind) for name in frame.columns if name.startswith(kind))
        for kind in ("group:", "human:")
    )
    return ScoreFrame(frame, groups, raters, pa.chunked_array(likely, pa.list_(pa.float64())))


def _joined(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The frames one below the other, empty where one lacks a column; the frames are used up, column by column, so that
    memory holds the rows once."""
    dtype_of = {name: frame.dtypes[name] for frame in reversed(frames) for name in frame.columns}
    names = list(dict.fromkeys(name for frame in frames for name in frame.columns))
    columns = {}
    for name in names:
        own = [
            frame.pop(name) if name in frame.columns else pd.Series(np.nan, frame.index, dtype_of[name])
            for frame in frames
        ]
        columns[name] = pd.concat(own, ignore_index=True)
    return pd.DataFrame(columns, copy=False)


def _part(tables: ScoreTables, target: str, splits: tuple[str, ...]) -> tuple[pd.DataFrame, pa.Array]:
    items, responses, people, gradings, predictions = tables
    asked = responses.filter(pc.is_in(responses["split"], value_set=pa.array(splits)))
    frame = asked.select(["response_id", "item_id", "author_id", "split"]).to_pandas()

    def add(table: pa.Table, names: Mapping[str, str], key: str = "response_id") -> pa.ChunkedArray:
        """Adds columns of a table under other names, null where it lacks a response; the row of each in the table."""
        at = pc.index_in(asked[key], value_set=table[key])
        for column, name in names.items():
            found = table[column].take(at).to_pandas()
            frame[name] = found.astype(float) if pa.types.is_floating(table[column].type) else found
        return at

    add(items, {"type": "type"}, key="item_id")
    for name in map_keys(asked["groups"]):
        frame[f"group:{name}"] = pc.map_lookup(asked["groups"], name, "first").to_pandas()
    persons = people.filter(pc.and_(pc.equal(people["rater_kind"], "human"), pc.is_valid(people["score"])))
    for rater in pc.unique(persons["rater_id"]).to_pylist():
        add(persons.filter(pc.equal(persons["rater_id"], rater)), {"score": f"human:{rater}"})
    add(target_scores(people, target), {"score": "target"})
    raw = gradings.select(["response_id", "score"]).group_by("response_id", use_threads=False)
    raw = raw.aggregate([("score", name) for name in ("mean", "min", "max", "count")])
    several = pc.if_else(pc.greater(raw["score_count"], 1), pc.equal(raw["score_min"], raw["score_max"]), None)
    add(raw.append_column("again", several.cast(pa.float64())), {"score_mean": "raw", "again": "again"})
    told = [name for name in predictions.column_names if name not in ("response_id", PROBABILITIES)]
    at = add(predictions, {name: "calibrated" if name == "score" else name for name in told})
    add(gradings, {name: name for name in gradings.column_names if name.startswith("signal:")})
    if PROBABILITIES not in predictions.column_names:
        return frame, pa.nulls(len(frame), pa.list_(pa.float64()))
    return frame, predictions[PROBABILITIES].take(at).combine_chunks()


def narrow(gradings: Iterable[pa.RecordBatch]) -> pa.Table:
    """Of batches of `gradings` (response_id, score and, where they are asked for, signals): response_id, score, and
    `signal:<name>` for each signal that figures are given for. A map column takes many times the memory of what is used
    of it."""
    parts = [pa.table({"response_id": pa.array([], pa.string()), "score": pa.array([], pa.float64())})]
    for batch in gradings:
        columns = {"response_id": batch["response_id"], "score": batch["score"]}
        if "signals" in batch.schema.names:
            for name in map_keys(pa.chunked_array([batch["signals"]])):
                if name.startswith(SIGNALS):
                    columns[f"signal:{name}"] = pc.map_lookup(batch["signals"], name, "first")
        parts.append(pa.table(columns))
    return pa.concat_tables(parts, promote_options="default")


def resampled(scores: pd.DataFrame) -> str:
    """What intervals resample: 'author' where every response has one, else 'response'."""
    return "author" if len(scores) and bool(scores["author_id"].notna().all()) else "response"


def map_keys(column: pa.ChunkedArray) -> list[str]:
    """The keys that occur in a map column, in order."""
    keys = [chunk.keys for chunk in column.chunks]
    return sorted(pc.unique(pa.chunked_array(keys, pa.string())).to_pylist())


def level_probabilities(likely: pa.ChunkedArray, rows: pd.Series) -> np.ndarray:
    """Probabilities of the levels, shape (rows, levels), of rows of `likely` that all have them on one scale."""
    lists = likely.take(pa.array(rows.to_numpy(dtype=np.int64))).combine_chunks()
    return np.asarray(lists.flatten()).reshape(len(rows), -1)


# The human score that counts: what machine scores are calibrated to and compared with.


def target_scores(people: pa.Table, target: str) -> pa.Table:
    """Columns `response_id` and `score`: a rater's score or, for target 'mean', the mean of the persons who gave one.

    people: the columns `GIVEN`. An adjudicated or resolved score is made from those of
    persons and so has no part in their mean; it can be the target by its name, and so can the fair score, which
    ingest writes where a study asks for it.
    """
    is_target = pc.equal(people["rater_kind"], "human") if target == MEAN else pc.equal(people["rater_id"], target)
    # Equal sets of scores have equal means in whatever order they are stored.
    scored = people.filter(pc.and_(is_target, pc.is_valid(people["score"])))
    scored = scored.sort_by([("response_id", "ascending"), ("score", "ascending")])
    means = scored.group_by("response_id", use_threads=False).aggregate([("score", "mean")])
    return means.rename_columns(["response_id", "score"])


def people_marks(marks: pa.Table, target: str) -> pa.Table:
    """The marks to compare with: those of the target rater where that is a person who marked, else everybody's.

    marks: response_id, criterion_id, rater_id, rater_kind, decision.
    """
    human_marks = marks.filter(pc.and_(pc.equal(marks["rater_kind"], "human"), pc.is_valid(marks["decision"])))
    target_marks = human_marks.filter(pc.equal(human_marks["rater_id"], target))
    return target_marks if len(target_marks) else human_marks
