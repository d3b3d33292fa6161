"""Cross-fitting: every labelled row's score by a fit that has not seen its author."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.tables.calibration import CalibrationMethod
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.grading.calibrate.curve import Refusal
from rubricflow.tasks.grading.calibrate.labels import LabelledRows
from rubricflow.tasks.grading.calibrate.methods import Mapping, apply_to_labels, fit_method


class CrossFitted(NamedTuple):
    """A method fitted to all labels, and what it gave the rows it had not seen.

    mapping: fitted to all; aligned: (n,) on the scale fitted on; clipped: (n,) outside the range that the fold's fit
    saw; parts: fitted without each fold.
    """

    mapping: Mapping
    aligned: Floats
    clipped: Bools
    parts: tuple[Mapping, ...] = ()


def cross_fit(
    method: CalibrationMethod, labels: LabelledRows, fold: Ints, alpha: float, chosen: LabelledRows | None = None
) -> CrossFitted:
    """Fit a method once without each fold and once with all; Refusal where any of these fits is refused.

    fold: (n,), at least two of them. chosen: labels that teach every fit, but for those of authors in the fold left
    out, and are not predicted.
    """
    extra = labels.take(np.zeros(len(labels), dtype=np.bool_)) if chosen is None else chosen
    mapping = fit_method(method, labels.beside(extra), alpha)
    aligned, clipped = np.empty(len(labels)), np.empty(len(labels), dtype=np.bool_)
    parts = list[Mapping]()
    for out in (fold == k for k in range(fold.max() + 1)):
        try:
            others = extra.take(~np.isin(extra.cluster, labels.cluster[out]))
            parts.append(fit_method(method, labels.take(~out).beside(others), alpha))
        except Refusal as refusal:
            raise Refusal(f"{refusal}, in one fold") from refusal
        unseen = apply_to_labels(parts[-1], labels.take(out))
        aligned[out], clipped[out] = unseen.aligned, unseen.clipped
    return CrossFitted(mapping, aligned, clipped, tuple(parts))
