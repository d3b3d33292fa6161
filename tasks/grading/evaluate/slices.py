"""The parts of the held-out set that figures are given for, and a figure as a row of `metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from rubricflow.tasks.core.stats.agreement import Stat
from rubricflow.tasks.core.stats.bootstrap import Interval
from rubricflow.tasks.core.stats.scores import resampled

TARGET = "target"
ScaleBounds = tuple[float, float, float]
Record = dict[str, Any]
SHARES = "items have different scales: scores as shares of each item's scale"


class ScoreSlice(NamedTuple):
    """Rows of the score frame; on one scale, None where the items have different ones; resampled: what their clusters
    are, as in the whole set."""

    slice: str
    value_of: str
    rows: pd.DataFrame
    scale: ScaleBounds | None
    resampled: str


def slices(scores: pd.DataFrame, scales: Mapping[str, ScaleBounds]) -> Iterator[ScoreSlice]:
    """The whole set, then every item and type of item."""
    yield ScoreSlice("all", "all", scores, common_scale(scores, scales), resampled(scores))
    yield from _parts(scores, scales, {"item": "item_id", "type": "type"})


def group_slices(
    scores: pd.DataFrame, groups: Sequence[str], scales: Mapping[str, ScaleBounds]
) -> Iterator[ScoreSlice]:
    """Every group of each group variable; groups are large, so their rows should have no more columns than are used."""
    yield from _parts(scores, scales, {name: f"group:{name}" for name in groups})


def _parts(
    scores: pd.DataFrame, scales: Mapping[str, ScaleBounds], column_of: Mapping[str, str]
) -> Iterator[ScoreSlice]:
    by = resampled(scores)
    for kind, column in column_of.items():
        for value, places in scores.groupby(column, sort=True).indices.items():
            rows = scores if len(places) == len(scores) else scores.iloc[places]
            yield ScoreSlice(kind, str(value), rows, common_scale(rows, scales), by)


def common_scale(rows: pd.DataFrame, scales: Mapping[str, ScaleBounds]) -> ScaleBounds | None:
    """The scale of all the rows' items, None where they differ."""
    used = {scales[item] for item in rows["item_id"].unique()}
    return next(iter(used)) if len(used) == 1 else None


def on_items(whole_set: ScoreSlice) -> ScoreSlice:
    """The whole set for a figure that is taken item by item, each on its own scale: nothing is put on another one."""
    return whole_set._replace(scale=(0.0, 1.0, 1.0))


def narrowed(rows: pd.DataFrame, columns: Iterable[str]) -> pd.DataFrame:
    """These columns of the rows, each once; nothing is copied."""
    return pd.DataFrame({column: rows[column] for column in columns}, copy=False)


def score_columns(scores: pd.DataFrame) -> list[str]:
    """The columns that hold scores."""
    fixed = (TARGET, "raw", "calibrated", "low", "high")
    return [name for name in scores.columns if name in fixed or name.startswith("human:")]


def on_one_scale(part: ScoreSlice, scales: Mapping[str, ScaleBounds]) -> ScoreSlice:
    """The part itself, or, where its items have different scales, with every score as a share of its item's scale."""
    if part.scale is not None or part.rows.empty:
        return part
    low = part.rows["item_id"].map({item: bounds[0] for item, bounds in scales.items()})
    width = part.rows["item_id"].map({item: bounds[1] - bounds[0] for item, bounds in scales.items()})
    names = score_columns(part.rows)
    shares = part.rows[names].astype(float).sub(low, axis=0).div(width, axis=0)
    return part._replace(rows=part.rows.assign(**{name: shares[name] for name in names}))


def record(
    part: ScoreSlice,
    metric: str,
    value: Stat,
    n: int,
    *,
    stage: str,
    raters: tuple[str, str],
    interval: Interval | None = None,
    resampled: str | None = None,
    unscored: int = 0,
) -> Record:
    """A row of `metrics`; an interval is of the part's clusters unless `resampled` says otherwise."""
    notes = [SHARES if part.scale is None else None, value.note]
    return {
        "metric": metric,
        "rater_a": raters[0],
        "rater_b": raters[1],
        "stage": stage,
        "slice": part.slice,
        "value_of": part.value_of,
        "value": value.value,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "n": n,
        "unscored": unscored,
        "resampled": (resampled or part.resampled) if interval and interval.low is not None else "",
        "clusters": interval.clusters if interval and interval.low is not None else None,
        "undefined_draws": interval.undefined if interval else 0,
        "note": "; ".join(note for note in notes if note) or None,
    }
