"""How many labels it would take: to know a figure well enough, and to promise something about released scores."""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

from tasks.stats.agreement import SLACK
from tasks.stats.promise import fewest_without_error

COVERAGES = tuple(tenths / 10 for tenths in range(1, 11))
"""Shares of the scores whose release is looked at."""
POWER = 0.8
"""Probability with which the labels asked for shall suffice, if scores stay as wrong as they are."""
MOST = 10_000
"""Released scores up to which a promise is looked for; nobody marks more to be allowed one."""
WORDS_A_MINUTE = 200
"""At which a person reads answers to mark them."""
SECONDS_TO_MARK = 20
"""What deciding on a mark and writing it down takes beside the reading."""


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
    """What a promise wants of the answers that it is about, beside what there is."""

    scope: str
    """The item, or 'all'."""
    answers: int
    counting: int
    """Marked answers that it may rest on."""
    needed: int
    """Fewest of these with which anything can be promised: none of their scores may be wrong then."""
    minutes: float
    """What marking all answers takes a person."""


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
            sum(item.counting for item in members),
            needed,
            sum(item.words / WORDS_A_MINUTE + item.answers * SECONDS_TO_MARK / 60 for item in members),
        )
        for scope, members in scopes.items()
    ]


def labels_for_width(low: float, high: float, n: int, half: float) -> int:
    """Labels, those there included, after which an interval is no wider than ± half.

    n: labels behind the interval low .. high, whose width is taken to fall with 1 / sqrt(n). ValueError for a half
    width that is not above 0 or ends in the wrong order.
    """
    if not half > 0 or high < low:
        raise ValueError(f"needs half > 0 and low <= high, got {half}, {low} and {high}")
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


def labels_for_promise(
    risk: npt.ArrayLike, wrong: npt.ArrayLike, target: float, confidence: float
) -> tuple[int, float] | None:
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
