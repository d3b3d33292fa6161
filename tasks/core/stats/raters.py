"""Rater effects, people and judges alike: severity and use of the scale.

ratings: (n responses, k raters), score units, NaN where a rater gave none; a column is one rater throughout. ValueError
on another shape or an infinity. Raters are compared with the others on the responses that they share, so an effect is
relative to the others at hand.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rubricflow.tasks.core.stats.agreement import SLACK, Stat
from rubricflow.tasks.core.stats.arrays import Bools, Floats, checked_ratings
from rubricflow.tasks.core.stats.bootstrap import Interval, cluster_codes, draw_totals, interval, sums_by_code

SEVERITY_ROWS, TENDENCY_ROWS = 30, 50
TENDENCY_LEVEL_ROWS = 10
NONE_SHARED = "undefined: no response shared with another rater"


class Severity(NamedTuple):
    """n: responses that another rater scored too; difference: mean of the rater less the mean of the others on them,
    score units, positive where lenient; interval: over resampled clusters."""

    n: int
    difference: Stat
    interval: Interval


class Tendency(NamedTuple):
    """n: responses shared; sd_ratio: the rater's standard deviation over the others', below 1 where the rater keeps to
    the middle; ends, others_ends: shares of the ratings on the lowest or highest level, 0 .. 1."""

    n: int
    sd_ratio: Stat
    ends: Stat
    others_ends: Stat


def severity(ratings: npt.ArrayLike, clusters: npt.ArrayLike, draws: int, seed: int) -> list[Severity]:
    """Every rater's mean difference from the others, in column order; clusters: (n,) ids.

    Every shared response counts once, against the mean of its other ratings. Noted below 30 shared responses.
    """
    table = checked_ratings(ratings)
    gap = _gaps(table)
    shared = ~np.isnan(gap)
    codes, size = cluster_codes(clusters)
    sums = sums_by_code(np.hstack([np.where(shared, gap, 0.0), shared]), codes, size)
    (totals,) = draw_totals([sums], draws, seed)
    drawn = _means(*np.split(totals, 2, axis=1))
    shared_clusters = (np.split(sums, 2, axis=1)[1] > 0).sum(axis=0).tolist()
    severities = []
    for rater, n in enumerate(shared.sum(axis=0).tolist()):
        difference = _mean(gap[shared[:, rater], rater], SEVERITY_ROWS)
        severities.append(Severity(n, difference, interval(drawn[:, rater], shared_clusters[rater])))
    return severities


def central_tendency(ratings: npt.ArrayLike, low: float, high: float) -> list[Tendency]:
    """Every rater's use of the scale low .. high beside the others', in column order.

    sd_ratio compares single ratings: pairs with each other rater on the responses of both, sums of squares
    about the means added up; the mean of several raters would spread less and make everyone look bold. Noted below
    50 shared responses, and where the rater gave some level in use fewer than 10 times.
    """
    table = checked_ratings(ratings)
    gap = _gaps(table)
    at_end = (np.abs(table - low) < SLACK) | (np.abs(table - high) < SLACK)
    ends = np.where(np.isnan(table), np.nan, at_end)
    others = ends - _gaps(ends)
    return [_tendency(table, ends, others, rater, np.isfinite(gap[:, rater])) for rater in range(table.shape[1])]


def _gaps(table: Floats) -> Floats:
    """Each rating less the mean of the others of its response, (n, k); NaN where there are none."""
    present = ~np.isnan(table)
    scores = np.where(present, table, 0.0)
    others = present.sum(axis=1, keepdims=True) - 1
    others_mean = (scores.sum(axis=1, keepdims=True) - scores) / np.maximum(others, 1)
    return np.where(present & (others > 0), scores - others_mean, np.nan)


def _means(sums: Floats, counts: Floats) -> Floats:
    return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def _few(n: int, needed: int) -> str | None:
    return f"fewer than {needed} shared responses" if n < needed else None


def _mean(gaps: Floats, needed: int) -> Stat:
    return Stat(float(gaps.mean()), _few(len(gaps), needed)) if len(gaps) else Stat(None, NONE_SHARED)


def _sparse(scores: Floats) -> str | None:
    rare = np.unique(scores, return_counts=True)[1] < TENDENCY_LEVEL_ROWS
    return _few(len(scores), TENDENCY_ROWS) or (
        f"a level used fewer than {TENDENCY_LEVEL_ROWS} times" if rare.any() else None
    )


def _tendency(table: Floats, ends: Floats, others: Floats, rater: int, shared: Bools) -> Tendency:
    n, note = int(shared.sum()), _sparse(table[shared, rater])
    if not n:
        return Tendency(0, *[Stat(None, NONE_SHARED)] * 3)
    own_squares = others_squares = 0.0
    for other, both in _couples(table, rater):
        own_squares += _squares(table[both, rater])
        others_squares += _squares(table[both, other])
    ratio = Stat(None, "undefined: the others' scores constant")
    if others_squares:
        ratio = Stat(float(np.sqrt(own_squares / others_squares)), note)
    own_ends, others_ends = float(ends[shared, rater].mean()), float(others[shared, rater].mean())
    return Tendency(n, ratio, Stat(own_ends, note), Stat(others_ends, note))


def _couples(table: Floats, rater: int) -> list[tuple[int, Bools]]:
    """(another rater, (n,) responses that both scored)."""
    present = ~np.isnan(table)
    return [(other, present[:, rater] & present[:, other]) for other in range(table.shape[1]) if other != rater]


def _squares(scores: Floats) -> float:
    """Sum of squares about the mean, exactly 0 where constant."""
    return float(((scores - scores.mean()) ** 2).sum()) if len(scores) and np.ptp(scores) else 0.0
