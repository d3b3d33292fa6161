"""The methods behind one interface: each is fitted on labels, also inside folds, and applied to its features."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rubricflow.tasks.core.contracts.tables.calibration import CalibrationMethod
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.text.digest import digest_bytes
from rubricflow.tasks.grading.calibrate.alignment import (
    DIGITS,
    Aligned,
    Alignment,
    Refusal,
    ScoreCurve,
    apply,
    apply_curve,
    fit,
    fit_isotonic,
    fit_linear,
    fit_linking,
    snap,
    stretch,
    towards,
    without_map,
)
from rubricflow.tasks.grading.calibrate.features import LENGTH
from rubricflow.tasks.grading.calibrate.rows import RAW, LabelledRows
from rubricflow.tasks.grading.calibrate.stack import Points, Stack, StackedRows, apply_stack, fit_stack

Mapping: TypeAlias = Stack | Alignment | ScoreCurve | None
"""The fitted numbers; None keeps the raw score."""
STANDARD: tuple[CalibrationMethod, ...] = ("stacked", "rulers", "linear", "linking", "isotonic", "identity")
"""The methods that are compared. The first that can be fitted is the standard one."""
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


def apply_mapping(
    mapping: Mapping, rows: StackedRows, fitted: tuple[float, float], scale: tuple[float, float, float]
) -> tuple[Aligned, Points]:
    """Aligned and final scores of new rows by any method, in the units of `scale` (low, high, step), and what each part
    of a stack adds to them, NaN for the others.

    rows: their matrix holds the method's `inputs`, finite; fitted: ends of the scale fitted on.
    """
    if isinstance(mapping, Stack):
        return apply_stack(mapping, rows, scale)
    nothing = Points(*np.full((3, len(rows.item)), np.nan))
    if isinstance(mapping, Alignment):
        return apply(mapping, rows.matrix, scale), nothing
    given = rows.matrix[:, 0]
    if isinstance(mapping, ScoreCurve):
        offset = np.array([mapping.offsets.get(item, 0.0) for item in rows.item.tolist()])
        return apply_curve(mapping, given, offset, scale), nothing
    raw = np.round(stretch(np.clip(given, *fitted), fitted, scale), DIGITS)
    return Aligned(nothing.judge, raw, snap(raw, scale), np.zeros(len(raw), dtype=np.bool_)), nothing


def apply_to_labels(mapping: Mapping, labels: LabelledRows, weight: float = 1.0) -> Aligned:
    """The same for labels, on the scale fitted on; `score` is not on the steps of the rows' own scales. weight: as in
    `CrossFitted`."""
    ends = labels.low, labels.high
    one_step_scale = (*ends, labels.high - labels.low)
    takes_features = isinstance(mapping, Stack | Alignment)
    rows = StackedRows(labels.matrix if takes_features else labels.raw[:, None], labels.blocks, labels.item_id)
    return towards(apply_mapping(mapping, rows, ends, one_step_scale)[0], labels.raw, weight, one_step_scale)


def _fit_stack(labels: LabelledRows, with_judge: bool) -> Stack:
    if not labels.blocks and not with_judge:
        raise Refusal("the study's features hold nothing of the text")
    if labels.blocks and with_judge and not labels.has_score:
        raise Refusal("the study's signals leave the judge's score out, so that text has no place among them")
    items_seen = [labels.items[index] for index in np.unique(labels.item)]
    blocks = {name: block for name, block in labels.blocks.items() if name != LENGTH or not with_judge}
    rows = StackedRows(labels.matrix, blocks, labels.item_id)
    ends = (labels.low, labels.high)
    return fit_stack(rows, labels.human, labels.weight, folds(labels.cluster), ends, items_seen, with_judge)


FEW = 100
"""Labels below which five folds are cut, else ten."""


def folds(cluster: npt.NDArray[np.str_]) -> Ints:
    """Fold 0 .. K - 1 of every row, whole clusters together, K = 5 for fewer than 100 rows, else 10, or the number of
    clusters if that is smaller. The largest clusters are dealt first, each to the smallest fold, equal ones by hash.
    """
    names, index, sizes = np.unique(cluster, return_inverse=True, return_counts=True)
    fold_count = min(5 if len(cluster) < FEW else 10, len(names))
    hashed = [digest_bytes(name) for name in names.tolist()]
    filled = [0] * fold_count
    fold_of = np.empty(len(names), dtype=np.int64)
    for code in sorted(range(len(names)), key=lambda code: (-sizes[code], hashed[code])):
        fold_of[code] = filled.index(min(filled))
        filled[fold_of[code]] += int(sizes[code])
    return fold_of[index]


class CrossFitted(NamedTuple):
    """A method fitted to all labels, and what it gave the rows it had not seen.

    mapping: fitted to all; aligned: (n,) on the scale fitted on; clipped: (n,) outside the range that the fold's fit
    saw; parts: fitted without each fold; weight: of the mapped score, 0 .. 1, where the raw one has the rest.
    """

    mapping: Mapping
    aligned: Floats
    clipped: Bools
    parts: tuple[Mapping, ...] = ()
    weight: float = 1.0


def cross_fit(
    method: CalibrationMethod, labels: LabelledRows, fold: Ints, alpha: float, chosen: LabelledRows | None = None
) -> CrossFitted:
    """Fit a method once without each fold and once with all; Refusal where any of these fits is refused.

    fold: (n,), at least two of them. chosen: labels that teach every fit, but for those of authors in the fold left
    out, and are not predicted.
    """
    extra = labels.take(np.zeros(len(labels), dtype=np.bool_)) if chosen is None else chosen
    mapping = fit_method(method, labels.joined_with(extra), alpha)
    aligned = np.empty(len(labels))
    clipped = np.empty(len(labels), dtype=np.bool_)
    parts = []
    for out in (fold == k for k in range(fold.max() + 1)):
        try:
            others = extra.take(~np.isin(extra.cluster, labels.cluster[out]))
            parts.append(fit_method(method, labels.take(~out).joined_with(others), alpha))
        except Refusal as refusal:
            raise Refusal(f"{refusal}, in one fold") from refusal
        unseen = apply_to_labels(parts[-1], labels.take(out))
        aligned[out], clipped[out] = unseen.aligned, unseen.clipped
    return CrossFitted(mapping, aligned, clipped, tuple(parts))


def towards_raw(tried: CrossFitted, labels: LabelledRows, weight: float) -> CrossFitted:
    """Cross-fitted scores of the labels with a weight in 0 .. 1, and their raw ones with the rest of it."""
    kept = np.clip(labels.raw, labels.low, labels.high)
    return tried._replace(aligned=np.round(kept + weight * (tried.aligned - kept), DIGITS), weight=weight)
