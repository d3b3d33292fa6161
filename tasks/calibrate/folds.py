"""Cross-fitting: every labelled row's score by a fit that has not seen its author."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.calibrate.curve import Refusal
from tasks.calibrate.labels import LabelledRows
from tasks.calibrate.methods import Mapping, apply_to_labels, fit_method
from tasks.contracts.tables.calibration import CalibrationMethod
from tasks.stats.arrays import Bools, Floats, Ints

FEW = 100
"""Labels below which five folds are cut, else ten."""


class CrossFitted(NamedTuple):
    """A method fitted to all labels, and what it gave the rows it had not seen.

    mapping: fitted to all; aligned: (n,) on the scale fitted on; clipped: (n,) outside the range that the fold's fit
    saw.
    """

    mapping: Mapping
    aligned: Floats
    clipped: Bools


def folds(cluster: npt.NDArray[np.str_]) -> Ints:
    """Fold 0 .. K - 1 of every row, whole clusters together, K = 5 for fewer than 100 rows, else 10, or the number of
    clusters if that is smaller. The largest clusters are dealt first, each to the smallest fold, equal ones by hash.
    """
    names, index, sizes = np.unique(cluster, return_inverse=True, return_counts=True)
    wanted = min(5 if len(cluster) < FEW else 10, len(names))
    hashed = [hashlib.sha256(name.encode()).digest() for name in names.tolist()]
    filled = [0] * wanted
    fold_of = np.empty(len(names), dtype=np.int64)
    for at in sorted(range(len(names)), key=lambda at: (-sizes[at], hashed[at])):
        fold_of[at] = filled.index(min(filled))
        filled[fold_of[at]] += int(sizes[at])
    return fold_of[index]


def cross_fit(method: CalibrationMethod, labels: LabelledRows, fold: Ints, alpha: float) -> CrossFitted:
    """Fit a method once without each fold and once with all; Refusal where any of these fits is refused.

    fold: (n,), at least two of them.
    """
    mapping = fit_method(method, labels, alpha)
    aligned, clipped = np.empty(len(labels)), np.empty(len(labels), dtype=np.bool_)
    for out in (fold == k for k in range(fold.max() + 1)):
        try:
            part = apply_to_labels(fit_method(method, labels.take(~out), alpha), labels.take(out))
        except Refusal as refusal:
            raise Refusal(f"{refusal}, in one fold") from refusal
        aligned[out], clipped[out] = part.aligned, part.clipped
    return CrossFitted(mapping, aligned, clipped)
