"""How concepts hang together: in the labels, and in the latent concepts of a grader (REC-CBM, section 5.6 and E.6)."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from tasks.bottleneck.data import MISSING, LabelledData
from tasks.bottleneck.head import Head
from tasks.stats.arrays import Floats, Ints


def link_rows(data: LabelledData, head: Head, method: str, seed: int) -> list[dict[str, Any]]:
    """Rows of table `concept_links`, one for each two concepts, labels from the train split.

    Empty for a head without error correction, which has learned no links. A head of the first concepts alone has the
    links of those.
    """
    if head.precision is None:
        return []
    partial = partial_correlations(head.precision)
    labels, n = label_correlations(data.levels[data.rows("train")])
    rows = []
    for a, b in combinations(range(len(partial)), 2):
        label_correlation = None if np.isnan(labels[a, b]) else float(labels[a, b])
        rows.append(
            {
                "method": method,
                "seed": seed,
                "a": data.concepts.ids[a],
                "b": data.concepts.ids[b],
                "label_correlation": label_correlation,
                "partial_correlation": float(partial[a, b]),
                "n": int(n[a, b]),
            }
        )
    return rows


def label_correlations(levels: Ints) -> tuple[Floats, Ints]:
    """(r, n), each (K, K): Pearson correlations of labels over the responses that have both, and their number.

    levels: (n, K), MISSING where there is none. NaN where a concept does not vary on the common responses.
    """
    present = (levels != MISSING).astype(np.float64)
    x = np.where(levels == MISSING, 0, levels).astype(np.float64)
    # Sums over common responses; of whole numbers, so that a constant column leaves an exact zero.
    n, sums, squares, products = present.T @ present, x.T @ present, (x * x).T @ present, x.T @ x
    spread = n * squares - sums**2
    scale = np.sqrt(spread * spread.T)
    r = np.divide(n * products - sums * sums.T, scale, out=np.full_like(scale, np.nan), where=scale > 0)
    return np.clip(r, -1.0, 1.0), n.astype(np.int64)


def partial_correlations(precision: Floats) -> Floats:
    """(K, K) r_ij = −Ω_ij/√(Ω_ii·Ω_jj), the correlation of two latent concepts given all others; 1 on the diagonal.

    precision: Ω, (K, K), positive definite.
    """
    scale = np.sqrt(np.diag(precision))
    partial: Floats = -precision / np.outer(scale, scale)
    np.fill_diagonal(partial, 1.0)
    return partial
