"""The methods behind one interface: each is fitted on labels and applied to the features that it takes."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from tasks.calibrate.alignment import Aligned, Alignment, apply, fit, snap, stretch, without_map
from tasks.calibrate.curve import DIGITS, Refusal, ScoreCurve, apply_curve, fit_isotonic, fit_linear, fit_linking
from tasks.calibrate.labels import RAW, LabelledRows
from tasks.contracts.tables.calibration import CalibrationMethod
from tasks.stats.arrays import Floats

Mapping: TypeAlias = Alignment | ScoreCurve | None
"""The fitted numbers; None keeps the raw score."""
COMPLEXITY: dict[CalibrationMethod, int] = {"identity": 0, "linking": 1, "linear": 1, "rulers": 2, "isotonic": 3}
"""The methods that are compared; a lower number is the simpler one. `ridge` is tried only where it is asked for: it is
an ablation of rulers."""
FEATURED = frozenset({"rulers", "ridge"})
"""Methods that take the judge's features; the others take the raw score alone."""


def inputs(method: CalibrationMethod, names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the features that a method takes, of those that the judge gives."""
    return names if method in FEATURED else RAW


def fit_method(method: CalibrationMethod, labels: LabelledRows, alpha: float) -> Mapping:
    """Fit one method; Refusal where the labels do not allow it.

    alpha: strength of the ridge, which is fitted unweighted, as published.
    """
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
        case "rulers" | "ridge" if not labels.names:
            raise Refusal("the judge gives no feature")
        case "rulers":
            return fit(labels.matrix, labels.human, *ends, alpha)
        case "ridge":
            return without_map(fit(labels.matrix, labels.human, *ends, alpha))


def apply_method(
    mapping: Mapping,
    matrix: Floats,
    offset: float | Floats,
    fitted: tuple[float, float],
    scale: tuple[float, float, float],
) -> Aligned:
    """Aligned and final scores of new rows, in the units of `scale` (low, high, step).

    matrix: (n, d) the method's `inputs`, finite; offset: of the rows' items, see `ScoreCurve.offset`, scalar or (n,);
    fitted: ends of the scale fitted on.
    """
    if isinstance(mapping, Alignment):
        return apply(mapping, matrix, scale)
    if isinstance(mapping, ScoreCurve):
        return apply_curve(mapping, matrix[:, 0], offset, scale)
    kept = np.round(stretch(np.clip(matrix[:, 0], *fitted), fitted, scale), DIGITS)
    return Aligned(np.full(len(kept), np.nan), kept, snap(kept, scale), np.zeros(len(kept), dtype=np.bool_))


def apply_to_labels(mapping: Mapping, labels: LabelledRows) -> Aligned:
    """The same for labels, on the scale fitted on; `score` is not on the steps of the rows' own scales."""
    offset: float | Floats = 0.0
    if isinstance(mapping, ScoreCurve):
        offset = np.array([mapping.offset(item) for item in labels.items])[labels.item]
    given = labels.matrix if isinstance(mapping, Alignment) else labels.raw[:, None]
    ends = labels.low, labels.high
    return apply_method(mapping, given, offset, ends, (*ends, labels.high - labels.low))
