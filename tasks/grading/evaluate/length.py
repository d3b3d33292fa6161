"""What the length of a response alone would have agreed with people, beside what the machine did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.grading.evaluate.agree import both_scored, item_qwk
from rubricflow.tasks.grading.evaluate.item_figures import FEWEST, by_item, drawn_qwk
from rubricflow.tasks.grading.evaluate.slices import TARGET, Record, ScaleBounds, ScoreSlice

LENGTH = "length"
"""The rater that looks at nothing else; the column of its scores."""
FOLDS = 10


def against_length(
    whole_set: ScoreSlice, scales: Mapping[str, ScaleBounds], machine: str, draws: int, seed: int
) -> Iterator[Record]:
    """QWK of length alone with the target (length_qwk), and how much more the calibrated score has (over_length_qwk):
    of every item with enough responses, and the mean over items; intervals paired, over the same clusters.

    Length alone is given more than the machine had: the held-out scores themselves, cross-fitted.
    """
    if "signal:length" not in whole_set.rows:
        return
    ids = ("item_id", "cluster")
    measured = both_scored(whole_set.rows, TARGET, "calibrated", "signal:length", beside=ids)
    with_length = measured.assign(length=predicted(measured, scales, seed))
    rows = both_scored(with_length, LENGTH, beside=(TARGET, "calibrated", *ids))
    if rows.empty:
        return
    kappas, alone = (item_qwk(rows, scales, TARGET, column) for column in ("calibrated", LENGTH))
    drawn, drawn_alone = (drawn_qwk(rows, column, scales, draws, seed) for column in ("calibrated", LENGTH))
    yield from by_item(whole_set, rows, scales, ("length_qwk", LENGTH), alone, drawn_alone)
    # Cross-fitted, length that tells nothing falls below 0: no length need be beaten by that.
    more, drawn_more = kappas - np.maximum(alone, 0.0), drawn - np.maximum(drawn_alone, 0.0)
    yield from by_item(whole_set, rows, scales, ("over_length_qwk", machine), more, drawn_more)


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
    target, folds = rows[TARGET].to_numpy(float), _folds(rows["cluster"].to_numpy(), seed)
    predictions = np.full(len(rows), np.nan)
    for places in rows.groupby([alike, counts >= FEWEST], sort=False).indices.values():
        for fold in np.unique(folds[places]) if len(places) >= FEWEST else ():
            test_rows, training_rows = places[folds[places] == fold], places[folds[places] != fold]
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


def _folds(clusters: Ints, seed: int) -> Ints:
    """The fold of every row, clusters whole."""
    names, codes = np.unique(clusters, return_inverse=True)
    folds: Ints = (np.random.default_rng(seed).permutation(len(names)) % FOLDS)[codes]
    return folds
