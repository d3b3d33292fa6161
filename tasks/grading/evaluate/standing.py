"""Where the machine stands: its score, the judge's own, people and baselines, by one measure on the same answers; and
what the judge adds to the text alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from rubricflow.tasks.core.stats.agreement import Stat, to_levels
from rubricflow.tasks.core.stats.bootstrap import Interval
from rubricflow.tasks.core.stats.within import within_items
from rubricflow.tasks.grading.evaluate.agree import (
    RaterPair,
    both_scored,
    item_draws,
    item_qwk,
    mean_of_items,
    over_items,
)
from rubricflow.tasks.grading.evaluate.item_figures import by_item, drawn_qwk
from rubricflow.tasks.grading.evaluate.length import LENGTH, predicted
from rubricflow.tasks.grading.evaluate.other_runs import OTHER
from rubricflow.tasks.grading.evaluate.slices import TARGET, Record, ScaleBounds, ScoreSlice, on_items, record

MEASURE = "standing_qwk"
"""The metric of every row of a table that compares raters: as `_item_mean` over items, else of all as one set."""
TEXT = "text_only"
"""The rater that knows the text and the labels, and no rubric; the column of its scores."""
PEOPLE = "people"


def standing(
    whole_set: ScoreSlice,
    scales: Mapping[str, ScaleBounds],
    people: Sequence[str],
    machine: str,
    draws: int,
    seed: int,
) -> Iterator[Record]:
    """QWK with the target of the calibrated score, the raw one, the text alone, length alone and other runs, each on
    the answers that all of these score; of people with each other on those of them that two people scored and, under
    the same stage, of the calibrated score on the very same.

    The mean is over items in which the target varies: in any other nobody can agree. Where items have one scale there
    is the QWK of all as one set, too; items' means flatter it. A rater without a score for any of the answers has a row
    without a value; length alone, which asks for many answers, none unless it predicts each. Also how far the
    calibrated score agrees inside items (within_r).
    """
    rows = both_scored(whole_set.rows, TARGET, "calibrated", beside=whole_set.rows.columns)
    if rows.empty:
        return
    yield from _within(whole_set, rows, scales, machine, draws, seed)
    if "signal:length" in rows and rows["signal:length"].notna().all():
        rows = rows.assign(**{LENGTH: predicted(rows, scales, seed)})
    baselines = [TEXT] if TEXT in rows and rows[TEXT].notna().any() else []
    baselines += [LENGTH] if LENGTH in rows and rows[LENGTH].notna().all() else []
    columns = ["calibrated", "raw", *baselines, *(name for name in rows.columns if name.startswith(OTHER))]
    alone: list[str] = []
    for column in columns:
        scored = rows[rows[column].notna()]
        rows, alone = (scored, alone) if len(scored) else (rows, [*alone, column])
    rows = _numbered(rows)
    pairs = [(f"human:{a}", f"human:{b}") for a, b in combinations(people, 2)]
    for column in columns:
        stage, rater = ("calibrated", column) if column not in ("calibrated", "raw") else (column, machine)
        names = (TARGET, rater)
        if column in alone:
            missing = Stat(None, "it scores none of the answers that the others score")
            yield record(on_items(whole_set), f"{MEASURE}_item_mean", missing, 0, stage=stage, raters=names)
            continue
        yield from _figures(whole_set, [rows], scales, [(TARGET, column)], stage, names, draws, seed)
    shared = {pair: both for pair in pairs if len(both := rows.dropna(subset=[*pair]))}
    machines = [(TARGET, "calibrated")] * len(shared)
    for compared, names in (([*shared], (PEOPLE, PEOPLE)), (machines, (TARGET, machine))) if shared else ():
        yield from _figures(whole_set, [*shared.values()], scales, compared, "human", names, draws, seed)


def _numbered(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with their clusters numbered from 0: draws resample those that are there."""
    return rows.assign(cluster=np.unique(rows["cluster"], return_inverse=True)[1])


def _target_varies(rows: pd.DataFrame, scales: Mapping[str, ScaleBounds]) -> pd.Series:
    """Whether a row is of an item whose target has several levels."""
    parts = rows.groupby("item_id", sort=False)[TARGET]
    varies = {item: len(np.unique(to_levels(scores, *scales[str(item)]))) > 1 for item, scores in parts}
    return rows["item_id"].map(varies).astype(bool)


def _figures(
    whole_set: ScoreSlice,
    answers: Sequence[pd.DataFrame],
    scales: Mapping[str, ScaleBounds],
    pairs: Sequence[tuple[str, str]],
    stage: str,
    names: tuple[str, str],
    draws: int,
    seed: int,
) -> Iterator[Record]:
    """The mean over items and, on one scale, the figure of all answers as one set; of several pairs, each on answers of
    its own, the plain mean, which has no interval."""
    telling = [rows[_target_varies(rows, scales)] for rows in answers]
    sets = [(f"{MEASURE}_item_mean", on_items(whole_set), telling, scales)]
    if whole_set.scale is not None:
        pooled = [rows.assign(item_id=whole_set.value_of) for rows in answers]
        sets.append((MEASURE, whole_set, pooled, {whole_set.value_of: whole_set.scale}))
    for metric, part, scored, bounds in sets:
        values, every, ends = list[float](), set[object](), list[Interval]()
        for (first, second), rows in zip(pairs, scored, strict=True):
            if rows.empty:
                continue
            both = _numbered(rows)
            every |= set(rows.index)
            values.append(float(over_items(item_qwk(both, bounds, first, second)[:, None])[0]))
            if draws and len(pairs) == 1:
                drawn = item_draws(both, bounds, RaterPair("", "", "", first, second), "qwk", draws, seed)
                ends.append(mean_of_items(drawn, both))
        defined = [value for value in values if not np.isnan(value)]
        value = Stat(float(np.mean(defined))) if defined else Stat(None, "the human score is the same for all of them")
        shown = ends[0] if ends else None
        yield record(part, metric, value, len(every), stage=stage, raters=names, interval=shown)


def _within(
    whole_set: ScoreSlice, rows: pd.DataFrame, scales: Mapping[str, ScaleBounds], machine: str, draws: int, seed: int
) -> Iterator[Record]:
    """How far the calibrated score agrees with the target inside items; nothing of a single item."""
    if rows["item_id"].nunique() < 2:
        return
    low, high = (rows["item_id"].map({item: bounds[end] for item, bounds in scales.items()}) for end in (0, 1))
    human, score = ((rows[name] - low) / (high - low) for name in (TARGET, "calibrated"))
    value, ends = within_items(human, score, rows["item_id"], rows["cluster"], draws, seed)
    names, part = (TARGET, machine), on_items(whole_set)
    yield record(part, "within_r", value, len(rows), stage="calibrated", raters=names, interval=ends)


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
