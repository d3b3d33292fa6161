"""The machine's scores beside those of another run over the same responses: a baseline, or an earlier judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from tasks.contracts.errors import InputError
from tasks.evaluate.agree import both_scored, item_qwk, mean_of_items
from tasks.evaluate.item_figures import by_item, drawn_qwk, stat
from tasks.evaluate.slices import TARGET, Record, ScaleBounds, ScoreSlice, record
from tasks.stats.arrays import Floats

OTHER = "other:"
"""Before the name of another run: the column of the score frame that holds its scores."""


def other_column(name: str) -> str:
    """The column of the score frame that holds the scores of what is called so."""
    return OTHER + name


def placed(
    frame: pd.DataFrame, score_of: Mapping[str, float | None], scales: Mapping[str, ScaleBounds], name: str
) -> pd.Series:
    """The scores of another run in the rows of the score frame, NaN where it has none.

    InputError where one lies off the scale that its item has here: the two would not compare.
    """
    scores = frame["response_id"].map(score_of).astype(float)
    low = frame["item_id"].map({item: bounds[0] for item, bounds in scales.items()})
    high = frame["item_id"].map({item: bounds[1] for item, bounds in scales.items()})
    if ((scores < low) | (scores > high)).any():
        raise InputError(f"'{name}' scores some of the items on another scale", field="evaluation.beside")
    return scores


def against_others(
    whole_set: ScoreSlice, scales: Mapping[str, ScaleBounds], machine: str, draws: int, seed: int
) -> Iterator[Record]:
    """QWK of each other run's calibrated scores with the target (other_qwk), on the responses that both scored, and how
    much more the machine has there (over_other_qwk): of every item with enough responses, the mean over items and,
    where items are on one scale, pooled; intervals paired, over the same clusters."""
    for column in (name for name in whole_set.rows.columns if name.startswith(OTHER)):
        rows = both_scored(whole_set.rows, TARGET, "calibrated", column, beside=["item_id", "cluster"])
        name = column.removeprefix(OTHER)
        if rows.empty:
            continue
        names = ("other_qwk", name), ("over_other_qwk", f"{machine} beside {name}")
        for metric_and_rater, (value, drawn) in zip(names, _figures(rows, scales, column, draws, seed), strict=True):
            yield from by_item(whole_set, rows, scales, metric_and_rater, value, drawn)
        if whole_set.scale is None:
            continue
        pooled, scale = rows.assign(item_id=whole_set.value_of), {whole_set.value_of: whole_set.scale}
        for (metric, rater), (value, drawn) in zip(names, _figures(pooled, scale, column, draws, seed), strict=True):
            figure, interval = stat(float(value[0])), mean_of_items(drawn, pooled)
            raters = (TARGET, rater)
            yield record(whole_set, metric, figure, len(pooled), stage="calibrated", raters=raters, interval=interval)


def _figures(
    rows: pd.DataFrame, scales: Mapping[str, ScaleBounds], column: str, draws: int, seed: int
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """QWK of the other's scores by item (items) with its draws (items, draws), and the machine's less it in the same
    way; the draws are paired."""
    kappas, theirs = (item_qwk(rows, scales, TARGET, name) for name in ("calibrated", column))
    drawn, drawn_theirs = (drawn_qwk(rows, name, scales, draws, seed) for name in ("calibrated", column))
    return (theirs, drawn_theirs), (kappas - theirs, drawn - drawn_theirs)
