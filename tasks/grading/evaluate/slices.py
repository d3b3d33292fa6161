"""The parts of the held-out set that figures are given for, and a figure as a row of `metrics`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rubricflow.tasks.core.stats.agreement import Stat
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import Interval
from rubricflow.tasks.core.stats.scores import resampled

TARGET = "target"
ScaleBounds = tuple[float, float, float]
Record = dict[str, Any]
SHARES = "items have different scales: scores as shares of each item's scale"


class Setting(NamedTuple):
    """What all figures of a run share. scales: by item; machine: its rater id; people: those of the persons; target:
    the human score that counts, a rater id or how several are made one; draws and seed: of the bootstrap."""

    scales: Mapping[str, ScaleBounds]
    machine: str = ""
    people: Sequence[str] = ()
    target: str = ""
    draws: int = 0
    seed: int = 0

    @property
    def raters(self) -> tuple[str, str]:
        """The human score and the machine."""
        return TARGET, self.machine

    def of_item(self, rows: pd.DataFrame, end: int) -> Floats:
        """The lowest (0), highest (1) score or the step (2) of every row's item."""
        bounds = rows["item_id"].map({item: scale[end] for item, scale in self.scales.items()})
        return np.asarray(bounds, dtype=np.float64)


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


def both_scored(rows: pd.DataFrame, *columns: str, also: Iterable[str] = ()) -> pd.DataFrame:
    """Of the rows with a score in each of the columns these columns and the `also` ones, copied only where rows are
    left out."""
    is_scored = np.logical_and.reduce([rows[column].notna().to_numpy() for column in columns])
    scored = narrowed(rows, [*columns, *also])
    return scored if is_scored.all() else scored[is_scored]


def on_one_scale(part: ScoreSlice, on: Setting) -> ScoreSlice:
    """The part itself, or, where its items have different scales, with every score as a share of its item's scale."""
    if part.scale is not None or part.rows.empty:
        return part
    fixed = (TARGET, "raw", "calibrated", "low", "high")
    names = [name for name in part.rows.columns if name in fixed or name.startswith("human:")]
    low, high = on.of_item(part.rows, 0), on.of_item(part.rows, 1)
    shares = part.rows[names].astype(float).sub(low, axis=0).div(high - low, axis=0)
    return part._replace(rows=part.rows.assign(**{name: shares[name] for name in names}))


def record(
    part: ScoreSlice,
    metric: str,
    value: Stat,
    n: int,
    *,
    stage: str = "calibrated",
    raters: tuple[str, str],
    interval: Interval | None = None,
    resampled: str | None = None,
    unscored: int = 0,
) -> Record:
    """A row of `metrics`; an interval is of the part's clusters unless `resampled` says otherwise."""
    notes = [SHARES if part.scale is None else None, value.note]
    low, high, undefined, clusters = None, None, 0, None
    if interval:
        low, high, undefined = interval.low, interval.high, interval.undefined
        clusters = interval.clusters if low is not None else None
    return {
        "metric": metric,
        "rater_a": raters[0],
        "rater_b": raters[1],
        "stage": stage,
        "slice": part.slice,
        "value_of": part.value_of,
        "value": value.value,
        "low": low,
        "high": high,
        "n": n,
        "unscored": unscored,
        "resampled": (resampled or part.resampled) if low is not None else "",
        "clusters": clusters,
        "undefined_draws": undefined,
        "note": "; ".join(note for note in notes if note) or None,
    }
