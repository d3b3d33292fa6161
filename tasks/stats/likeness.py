"""How alike the answers of one cluster are, and how many independent ones a number of them is worth."""

import numpy as np
import numpy.typing as npt

from tasks.stats.arrays import Bools, Floats, Ints


def likeness(flag: Bools, cluster: npt.ArrayLike) -> float:
    """Cautious estimate of the intraclass correlation of a flag, 0 .. 1.

    flag: (n,), one at least; cluster: (n,) of any kind, whose equal values belong together. It lies one standard error
    above the moment estimate, the mean product of the deviations of two rows of a cluster over the variance (Fisher
    1925), its error by the delete-one-cluster jackknife; and nowhere below 1 / (1 + clusters with a flag), as few of
    them tell little: without any the answers of a cluster are taken as one. Simulated in tests/studies/promise.py.
    """
    _, codes = np.unique(np.asarray(cluster), return_inverse=True)
    sizes = np.bincount(codes).astype(np.float64)
    hits = np.bincount(codes, weights=flag.astype(np.float64))
    sums = np.array([hits, sizes, hits * hits, hits * sizes, sizes * sizes])
    every = sums.sum(axis=1, keepdims=True)
    error = 0.0
    if len(sizes) > 1:
        without_each = _correlation(every - sums)
        deviations = np.sum((without_each - without_each.mean()) ** 2)
        error = float(np.sqrt((len(sizes) - 1) / len(sizes) * deviations))
    least = 1 / (1 + np.count_nonzero(hits))
    return float(np.clip(_correlation(every)[0] + error, least, 1.0))


def squared_sizes(cluster: npt.ArrayLike) -> Ints:
    """Sum of the squared cluster sizes among the first k rows, for k = 1 .. n, shape (n,). cluster: (n,)."""
    _, codes = np.unique(np.asarray(cluster), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], codes[order])
    before = np.empty(len(codes), dtype=np.int64)
    before[order] = np.arange(len(codes)) - starts
    return np.asarray(np.cumsum(2 * before + 1), dtype=np.int64)


def effective(n: Ints, squares: Ints, alike: float) -> Floats:
    """Independent rows that n clustered ones are worth, shape of n: n over Kish's design effect (Kish 1965).

    n: >= 1; squares: sum of their squared cluster sizes; alike: intraclass correlation, 0 .. 1.
    """
    return np.asarray(n / (1 + (squares / n - 1) * alike), dtype=np.float64)


def _correlation(sums: Floats) -> Floats:
    """Intraclass correlation, (m,), of rows of which these sums over clusters are known, (5, m): hits, sizes, and the
    products of hits with hits, hits with sizes, sizes with sizes. 0 where it is undefined."""
    hits, n, hits_hits, hits_sizes, sizes_sizes = sums
    share = hits / n
    within = hits * (1 - share) ** 2 + (n - hits) * share**2
    between = hits_hits - 2 * share * hits_sizes + share**2 * sizes_sizes - within
    pairs, variance = sizes_sizes - n, within / n
    defined = (pairs > 0) & (variance > 0)
    ratio = np.divide(between, pairs * variance, out=np.zeros_like(share), where=defined)
    return np.asarray(ratio, dtype=np.float64)
