"""Labelled rows cut into folds, authors kept whole."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from rubricflow.tasks.core.stats.arrays import Ints

FEW = 100
"""Labels below which five folds are cut, else ten."""


def folds(cluster: npt.NDArray[np.str_]) -> Ints:
    """Fold 0 .. K - 1 of every row, whole clusters together, K = 5 for fewer than 100 rows, else 10, or the number of
    clusters if that is smaller. The largest clusters are dealt first, each to the smallest fold, equal ones by hash.
    """
    names, index, sizes = np.unique(cluster, return_inverse=True, return_counts=True)
    fold_count = min(5 if len(cluster) < FEW else 10, len(names))
    hashed = [hashlib.sha256(name.encode()).digest() for name in names.tolist()]
    filled = [0] * fold_count
    fold_of = np.empty(len(names), dtype=np.int64)
    for code in sorted(range(len(names)), key=lambda code: (-sizes[code], hashed[code])):
        fold_of[code] = filled.index(min(filled))
        filled[fold_of[code]] += int(sizes[code])
    return fold_of[index]
