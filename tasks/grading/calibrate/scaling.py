"""How the judge's features and the counts of n-grams become columns that a ridge can weigh; no label enters."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler, normalize

from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.calibrate.alignment import second_order
from rubricflow.tasks.grading.calibrate.pack import packed_ints, unpacked_ints

FAR = 4.0
"""Standard deviations beyond which a feature of the judge counts no further."""
SQUARES = 0.5
"""Share of the products of two features of the judge beside the features themselves."""


class JudgeScaling(Frozen):
    """How the judge's features become a block."""

    means: tuple[float, ...]
    """Mean of each feature."""
    scales: tuple[float, ...]
    """Its standard deviation; 1 where it is constant."""
    product_means: tuple[float, ...]
    """Mean of each product of two features, squares included."""
    product_scales: tuple[float, ...]
    """Its standard deviation; 1 where it is constant."""


class GramScaling(Frozen):
    """How counts of n-grams become a block: term frequency by inverse document frequency, rows of length 1."""

    documents: int
    """Texts that were counted."""
    buckets: str
    """The buckets that any of them has; packed integers, rising."""
    frequencies: str
    """In how many texts each occurs; packed integers."""


def judge_scaling(matrix: Floats) -> JudgeScaling:
    """Of the features of n responses, (n, d)."""
    plain = StandardScaler().fit(matrix)
    z = np.clip(plain.transform(matrix), -FAR, FAR)
    products = StandardScaler().fit(second_order(z)[:, z.shape[1] :])
    return JudgeScaling(
        means=tuple(plain.mean_.tolist()),
        scales=tuple(plain.scale_.tolist()),
        product_means=tuple(products.mean_.tolist()),
        product_scales=tuple(products.scale_.tolist()),
    )


def judge_columns(scaling: JudgeScaling, matrix: Floats) -> Floats:
    """The standardised features and their standardised products, each kind by the root of its number (n, d + d²)."""
    z = np.clip((matrix - np.array(scaling.means)) / np.array(scaling.scales), -FAR, FAR)
    width = z.shape[1]
    products = (second_order(z)[:, width:] - np.array(scaling.product_means)) / np.array(scaling.product_scales)
    return np.hstack([z / np.sqrt(width), products * np.sqrt(SQUARES / products.shape[1])])


def gram_scaling(counts: sp.csr_array) -> GramScaling:
    """Of the counts of n texts, (n, buckets)."""
    frequencies = np.bincount(counts.indices, minlength=counts.shape[1])
    buckets = np.flatnonzero(frequencies)
    return GramScaling(
        documents=counts.shape[0], buckets=packed_ints(buckets), frequencies=packed_ints(frequencies[buckets])
    )


def gram_columns(scaling: GramScaling, counts: sp.csr_array) -> sp.csr_array:
    """Rows of length 1 over all buckets; what no counted text had takes of that length and has no column."""
    buckets = unpacked_ints(scaling.buckets)
    rarity = np.full(counts.shape[1], np.log(1.0 + scaling.documents))
    rarity[buckets] -= np.log(1.0 + unpacked_ints(scaling.frequencies))
    weighted = counts.copy()
    weighted.data = (1.0 + np.log(counts.data)) * (1.0 + rarity[counts.indices])
    unit = normalize(weighted) if weighted.shape[0] else weighted  # which refuses no rows
    return sp.csr_array(unit[:, buckets])
