"""The methods behind one interface: each is fitted on labels and applied to the features that it takes."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from rubricflow.tasks.core.contracts.tables.calibration import CalibrationMethod
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.calibrate.alignment import Aligned, Alignment, apply, fit, snap, stretch, without_map
from rubricflow.tasks.grading.calibrate.curve import (
    DIGITS,
    Refusal,
    ScoreCurve,
    apply_curve,
    fit_isotonic,
    fit_linear,
    fit_linking,
)
from rubricflow.tasks.grading.calibrate.labels import RAW, LabelledRows
from rubricflow.tasks.grading.calibrate.split import folds
from rubricflow.tasks.grading.calibrate.stack import Stack, StackedRows, apply_stack, fit_stack
from rubricflow.tasks.grading.calibrate.texts import LENGTH

Mapping: TypeAlias = Stack | Alignment | ScoreCurve | None
"""The fitted numbers; None keeps the raw score."""
STANDARD: tuple[CalibrationMethod, ...] = ("stacked", "rulers", "linear", "linking", "isotonic", "identity")
"""The methods that are compared. The first that can be fitted stands unless another is clearly better."""
FEATURED = frozenset({"stacked", "rulers", "ridge"})
"""Methods that take the judge's features; `text_only` takes none, and the others the raw score alone."""
TEXTUAL = frozenset({"stacked", "text_only"})
"""Methods that take what the text tells."""


def inputs(method: CalibrationMethod, names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the features that a method takes, of those that the judge gives."""
    if method == "text_only":
        return ()
    return names if method in FEATURED else RAW


def fit_method(method: CalibrationMethod, labels: LabelledRows, alpha: float) -> Mapping:
    """Fit one method; Refusal where the labels do not allow it.

    alpha: strength of the ridge of Rulers, which is fitted unweighted, as published.
    """
    if method not in FEATURED | TEXTUAL and not labels.has_score:
        raise Refusal("it takes the judge's score, which the study's signals leave out")
    if method == "identity":
        return None
    if len(labels) < 2:
        raise Refusal("fewer than two labels to fit")
    ends = labels.low, labels.high
    match method:
        case "linking":
            return fit_linking(labels.raw, labels.human, labels.weight, ends)
        case "linear":
            return fit_linear(labels.raw, labels.human, labels.weight, labels.item, labels.items, ends)
        case "isotonic":
            return fit_isotonic(labels.raw, labels.human, labels.weight, labels.item, labels.items, ends)
        case "stacked" | "text_only":
            return _fit_stack(labels, with_judge=method == "stacked")
        case "rulers" | "ridge" if not labels.names:
            raise Refusal("the judge gives no feature")
        case "rulers":
            return fit(labels.matrix, labels.human, *ends, alpha)
        case "ridge":
            return without_map(fit(labels.matrix, labels.human, *ends, alpha))


def apply_method(
    mapping: Alignment | ScoreCurve | None,
    matrix: Floats,
    offset: float | Floats,
    fitted: tuple[float, float],
    scale: tuple[float, float, float],
) -> Aligned:
    """Aligned and final scores of new rows by any method but a stack, in the units of `scale` (low, high, step).

    matrix: (n, d) the method's `inputs`, finite; offset: of the rows' items, see `ScoreCurve.offset`, scalar or (n,);
    fitted: ends of the scale fitted on.
    """
    if isinstance(mapping, Alignment):
        return apply(mapping, matrix, scale)
    if isinstance(mapping, ScoreCurve):
        return apply_curve(mapping, matrix[:, 0], offset, scale)
    raw = np.round(stretch(np.clip(matrix[:, 0], *fitted), fitted, scale), DIGITS)
    return Aligned(np.full(len(raw), np.nan), raw, snap(raw, scale), np.zeros(len(raw), dtype=np.bool_))


def apply_to_labels(mapping: Mapping, labels: LabelledRows) -> Aligned:
    """The same for labels, on the scale fitted on; `score` is not on the steps of the rows' own scales."""
    ends = labels.low, labels.high
    one_step_scale = (*ends, labels.high - labels.low)
    if isinstance(mapping, Stack):
        return apply_stack(mapping, _stacked_rows(labels), one_step_scale)[0]
    offset: float | Floats = 0.0
    if isinstance(mapping, ScoreCurve):
        offset = np.array([mapping.offset(item) for item in labels.items])[labels.item]
    inputs_of_method = labels.matrix if isinstance(mapping, Alignment) else labels.raw[:, None]
    return apply_method(mapping, inputs_of_method, offset, ends, one_step_scale)


def _fit_stack(labels: LabelledRows, with_judge: bool) -> Stack:
    if not labels.blocks and not with_judge:
        raise Refusal("the study's features hold nothing of the text")
    if labels.blocks and with_judge and not labels.has_score:
        raise Refusal("the study's signals leave the judge's score out, so that text has no place beside them")
    ends, fold = (labels.low, labels.high), folds(labels.cluster)
    items_seen = [labels.items[index] for index in np.unique(labels.item)]
    rows = _stacked_rows(labels)
    if with_judge:
        rows = rows._replace(blocks={name: block for name, block in rows.blocks.items() if name != LENGTH})
    return fit_stack(rows, labels.human, labels.weight, fold, ends, items=items_seen, with_judge=with_judge)


def _stacked_rows(labels: LabelledRows) -> StackedRows:
    return StackedRows(labels.matrix, labels.blocks, labels.item_id)
