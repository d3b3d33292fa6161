"""Labelled rows cut into folds, authors kept whole."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from tasks.stats.arrays import Ints

FEW = 100
"""Labels below which five folds are cut, else ten."""


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
