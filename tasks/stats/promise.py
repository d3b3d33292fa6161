"""A promise about released scores: at most a target share of them is wrong, with a stated confidence.

It rests on exchangeable clusters: labelled responses drawn as those that the promise is about, those of one author
together.
"""

from math import ceil, log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, poisson

from tasks.stats.agreement import SLACK
from tasks.stats.arrays import Bools, Floats, Ints
from tasks.stats.likeness import effective, likeness, squared_sizes

UNLIKELY = 0.025
"""Chance that scores which know no more of an answer than its question pass for better: one end of a 95 % interval."""


class Promise(NamedTuple):
    """What may be released so that, at the confidence asked for, at most the target share is wrong.

    threshold: largest risk that is released, None where nothing may be; then released, wrong and worth are 0.
    released: labelled rows at or below it; wrong: those of them that are wrong; worth: independent rows that the
    released are worth, fewer than they are where rows of a cluster are alike.
    upper: `upper_bound` of their share, at that confidence, of this threshold alone; never above the target.
    """

    threshold: float | None
    released: int
    wrong: int
    worth: float
    upper: float | None


class Path(NamedTuple):
    """Thresholds in the order in which they are tested, (m,) each, the released growing.

    released: rows at or below; worth: independent rows that they are worth; allowed: most of them that may be wrong for
    the test to pass.
    """

    thresholds: Floats
    released: Ints
    worth: Floats
    allowed: Ints

    def take(self, rows: Ints | Bools | slice) -> "Path":
        """Some of the thresholds."""
        return Path(self.thresholds[rows], self.released[rows], self.worth[rows], self.allowed[rows])


def upper_bound(wrong: float, released: float, confidence: float) -> float:
    """One-sided upper bound of the share of wrong scores (Clopper and Pearson 1934), 0 .. 1; 1 where none is released.

    wrong: number wrong of `released` independent ones; of clustered ones both as independent ones are worth, then not
    whole (Korn and Graubard 1998). ValueError unless 0 <= wrong <= released and 0 < confidence < 1.
    """
    if not (0 <= wrong <= released and 0 < confidence < 1):
        raise ValueError(f"needs 0 <= wrong <= released and 0 < confidence < 1, got {wrong}, {released}, {confidence}")
    return 1.0 if wrong == released else float(beta.ppf(confidence, wrong + 1, released - wrong))


def fewest_without_error(target: float, confidence: float) -> int:
    """Fewest released scores, none of them wrong, whose `upper_bound` is at most the target: (1 - target)^n <= 1 -
    confidence.

    ValueError unless both lie inside 0 .. 1, the ends excluded.
    """
    if not (0 < target < 1 and 0 < confidence < 1):
        raise ValueError(f"target and confidence must lie inside 0 .. 1, got {target} and {confidence}")
    # Where n is whole by intention the quotient may be off in its last digit.
    return max(1, ceil(log(1 - confidence) / log(1 - target) - SLACK))


def missed_by_constant(human: Floats, top: float, tolerance: float, of_others: bool = False) -> Bools:
    """Which human scores differ by more than the tolerance from the level that misses fewest of them, (n,).

    human: (n,) in steps above the lowest level; top: the highest level, whole; tolerance: in steps; of_others: whether
    each score is held against the best level of the others, which is what marked answers tell about a new one. Whoever
    guesses by the distribution of these scores misses as many at least: no mean over levels lies below the best.
    """
    held = np.abs(human[:, None] - np.arange(top + 1)) <= tolerance + SLACK
    counts = held.sum(axis=0) - held * of_others
    best = np.argmax(np.broadcast_to(counts, held.shape), axis=1)
    return np.asarray(~held[np.arange(len(held)), best])


def promise(
    risk: npt.ArrayLike,
    wrong: npt.ArrayLike,
    target: float,
    confidence: float,
    cluster: npt.ArrayLike | None = None,
    constant: npt.ArrayLike | None = None,
    unlikely: float = UNLIKELY,
) -> Promise:
    """The largest release whose share of wrong scores is at most the target, at the given confidence.

    risk: (n,) finite, 0 .. 1, estimated without the row's own label; wrong: (n,) bool; target, confidence: inside 0 ..
    1; cluster: (n,) whose answers may be alike, such as those of an author; None where every row stands for itself;
    constant: (n,) share of the labels of each row's item that the best constant of these very labels misses.

    With `constant` a threshold passes only where its released rows are wrong less often than that, too, in a test of
    the same kind at the level `unlikely`. Given the labels of an item, scores that know nothing more of a row than its
    item miss each with that probability or a higher one, and drawn from a fixed set of labels their number varies less
    than the test allows for: with permuted labels something is released in at most that share of cases.

    Thresholds are tested one after the other, each at the full level, up to the first that fails: a fixed sequence
    (Bauer 1991; Westfall and Krishen 2001), as in Learn then Test (Angelopoulos et al. 2021). The sequence knows the
    risks and the clusters, not which rows are wrong: it begins where the risks say that the test is most likely to
    pass, and goes up by the thresholds at which one more wrong score may be tolerated. The p-value of a threshold is
    P(Bin(released, target) <= wrong); of clustered rows it counts what they are worth if they are as alike as
    `likeness` says of all n. Thresholds are left out where not even an errorless release could pass. The risks need not
    be right: a poor order costs coverage, not the promise. ValueError on a bad shape, NaN or a share out of range.
    """
    risks, bad = np.asarray(risk, dtype=np.float64), np.asarray(wrong, dtype=np.bool_)
    if risks.ndim != 1 or risks.shape != bad.shape or not np.isfinite(risks).all():
        raise ValueError("risk and wrong must be 1-D, equally long and finite")
    clusters = np.arange(len(risks)) if cluster is None else np.asarray(cluster)
    if clusters.shape != risks.shape:
        raise ValueError("cluster must be as long as risk")
    if len(risks) < fewest_without_error(target, confidence):
        return Promise(None, 0, 0, 0.0, None)
    order = np.argsort(risks, kind="stable")
    rising = risks[order]
    hardest = None if constant is None else np.asarray(constant, dtype=np.float64)[order]
    path = _path(rising, clusters[order], likeness(bad, clusters), target, 1 - confidence, hardest, unlikely)
    path = _from_likeliest(path, np.cumsum(rising))
    missed = np.cumsum(bad[order])[path.released - 1]
    passed = int(np.logical_and.accumulate(missed <= path.allowed).sum())
    if not passed:
        return Promise(None, 0, 0, 0.0, None)
    last = passed - 1
    went, worth, count = int(path.released[last]), float(path.worth[last]), int(missed[last])
    upper = upper_bound(count * worth / went, worth, confidence)
    return Promise(float(path.thresholds[last]), went, count, worth, upper)


def _path(
    rising: Floats,
    clusters: npt.NDArray[np.generic],
    alike: float,
    target: float,
    level: float,
    constant: Floats | None,
    unlikely: float,
) -> Path:
    """Thresholds at which one more wrong score may be tolerated than at any below, and the largest of all.

    constant, unlikely: as in `promise`, in the order of the rising risks.
    """
    thresholds = np.unique(rising)
    released = np.searchsorted(rising, thresholds, side="right")
    squares = squared_sizes(clusters)[released - 1]
    worth = effective(released, squares, alike)
    allowed = _allowed(released, worth, target, level)
    if constant is not None:
        by_constants = np.cumsum(constant)[released - 1] / released
        allowed = np.minimum(allowed, _allowed(released, worth, by_constants, unlikely))
    path = Path(thresholds, released, worth, allowed)
    path = path.take(path.allowed >= 0)
    rises = np.diff(np.maximum.accumulate(path.allowed), prepend=-1) > 0
    if len(rises):
        rises[-1] = True
    return path.take(rises)


def _allowed(released: Ints, worth: Floats, target: float | Floats, level: float) -> Ints:
    """Most wrong scores that pass the test, (m,), by bisection; -1 where not even none does."""
    passes, fails = np.full(len(released), -1), released.copy()
    while (fails - passes > 1).any():
        middle = (passes + fails) // 2
        counted = middle * worth / released
        # P(Bin(n, q) <= w) is that of a beta variable above q, which does not ask for whole numbers.
        p = beta.sf(target, counted + 1, worth - counted)
        # 1 - 0.9 is less than a tenth in its last digit.
        ok = (p <= level * (1 + SLACK)) & (middle >= 0)
        passes, fails = np.where(ok, middle, passes), np.where(ok, fails, middle)
    return passes


def _from_likeliest(path: Path, expected: Floats) -> Path:
    """The path from the threshold on that is most likely to pass. expected: (n,) wrong ones that the risks of the first
    rows add up to."""
    if not len(path.thresholds):
        return path
    chance = poisson.cdf(path.allowed, np.maximum(expected[path.released - 1], 0.0))
    return path.take(slice(int(np.argmax(chance)), None))
