"""Figures of every item and their mean, for what stands beside the machine's score: length alone, the text alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from rubricflow.tasks.core.stats.agreement import Stat
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import interval
from rubricflow.tasks.grading.evaluate.agree import RaterPair, item_draws, mean_of_items, over_items
from rubricflow.tasks.grading.evaluate.slices import TARGET, Record, ScaleBounds, ScoreSlice, on_items, record

FEWEST = 30
"""Responses of an item that a figure of it is given for."""


def by_item(
    whole_set: ScoreSlice,
    rows: pd.DataFrame,
    scales: Mapping[str, ScaleBounds],
    metric_and_rater: tuple[str, str],
    values: Floats,
    drawn: Floats,
) -> Iterator[Record]:
    """A figure of every item with enough responses, and its mean over items.

    named: metric and rater; values, drawn: of the items in their order, (items,) and (items, draws).
    """
    metric, raters = metric_and_rater[0], (TARGET, metric_and_rater[1])
    for (item, part), value, draw in zip(rows.groupby("item_id", sort=True), values, drawn, strict=True):
        if len(part) >= FEWEST:
            part_of_item = whole_set._replace(slice="item", value_of=str(item), scale=scales[str(item)])
            ends = interval(draw, part["cluster"].nunique())
            yield record(part_of_item, metric, stat(value), len(part), stage="calibrated", raters=raters, interval=ends)
    mean = stat(float(over_items(values[:, None])[0]))
    part_of_item, ends = on_items(whole_set), mean_of_items(drawn, rows)
    yield record(part_of_item, f"{metric}_item_mean", mean, len(rows), stage="calibrated", raters=raters, interval=ends)


def drawn_qwk(rows: pd.DataFrame, column: str, scales: Mapping[str, ScaleBounds], draws: int, seed: int) -> Floats:
    """QWK of a column with the target on every item in every draw, (items, draws)."""
    if not draws:
        return np.empty((rows["item_id"].nunique(), 0))
    return item_draws(rows, scales, RaterPair("", "", "", TARGET, column), "qwk", draws, seed)


def stat(value: float) -> Stat:
    """A QWK, undefined where it is NaN."""
    return Stat(None, "undefined: constant scores") if np.isnan(value) else Stat(float(value))
