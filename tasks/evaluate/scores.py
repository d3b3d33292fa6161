"""The score frame: one row per held-out response, one column per rater."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd
import pyarrow as pa

from tasks.stats.target import target_scores


class ScoreTables(NamedTuple):
    """What people and the machine said: the tables of these names, gradings apart by who graded."""

    items: pa.Table
    responses: pa.Table
    people: pa.Table
    gradings: pa.Table
    predictions: pa.Table


def score_frame(
    tables: ScoreTables, target: str, splits: tuple[str, ...] = ("test",)
) -> tuple[pd.DataFrame, list[str], list[str]]:
    """(frame as `agree` reads it, the group variables, the persons who scored).

    Only responses of these splits are in it. `target` is a rater id, or 'mean' for the mean of the available persons.
    An adjudicated score can be the target but is no person: it would flatter the agreement between people.
    """
    items, responses, people, gradings, predictions = tables
    frame = responses.select(["response_id", "item_id", "author_id", "split"]).to_pandas()
    kinds = dict(zip(items["item_id"].to_pylist(), items["type"].to_pylist(), strict=True))
    frame["type"] = frame["item_id"].map(kinds)
    memberships = [dict(row) for row in responses["groups"].to_pylist()]
    groups = sorted({name for row in memberships for name in row})
    for name in groups:
        frame[f"group:{name}"] = [row.get(name) for row in memberships]
    persons = people.select(["response_id", "rater_id", "rater_kind", "score"]).to_pandas()
    persons = persons[(persons["rater_kind"] == "human") & persons["score"].notna()]
    raters = sorted(persons["rater_id"].unique())
    wide = persons.pivot(index="response_id", columns="rater_id", values="score")
    for rater in raters:
        frame[f"human:{rater}"] = frame["response_id"].map(wide[rater])
    wanted = target_scores(people, target).to_pandas().set_index("response_id")["score"]
    frame["target"] = frame["response_id"].map(wanted).astype(float)
    for column, table in (("raw", gradings), ("calibrated", predictions)):
        scores = table.select(["response_id", "score"]).to_pandas().groupby("response_id")["score"].mean()
        frame[column] = frame["response_id"].map(scores).astype(float)
    return frame[frame["split"].isin(splits)].reset_index(drop=True), groups, raters
