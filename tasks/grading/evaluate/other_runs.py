"""The machine's scores beside those of another run over the same responses: a baseline, or an earlier judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.grading.evaluate.agree import both_scored, item_qwk
from rubricflow.tasks.grading.evaluate.item_figures import by_item, drawn_qwk
from rubricflow.tasks.grading.evaluate.slices import TARGET, Record, ScaleBounds, ScoreSlice

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
    """How much more QWK with the target the machine has than each other run (over_other_qwk), on the responses that
    both scored: of every item with enough responses, and the mean over items; intervals paired, over the same clusters.
    """
    for column in (name for name in whole_set.rows.columns if name.startswith(OTHER)):
        rows = both_scored(whole_set.rows, TARGET, "calibrated", column, beside=["item_id", "cluster"])
        if rows.empty:
            continue
        mine, theirs = (item_qwk(rows, scales, TARGET, name) for name in ("calibrated", column))
        drawn, drawn_theirs = (drawn_qwk(rows, name, scales, draws, seed) for name in ("calibrated", column))
        named = ("over_other_qwk", f"{machine} beside {column.removeprefix(OTHER)}")
        yield from by_item(whole_set, rows, scales, named, mine - theirs, drawn - drawn_theirs)
