"""A promise about released scores: at most a target share of them is wrong, with a stated confidence.

It rests on exchangeable clusters: labelled responses drawn as those that the promise is about, those of one author
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import betainc
from scipy.stats import beta, binom, poisson

from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints, ratio

COVERAGES = tuple(tenths / 10 for tenths in range(1, 11))
"""Shares of the scores whose release is looked at."""
POWER = 0.8
"""Probability with which the labels asked for shall suffice, if scores stay as wrong as they are."""
MOST = 10_000
"""Released scores up to which a promise is looked for; nobody marks more to be allowed one."""
WORDS_A_MINUTE = 200
"""At which a person reads answers to mark them."""
SECONDS_TO_MARK = 20
"""What deciding on a mark and writing it down takes besides the reading."""


class MarkedAnswers(NamedTuple):
    """The answers to a question, and those of them that people marked."""

    item_id: str
    answers: int
    marked: int
    counting: int
    """Of the marked ones those that a promise may rest on."""
    words: int
    """Of all answers together."""


class PromiseNeeds(NamedTuple):
    """What a promise needs of the answers that it is about, and what there is."""

    scope: str
    """The item, or 'all'."""
    answers: int
    marked: int
    counting: int
    """Marked answers that it may rest on."""
    needed: int
    """Fewest of these with which anything can be promised: none of their scores may be wrong then."""
    minutes: float
    """What marking all answers takes a person."""


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


def upper_bound(wrong: float, released: float, confidence: float) -> float:
    """One-sided upper bound of the share of wrong scores (Clopper and Pearson 1934), 0 .. 1; 1 where none is released.

    wrong: number wrong of `released` independent ones; of clustered ones both as independent ones are worth, then not
    whole (Korn and Graubard 1998). ValueError unless 0 <= wrong <= released and 0 < confidence < 1.
    """
    if not (0 <= wrong <= released and 0 < confidence < 1):
        raise ValueError(f"needs 0 <= wrong <= released and 0 < confidence < 1, got {wrong}, {released}, {confidence}")
    return 1.0 if wrong == released else float(beta.ppf(confidence, wrong + 1, released - wrong))


def exact_interval(count: int, n: int) -> tuple[float, float]:
    """Exact 95% interval of a share of n independent cases (Clopper and Pearson 1934); n: >= 1."""
    low = float(beta.ppf(0.025, count, n - count + 1)) if count else 0.0
    return low, float(beta.ppf(0.975, count + 1, n - count)) if count < n else 1.0


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
    risk: ArrayLike,
    wrong: ArrayLike,
    target: float,
    confidence: float,
    cluster: ArrayLike | None = None,
    constant: ArrayLike | None = None,
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
    risks = np.asarray(risk, dtype=np.float64)
    bad = np.asarray(wrong, dtype=np.bool_)
    if risks.ndim != 1 or risks.shape != bad.shape or not np.isfinite(risks).all():
        raise ValueError("risk and wrong must be 1-D, equally long and finite")
    clusters = np.arange(len(risks)) if cluster is None else np.asarray(cluster)
    if len(risks) < fewest_without_error(target, confidence):
        return Promise(None, 0, 0, 0.0, None)
    order = np.argsort(risks, kind="stable")
    rising = risks[order]
    thresholds = np.unique(rising)
    released = np.searchsorted(rising, thresholds, side="right")
    worth = effective(released, squared_sizes(clusters[order])[released - 1], likeness(bad, clusters))
    allowed = tolerated(released, worth, target, 1 - confidence)
    if constant is not None:
        by_constants = np.cumsum(np.asarray(constant, dtype=np.float64)[order])[released - 1] / released
        allowed = np.minimum(allowed, tolerated(released, worth, by_constants, unlikely))
    # Where one more wrong score may be tolerated than at any threshold below, and the largest of all.
    path = np.flatnonzero(allowed >= 0)
    rises = np.diff(np.maximum.accumulate(allowed[path]), prepend=-1) > 0
    rises[-1:] = True
    path = path[rises]
    if len(path):
        expected = np.maximum(np.cumsum(rising)[released[path] - 1], 0.0)
        path = path[int(np.argmax(poisson.cdf(allowed[path], expected))) :]
    missed = np.cumsum(bad[order])[released[path] - 1]
    passed = int(np.logical_and.accumulate(missed <= allowed[path]).sum())
    if not passed:
        return Promise(None, 0, 0, 0.0, None)
    last = path[passed - 1]
    wrong_ones = int(missed[passed - 1])
    went = int(released[last])
    independent = float(worth[last])
    upper = upper_bound(wrong_ones * independent / went, independent, confidence)
    return Promise(float(thresholds[last]), went, wrong_ones, independent, upper)


def tolerated(released: Ints, worth: Floats, target: float | Floats, level: float) -> Ints:
    """Most wrong scores that pass the test, (m,), by bisection; -1 where not even none does."""
    passes = np.full(len(released), -1)
    fails = released.copy()
    while (fails - passes > 1).any():
        middle = (passes + fails) // 2
        counted = middle * worth / released
        # P(Bin(n, q) <= w) is that of a beta variable above q, which does not ask for whole numbers.
        p = betainc(worth - counted, counted + 1, 1 - target)
        # 1 - 0.9 is less than a tenth in its last digit.
        ok = (p <= level * (1 + SLACK)) & (middle >= 0)
        passes, fails = np.where(ok, middle, passes), np.where(ok, fails, middle)
    return passes


# How alike the answers of one cluster are, and how many independent ones a number of them is worth.


def likeness(flag: Bools, cluster: ArrayLike) -> float:
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


def squared_sizes(cluster: ArrayLike) -> Ints:
    """Sum of the squared cluster sizes among the first k rows, for k = 1 .. n, shape (n,). cluster: (n,)."""
    names = pd.Series(np.asarray(cluster))
    return np.asarray(np.cumsum(2 * names.groupby(names).cumcount() + 1), dtype=np.int64)


def effective(n: Ints, squares: Ints, alike: float | Floats) -> Floats:
    """Independent rows that n clustered ones are worth, shape of n: n over Kish's design effect (Kish 1965).

    n: >= 1; squares: sum of their squared cluster sizes; alike: intraclass correlation, 0 .. 1, of each or all.
    """
    return np.asarray(n / (1 + (squares / n - 1) * alike), dtype=np.float64)


def _correlation(sums: Floats) -> Floats:
    """Intraclass correlation, (m,), of rows of which these sums over clusters are known, (5, m): hits, sizes, and the
    products of hits with hits, hits with sizes, sizes with sizes. 0 where it is undefined."""
    hits, n, hits_hits, hits_sizes, sizes_sizes = sums
    share = hits / n
    within = hits * (1 - share) ** 2 + (n - hits) * share**2
    between = hits_hits - 2 * share * hits_sizes + share**2 * sizes_sizes - within
    pairs = sizes_sizes - n
    variance = within / n
    return np.asarray(np.nan_to_num(ratio(between, pairs * variance)), dtype=np.float64)


# How many labels it would take: to know a figure well enough, and to promise something about released scores.


def promise_needs(
    items: Sequence[MarkedAnswers], target: float, confidence: float, by_item: bool
) -> list[PromiseNeeds]:
    """What every promise wants: one an item, or one about all. target, confidence: as in `promise`."""
    needed = fewest_without_error(target, confidence)
    scopes = {item.item_id: [item] for item in items} if by_item else {"all": list(items)}
    return [
        PromiseNeeds(
            scope,
            sum(item.answers for item in members),
            sum(item.marked for item in members),
            sum(item.counting for item in members),
            needed,
            sum(item.words / WORDS_A_MINUTE + item.answers * SECONDS_TO_MARK / 60 for item in members),
        )
        for scope, members in scopes.items()
    ]


def labels_for_width(low: float, high: float, n: int, half: float) -> int:
    """Labels, those there included, after which an interval is no wider than ± half.

    n: labels behind the interval low .. high, whose width is taken to fall with 1 / sqrt(n).
    """
    return max(n, ceil(n * ((high - low) / (2 * half)) ** 2 - SLACK))


def released_for_promise(wrong: float, target: float, confidence: float) -> int | None:
    """Fewest released labelled scores with which the promise is made with probability POWER.

    wrong: share of released scores that are wrong, 0 .. 1; target, confidence: those of the promise, inside 0 .. 1. It
    is made where P(Bin(n, target) <= errors) is at most 1 - confidence, as one threshold is tested in `promise`. None
    where it takes more than MOST, and so where wrong is at the target or above.
    """
    if wrong >= target:
        return None
    n = np.arange(1, MOST + 1)
    # The quantile is the first number of errors whose probability reaches 1 - confidence: one less is allowed.
    quantile = binom.ppf(1 - confidence, n, target)
    at_quantile = binom.cdf(quantile, n, target) <= (1 - confidence) * (1 + SLACK)
    allowed = np.where(at_quantile, quantile, quantile - 1)
    enough = np.flatnonzero(binom.cdf(allowed, n, wrong) >= POWER)
    return int(n[enough[0]]) if len(enough) else None


def labels_for_promise(risk: ArrayLike, wrong: ArrayLike, target: float, confidence: float) -> tuple[int, float] | None:
    """(Labels, coverage) of the release that takes the fewest labels to be promised, by held-out scores.

    risk: (n,) finite; wrong: (n,) bool, of scores whose labels the mapping has not seen. At each coverage the share
    that is wrong is taken as (errors + 1) / (released + 2), so that a few scores without an error prove nothing. None
    where no coverage could be promised with any number of labels, or there are no scores.
    """
    order = np.argsort(np.asarray(risk, dtype=np.float64), kind="stable")
    mistakes = np.cumsum(np.asarray(wrong, dtype=np.bool_)[order])
    options = []
    for coverage in COVERAGES:
        released = ceil(coverage * len(order) - SLACK)
        if released:
            share = float(mistakes[released - 1] + 1) / (released + 2)
            needed = released_for_promise(share, target, confidence)
            if needed is not None:
                options.append((ceil(needed / coverage - SLACK), coverage))
    return min(options, key=lambda pair: (pair[0], -pair[1]), default=None)
