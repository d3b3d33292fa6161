"""The parts of the held-out set that figures are given for, and a figure as a row of `metrics`; the calibrated scores'
intervals, risks and routes, held against the target there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.stats.agreement import Stat, level_count, to_levels
from rubricflow.tasks.core.stats.arrays import Floats, Ints, ratio
from rubricflow.tasks.core.stats.bootstrap import Interval, cluster_sums, draw_totals, interval
from rubricflow.tasks.core.stats.probability import augrc, aurc, oracle_aurc, ordinal_ece, random_aurc, rps
from rubricflow.tasks.core.stats.promise import exact_interval, missed_by_constant
from rubricflow.tasks.core.stats.scores import level_probabilities, resampled

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
    low = on.of_item(part.rows, 0)
    high = on.of_item(part.rows, 1)
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
        low = interval.low
        high = interval.high
        undefined = interval.undefined
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


SLACK = 1e-9
EXACT = "none: exact binomial"
"""In place of what was resampled: errors among the released are too few to resample."""
_BESIDE = ("item_id", "cluster", "row", "route", "low", "high", "risk")
"""Columns of the score frame that are looked at next to the scores."""


def released(part: ScoreSlice, likely: pa.ChunkedArray, plan: Release, on: Setting) -> Iterator[Record]:
    """How many scores go out, how many of those are further off than the tolerance, and how many the best constant
    score of each item would be, chosen on these very responses; whether the intervals hold what
    they promise; how well the risk ranks the errors; how good the level probabilities are."""
    rows = both_scored(part.rows, TARGET, "calibrated", also=_BESIDE)
    if rows.empty:
        return
    steps = on.of_item(rows, 2)
    off: Floats = np.abs(rows["calibrated"].to_numpy(float) - rows[TARGET].to_numpy(float)) / steps
    wrong = off > plan.tolerance + SLACK
    out = (rows["route"] == "release").to_numpy()
    codes = rows["cluster"].to_numpy()
    ones = np.ones(len(rows))
    went, ends = share(out.astype(float), ones, codes, on)
    yield record(part, "released_share", went, len(rows), stage="released", raters=on.raters, interval=ends)
    missed = np.zeros_like(out)
    for item, at in rows.groupby("item_id", sort=False).indices.items():
        lowest, highest, step = on.scales[str(item)]
        human = (rows[TARGET].to_numpy(float)[at] - lowest) / step
        missed[at] = missed_by_constant(human, level_count(lowest, highest, step) - 1, plan.tolerance)
    for stage, chosen in (("released", out), ("calibrated", np.ones_like(out))):
        n = int(chosen.sum())
        for name, flags in (("beyond_tolerance", wrong), ("constant_beyond_tolerance", missed)):
            bad = int((flags & chosen).sum())
            value, ends = Stat(None, "nothing is released"), None
            if n:
                value = Stat(bad / n)
                ends = Interval(*exact_interval(bad, n), 0)
            yield record(part, name, value, n, stage=stage, raters=on.raters, interval=ends, resampled=EXACT)
    bounded = rows[["low", "high"]].notna().all(axis=1).to_numpy()
    if bounded.any():
        low, high, human = (rows[name].to_numpy(float) for name in ("low", "high", TARGET))
        covered = (human >= low - SLACK) & (human <= high + SLACK)
        for name, top in (("interval_coverage", covered), ("interval_width", (high - low) / steps)):
            value, ends = share(np.where(bounded, top, 0.0), bounded.astype(float), codes, on)
            yield record(part, name, value, int(bounded.sum()), raters=on.raters, interval=ends)
    has_risk = rows["risk"].notna().to_numpy()
    n = int(has_risk.sum())
    if n > 1:
        loss = off[has_risk]
        confidence = -rows["risk"].to_numpy(float)[has_risk]
        order = {"aurc": aurc(loss, confidence), "augrc": augrc(loss, confidence)}
        order |= {"aurc_oracle": oracle_aurc(loss), "aurc_random": random_aurc(loss)}
        unscored = int(part.rows[TARGET].notna().sum()) - n
        for name, figure in order.items():
            yield record(part, name, Stat(figure), n, raters=on.raters, unscored=unscored)
    if n and part.scale is not None:
        with_risk = rows[has_risk]
        chances = level_probabilities(likely, with_risk["row"])
        levels = to_levels(with_risk[TARGET], *part.scale)
        for name, stat in (("ece", ordinal_ece(chances, levels)), ("rps", rps(chances, levels))):
            yield record(part, name, stat, n, raters=on.raters)


def share(top: Floats, bottom: Floats, codes: Ints, on: Setting) -> tuple[Stat, Interval | None]:
    """Sum of `top` over sum of `bottom` with its cluster bootstrap interval; None where `bottom` sums to zero."""
    if not bottom.sum():
        return Stat(None, "undefined: no rows"), None
    value = Stat(float(top.sum() / bottom.sum()))
    if not on.draws:
        return value, None
    # A cluster code without rows here belongs to another part of the set.
    sums = cluster_sums(np.column_stack([top, bottom]).astype(float), codes)
    (totals,) = draw_totals([sums], on.draws, on.seed)
    return value, interval(ratio(*totals.T), len(sums))
