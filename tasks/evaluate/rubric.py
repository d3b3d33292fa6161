"""What the rubric adds: the calibrated score beside what the same predictors of the text reach without the judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tasks.evaluate.agree import both_scored, item_qwk
from tasks.evaluate.item_figures import by_item, drawn_qwk
from tasks.evaluate.slices import TARGET, Record, ScaleBounds, ScoreSlice

TEXT = "text_only"
"""The rater that knows the text and the labels, and no rubric; the column of its scores."""


def against_text(
    whole_set: ScoreSlice, scales: Mapping[str, ScaleBounds], machine: str, draws: int, seed: int
) -> Iterator[Record]:
    """QWK of the text alone with the target (text_qwk), and how much more the calibrated score has (over_text_qwk): of
    every item with enough responses, and the mean over items; intervals paired, over the same clusters. Nothing where
    no such baseline was fitted.
    """
    if TEXT not in whole_set.rows:
        return
    rows = both_scored(whole_set.rows, TARGET, "calibrated", TEXT, beside=["item_id", "cluster"])
    if rows.empty:
        return
    kappas, alone = (item_qwk(rows, scales, TARGET, column) for column in ("calibrated", TEXT))
    drawn, drawn_alone = (drawn_qwk(rows, column, scales, draws, seed) for column in ("calibrated", TEXT))
    yield from by_item(whole_set, rows, scales, ("text_qwk", TEXT), alone, drawn_alone)
    yield from by_item(whole_set, rows, scales, ("over_text_qwk", machine), kappas - alone, drawn - drawn_alone)
