"""What the machine's score is compared with: people, the judge alone, the text alone, length alone, and other runs; all
by one measure on the same answers, and how much more the machine has than each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.stats.agreement import Stat, to_levels
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import interval, within_items
from rubricflow.tasks.grading.evaluate.agree import item_draws, item_qwk, mean_of_items, over_items
from rubricflow.tasks.grading.evaluate.slices import (
    TARGET,
    Record,
    ScaleBounds,
    ScoreSlice,
    Setting,
    both_scored,
    on_items,
    record,
)

MEASURE = "standing_qwk"
"""The metric of every row of a table that compares raters: as `_item_mean` over items, else of all as one set."""
TEXT, LENGTH, PEOPLE = "text_only", "length", "people"
"""Raters: one that knows the text and the labels, and no rubric; one that looks at the length alone, both columns of
the score frame, too; and people with each other."""
OTHER = "other:"
"""Before the name of another run: the column of the score frame that holds its scores."""
FEWEST = 30
"""Responses of an item that a figure of it is given for."""
FOLDS = 10


def rank_raters(whole_set: ScoreSlice, on: Setting) -> Iterator[Record]:
    """QWK with the target of the calibrated score, the raw one, the text alone, length alone and other runs, each on
    the answers that all of these score; of people with each other on those of them that two people scored and, under
    the same stage, of the calibrated score on the very same.

    The mean is over items in which the target varies: in any other nobody can agree. Where items have one scale there
    is the QWK of all as one set, too; items' means flatter it. A rater without a score for any of the answers has a row
    without a value; length alone, which asks for many answers that differ in it, none unless it predicts each. Also
    how far the calibrated score agrees inside items (within_r).
    """
    rows = both_scored(whole_set.rows, TARGET, "calibrated", also=whole_set.rows.columns)
    if rows.empty:
        return
    if rows["item_id"].nunique() > 1:
        low = on.of_item(rows, 0)
        high = on.of_item(rows, 1)
        human, score = ((rows[name] - low) / (high - low) for name in (TARGET, "calibrated"))
        value, ends = within_items(human, score, rows["item_id"], rows["cluster"], on.draws, on.seed)
        part = on_items(whole_set)
        yield record(part, "within_r", value, len(rows), raters=on.raters, interval=ends)
    if "signal:length" in rows and rows["signal:length"].notna().all() and rows["signal:length"].nunique() > 1:
        rows = rows.assign(**{LENGTH: predicted(rows, on.scales, on.seed)})
    columns = ["calibrated", "raw"]
    columns += [TEXT] if TEXT in rows and rows[TEXT].notna().any() else []
    columns += [LENGTH] if LENGTH in rows and rows[LENGTH].notna().all() else []
    columns += [name for name in rows.columns if name.startswith(OTHER)]
    alone = set[str]()
    for column in columns:
        scored = rows[rows[column].notna()]
        rows, alone = (scored, alone) if len(scored) else (rows, alone | {column})
    rows = _numbered(rows)
    for column in columns:
        stage, names = (column, on.raters) if column in ("calibrated", "raw") else ("calibrated", (TARGET, column))
        if column in alone:
            missing = Stat(None, "it scores none of the answers that the others score")
            yield record(on_items(whole_set), f"{MEASURE}_item_mean", missing, 0, stage=stage, raters=names)
        else:
            yield from _mean_and_pooled(whole_set, [((TARGET, column), rows)], on, stage, names)
    couples = [(f"human:{a}", f"human:{b}") for a, b in combinations(on.people, 2)]
    shared = [(couple, both) for couple in couples if len(both := rows.dropna(subset=[*couple]))]
    if shared:
        yield from _mean_and_pooled(whole_set, shared, on, "human", (PEOPLE, PEOPLE))
        machine = [((TARGET, "calibrated"), both) for _, both in shared]
        yield from _mean_and_pooled(whole_set, machine, on, "human", on.raters)


def _numbered(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with their clusters numbered from 0: draws resample those that are there."""
    return rows.assign(cluster=np.unique(rows["cluster"], return_inverse=True)[1])


def _target_varies(rows: pd.DataFrame, scales: Mapping[str, ScaleBounds]) -> pd.Series:
    """Whether a row is of an item whose target has several levels."""
    parts = rows.groupby("item_id", sort=False)[TARGET]
    varies = {item: len(np.unique(to_levels(scores, *scales[str(item)]))) > 1 for item, scores in parts}
    return rows["item_id"].map(varies).astype(bool)


def _mean_and_pooled(
    whole_set: ScoreSlice,
    compared: Sequence[tuple[tuple[str, str], pd.DataFrame]],
    on: Setting,
    stage: str,
    names: tuple[str, str],
) -> Iterator[Record]:
    """The mean over items and, on one scale, the figure of all answers as one set; of several pairs of columns, each on
    answers of its own, the plain mean, which has no interval."""
    telling = [(pair, rows[_target_varies(rows, on.scales)]) for pair, rows in compared]
    sets = [(f"{MEASURE}_item_mean", on_items(whole_set), telling, on)]
    if whole_set.scale is not None:
        one = whole_set.value_of
        pooled = [(pair, rows.assign(item_id=one)) for pair, rows in compared]
        sets.append((MEASURE, whole_set, pooled, on._replace(scales={one: whole_set.scale})))
    for metric, part, scored, setting in sets:
        values = []
        every = set()
        ends = None
        for pair, rows in scored:
            if rows.empty:
                continue
            both = _numbered(rows)
            every |= set(rows.index)
            values.append(float(over_items(item_qwk(both, setting.scales, *pair)[:, None])[0]))
            if on.draws and len(compared) == 1:
                ends = mean_of_items(item_draws(both, pair, setting), both)
        defined = [value for value in values if not np.isnan(value)]
        value = Stat(float(np.mean(defined))) if defined else Stat(None, "the human score is the same for all of them")
        yield record(part, metric, value, len(every), stage=stage, raters=names, interval=ends)


def against_text(whole_set: ScoreSlice, on: Setting) -> Iterator[Record]:
    """QWK of the text alone with the target (text_qwk), and how much more the calibrated score has (over_text_qwk): of
    every item with enough responses, and the mean over items; intervals paired, over the same clusters. Nothing where
    no such baseline was fitted.
    """
    if TEXT in whole_set.rows:
        rows = both_scored(whole_set.rows, TARGET, "calibrated", TEXT, also=["item_id", "cluster"])
        yield from _against(whole_set, rows, on, TEXT, "text_qwk", ("over_text_qwk", on.machine))


def against_others(whole_set: ScoreSlice, on: Setting) -> Iterator[Record]:
    """How much more QWK with the target the machine has than each other run (over_other_qwk), on the responses that
    both scored: of every item with enough responses, and the mean over items; intervals paired, over the same clusters.
    """
    for column in (name for name in whole_set.rows.columns if name.startswith(OTHER)):
        rows = both_scored(whole_set.rows, TARGET, "calibrated", column, also=["item_id", "cluster"])
        named = ("over_other_qwk", f"{on.machine} beside {column.removeprefix(OTHER)}")
        yield from _against(whole_set, rows, on, column, "", named)


def against_length(whole_set: ScoreSlice, on: Setting) -> Iterator[Record]:
    """QWK of length alone with the target (length_qwk), and how much more the calibrated score has (over_length_qwk):
    of every item with enough responses, and the mean over items; intervals paired, over the same clusters.

    Length alone is given more than the machine had: the held-out scores themselves, cross-fitted.
    """
    if "signal:length" not in whole_set.rows or whole_set.rows["signal:length"].nunique() < 2:
        return  # one length of all tells nothing, as where a log holds no answers
    ids = ("item_id", "cluster")
    measured = both_scored(whole_set.rows, TARGET, "calibrated", "signal:length", also=ids)
    with_length = measured.assign(length=predicted(measured, on.scales, on.seed))
    rows = both_scored(with_length, LENGTH, also=(TARGET, "calibrated", *ids))
    # Cross-fitted, length that tells nothing falls below 0: no length need be beaten by that.
    yield from _against(whole_set, rows, on, LENGTH, "length_qwk", ("over_length_qwk", on.machine), least=0.0)


def _against(
    whole_set: ScoreSlice,
    rows: pd.DataFrame,
    on: Setting,
    column: str,
    metric: str,
    more: tuple[str, str],
    least: float = -np.inf,
) -> Iterator[Record]:
    """A baseline's QWK with the target, where it has a metric of its own, and how much more the calibrated score has:
    of every item with enough responses, and the mean over items. more: metric and rater; least: what the baseline has
    at least, where it is compared."""
    if rows.empty:
        return
    kappas, alone = (item_qwk(rows, on.scales, TARGET, name) for name in ("calibrated", column))
    drawn, drawn_alone = (item_draws(rows, (TARGET, name), on) for name in ("calibrated", column))
    figures = [(metric, column, alone, drawn_alone)] if metric else []
    figures.append((*more, kappas - np.maximum(alone, least), drawn - np.maximum(drawn_alone, least)))
    for name, rater, values, draws in figures:
        raters = TARGET, rater
        for (item, part), value, draw in zip(rows.groupby("item_id", sort=True), values, draws, strict=True):
            if len(part) >= FEWEST:
                of_item = whole_set._replace(slice="item", value_of=str(item), scale=on.scales[str(item)])
                ends = interval(draw, part["cluster"].nunique())
                yield record(of_item, name, _kappa(value), len(part), raters=raters, interval=ends)
        whole = on_items(whole_set)
        ends = mean_of_items(draws, rows)
        mean = _kappa(over_items(values[:, None])[0])
        yield record(whole, f"{name}_item_mean", mean, len(rows), raters=raters, interval=ends)


def _kappa(value: float) -> Stat:
    return Stat(None, "undefined: constant scores") if np.isnan(value) else Stat(float(value))


def predicted(rows: pd.DataFrame, scales: Mapping[str, ScaleBounds], seed: int) -> Floats:
    """The score that a response's length predicts, shape (rows,), cross-fitted by cluster; NaN where too few are alike.

    rows: item_id, cluster, target and signal:length (log of the characters). A parabola in log length, less its mean in
    the item, fitted to the target's scores in the item, or, of items with few responses, in all of these on one scale;
    what it gives is put on the distribution of the target's scores, since a regression's shrunken spread costs QWK.
    """
    counts = rows["item_id"].map(rows["item_id"].value_counts())
    scale_of = {item: str(scale) for item, scale in scales.items()}
    alike = rows["item_id"].where(counts >= FEWEST, rows["item_id"].map(scale_of))
    length = rows["signal:length"].to_numpy(float)
    apart = length - rows["signal:length"].groupby(rows["item_id"]).transform("mean").to_numpy(float)
    names, codes = np.unique(rows["cluster"].to_numpy(), return_inverse=True)
    folds = (np.random.default_rng(seed).permutation(len(names)) % FOLDS)[codes]
    target = rows[TARGET].to_numpy(float)
    predictions = np.full(len(rows), np.nan)
    for places in rows.groupby([alike, counts >= FEWEST], sort=False).indices.values():
        for fold in np.unique(folds[places]) if len(places) >= FEWEST else ():
            test_rows = places[folds[places] == fold]
            training_rows = places[folds[places] != fold]
            if len(training_rows):
                predictions[test_rows] = _like(apart[test_rows], apart[training_rows], target[training_rows])
    return predictions


def _like(test: Floats, training: Floats, target: Floats) -> Floats:
    """Predictions for `test` of what was fitted to the target on `training`."""
    scale = float(np.abs(training).max()) or 1.0  # powers of small numbers vanish
    terms = [np.stack([np.ones_like(x), x / scale, (x / scale) ** 2], axis=1) for x in (training, test)]
    weights = np.linalg.lstsq(terms[0], target, rcond=None)[0]
    fitted, predictions = (term @ weights for term in terms)
    if np.ptp(fitted) == 0:
        return np.full(len(test), np.median(target))
    return np.interp(predictions, np.sort(fitted), np.sort(target))


def scores_of_other_run(
    frame: pd.DataFrame, score_of: Mapping[str, float | None], scales: Mapping[str, ScaleBounds], name: str
) -> pd.Series:
    """The scores of another run in the rows of the score frame, NaN where it has none.

    InputError where one lies off the scale that its item has here: the two would not compare.
    """
    scores = frame["response_id"].map(score_of).astype(float)
    on = Setting(scales)
    if ((scores < on.of_item(frame, 0)) | (scores > on.of_item(frame, 1))).any():
        raise InputError(f"'{name}' scores some of the items on another scale", field="evaluation.beside")
    return scores
