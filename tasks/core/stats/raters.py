"""Rater effects, people and judges alike: severity and use of the scale.

ratings: (n responses, k raters), score units, NaN where a rater gave none; a column is one rater throughout. ValueError
on another shape or an infinity. Raters are compared with the others on the responses that they share, so an effect is
relative to the others at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike
from scipy.special import softmax
from scipy.stats import norm
from scipy.stats import t as student

from rubricflow.tasks.core.stats.agreement import SLACK, Stat
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints, checked_ratings, ratio
from rubricflow.tasks.core.stats.bootstrap import Interval, cluster_codes, draw_totals, interval, sums_by_code
from rubricflow.tasks.core.stats.facets import Facets
from rubricflow.tasks.core.stats.verdict import Estimate

SEVERITY_ROWS, TENDENCY_ROWS = 30, 50
TENDENCY_LEVEL_ROWS = 10
ALONE = "no response shared with another rater"
NONE_SHARED = f"undefined: {ALONE}"


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


def severity(ratings: ArrayLike, clusters: ArrayLike, draws: int, seed: int) -> list[Severity]:
    """Every rater's mean difference from the others, in column order; clusters: (n,) ids.

    Every shared response counts once, against the mean of its other ratings. Noted below 30 shared responses.
    """
    table = checked_ratings(ratings)
    gap = _gaps(table)
    shared = ~np.isnan(gap)
    codes, size = cluster_codes(clusters)
    sums = sums_by_code(np.hstack([np.where(shared, gap, 0.0), shared]), codes, size)
    (totals,) = draw_totals([sums], draws, seed)
    gap_sums, counts = np.split(totals, 2, axis=1)
    drawn = ratio(gap_sums, counts)
    shared_clusters = (np.split(sums, 2, axis=1)[1] > 0).sum(axis=0).tolist()
    severities = []
    for rater, n in enumerate(shared.sum(axis=0).tolist()):
        difference = Stat(None, NONE_SHARED)
        if n:
            difference = Stat(float(gap[shared[:, rater], rater].mean()), _few(n, SEVERITY_ROWS))
        severities.append(Severity(n, difference, interval(drawn[:, rater], shared_clusters[rater])))
    return severities


def central_tendency(ratings: ArrayLike, low: float, high: float) -> list[Tendency]:
    """Every rater's use of the scale low .. high against the others', in column order.

    sd_ratio compares single ratings: pairs with each other rater on the responses of both, sums of squares
    about the means added up; the mean of several raters would spread less and make everyone look bold. Noted below
    50 shared responses, and where the rater gave some level in use fewer than 10 times.
    """
    table = checked_ratings(ratings)
    present = ~np.isnan(table)
    has_others = np.isfinite(_gaps(table))
    at_end = (np.abs(table - low) < SLACK) | (np.abs(table - high) < SLACK)
    ends = np.where(present, at_end, np.nan)
    others_ends = ends - _gaps(ends)
    found = []
    for rater, shared in enumerate(has_others.T):
        n = int(shared.sum())
        if not n:
            found.append(Tendency(0, *[Stat(None, NONE_SHARED)] * 3))
            continue
        note = _few(n, TENDENCY_ROWS)
        if note is None and (np.unique(table[shared, rater], return_counts=True)[1] < TENDENCY_LEVEL_ROWS).any():
            note = f"a level used fewer than {TENDENCY_LEVEL_ROWS} times"
        own_squares = others_squares = 0.0
        for other in range(table.shape[1]):
            if other != rater:
                both = present[:, rater] & present[:, other]
                own_squares += _squares(table[both, rater])
                others_squares += _squares(table[both, other])
        sd_ratio = Stat(None, "undefined: the others' scores constant")
        if others_squares:
            sd_ratio = Stat(float(np.sqrt(own_squares / others_squares)), note)
        shares = (Stat(float(column[shared, rater].mean()), note) for column in (ends, others_ends))
        found.append(Tendency(n, sd_ratio, *shares))
    return found


def _gaps(table: Floats) -> Floats:
    """Each rating less the mean of the others of its response, (n, k); NaN where there are none."""
    present = ~np.isnan(table)
    scores = np.where(present, table, 0.0)
    others = present.sum(axis=1, keepdims=True) - 1
    others_mean = (scores.sum(axis=1, keepdims=True) - scores) / np.maximum(others, 1)
    return np.where(present & (others > 0), scores - others_mean, np.nan)


def _few(n: int, needed: int) -> str | None:
    return f"fewer than {needed} shared responses" if n < needed else None


def _squares(scores: Floats) -> float:
    """Sum of squares about the mean, exactly 0 where constant."""
    return float(((scores - scores.mean()) ** 2).sum()) if len(scores) and np.ptp(scores) else 0.0


FEW = 20
"""Ratings below which a figure is noted."""


class Residuals(NamedTuple):
    """Every rating of a response that someone else scored too, next to what the others' ratings lead to expect of it.

    response, rater, group: (n,) codes of the design; observed: score units; expected, variance: of the rating, given
    the ratings of the others, who is how severe, and that ability is not known exactly.
    """

    response: Ints
    rater: Ints
    group: Ints
    observed: Floats
    expected: Floats
    variance: Floats

    def take(self, rows: Bools) -> Residuals:
        columns: Iterator[Any] = (column[rows] for column in self)
        return Residuals(*columns)


def residuals(fitted: Facets) -> Residuals:
    """In the order of responses. A rating has no part in its own expectation, so that under the model squared residuals
    are as large as the variance, however few raters a response has. Groups in which all gave one value tell nothing and
    are left out."""
    design, curves = fitted.design, fitted.curves
    pattern, cell = design.ratings.nonzero()
    shared = (design.size[pattern] > 1) & (design.span[design.group[pattern]] > 0)
    pattern, cell = pattern[shared], cell[shared]
    log_p = curves.log_p[design.cell_pair, design.cell_level]
    others = softmax(fitted.log_posterior[pattern] - log_p[cell], axis=1)
    pair = design.cell_pair[cell]
    group = design.group[pattern]
    mean = (others * curves.mean[pair]).sum(axis=1)
    square = (others * (curves.variance + curves.mean**2)[pair]).sum(axis=1)
    spread = np.maximum(square - mean**2, 1e-12)
    low = design.low[group]
    span = design.span[group]
    observed = curves.share[group, design.cell_level[cell]] * span + low
    expected = low + mean * span
    variance = spread * span**2
    # Entries of patterns, repeated for each response that has the pattern.
    first, end = np.searchsorted(pattern, [design.pattern, design.pattern + 1])
    size = end - first
    response = np.repeat(np.arange(len(design.pattern)), size)
    entry = np.repeat(first - np.cumsum(size) + size, size) + np.arange(len(response))
    rater = design.pair_rater[pair]
    return Residuals(response, rater[entry], group[entry], observed[entry], expected[entry], variance[entry])


def infit(marks: Residuals) -> Estimate:
    """Squared residuals over their variances, weighted by information: 1 where the rater is as erratic as the model
    has it, above where more, below where the marks follow the others' too closely. Interval: normal, of a ratio."""
    squares = (marks.observed - marks.expected) ** 2
    if not len(squares):
        return Estimate(None, note=ALONE)
    value = float(squares.sum() / marks.variance.sum())
    se = float(np.sqrt(((squares - value * marks.variance) ** 2).sum()) / marks.variance.sum())
    return _between(value, se, len(squares))


def outfit(marks: Residuals) -> Estimate:
    """The plain mean of squared standardised residuals, which single surprising marks move most."""
    squares = (marks.observed - marks.expected) ** 2 / marks.variance
    if not len(squares):
        return Estimate(None, note=ALONE)
    return _between(float(squares.mean()), float(squares.std() / np.sqrt(len(squares))), len(squares))


def discrimination(marks: Residuals) -> Estimate:
    """Slope of the marks on what the others' let expect of them: 1 where the rater tells responses apart as the model
    has it, below where little of what the others see is in the marks (with a high infit: by chance; with a low one:
    crowded in the middle), above at the ends of the scale. Interval: normal, robust to unequal variances."""
    if len(marks.observed) < 3:
        return Estimate(None, n=len(marks.observed), note="fewer than 3 shared responses")
    sizes = np.bincount(marks.group)[marks.group]
    x, y = (
        (scores - np.bincount(marks.group, scores)[marks.group] / sizes) / np.sqrt(marks.variance)
        for scores in (marks.expected, marks.observed)
    )
    total = float((x**2).sum())
    if total <= 1e-9:
        return Estimate(None, n=len(x), note="the others' marks let expect the same of all")
    value = float((x * y).sum() / total)
    return _between(value, float(np.sqrt((x**2 * (y - value * x) ** 2).sum()) / total), len(x))


def shift(marks: Residuals, unit: Floats, looks: int = 1) -> Estimate:
    """Mean of observed less expected, in units: what is left of a rater's leniency in a period or on an item, once the
    own severity is taken out. unit: (groups,) score units; looks: intervals that shall all hold at 95% together.
    Interval: Student's t, the responses independent."""
    gaps = (marks.observed - marks.expected) / unit[marks.group]
    if len(gaps) < 2:
        return Estimate(None, n=len(gaps), note="fewer than 2 shared responses")
    reach = float(student.ppf(1 - 0.025 / looks, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps)))
    value = float(gaps.mean())
    return Estimate(value, value - reach, value + reach, n=len(gaps), note=_few_ratings(len(gaps)))


def leniency(fitted: Facets, unit: Floats) -> list[Estimate]:
    """What each rater gives above an average rater (below: negative), on average over all responses of the groups in
    which the rater marked, in units. unit: (groups,) score units; n: the rater's ratings."""
    design, curves = fitted.design, fitted.curves
    mass = softmax(fitted.log_posterior, axis=1) * design.weight[:, None]
    ability = np.stack([mass[design.group == group].sum(axis=0) for group in range(len(design.groups))])
    ability /= ability.sum(axis=1, keepdims=True)
    scale = design.span / unit
    counts = np.bincount(design.cell_pair, design.ratings.T @ design.weight)
    total = np.bincount(design.pair_rater, counts)

    def by_rater(of_pairs: Floats) -> Floats:
        """(raters,) means of what pairs give at each ability, (pairs, nodes), in units."""
        of_pair = (ability[design.pair_group] * of_pairs).sum(axis=1) * scale[design.pair_group]
        return np.asarray(np.bincount(design.pair_rater, counts * of_pair) / total)

    value = by_rater(curves.mean - fitted.fair.mean[design.pair_group])
    steep = by_rater(curves.slope[design.pair_group, None] * curves.variance)
    return [_between(*row) for row in zip(value.tolist(), (steep * fitted.se).tolist(), total.tolist(), strict=True)]


def halo(tables: Mapping[str, Floats], clusters: npt.NDArray[np.int64], draws: int, seed: int) -> dict[str, Estimate]:
    """How much more a rater's traits go together than with the other raters' marks of the other traits, -2 .. 2.

    tables: rater -> (n responses, traits), NaN where a trait has no mark. Mean correlation of two traits by the rater,
    less that of the one by the rater and the other by another person on the same responses (heterotrait correlations of
    one and of two raters, Campbell and Fiske 1959): 0 where errors are independent, above where one impression colours
    several traits. The mean over other persons, weighted by the responses that both marked in full; None without 20
    such. Intervals resample clusters; clusters: (n,) codes 0, 1, ….
    """
    halos = {}
    for rater, marks in tables.items():
        blocks = []
        sizes = []
        shared = np.zeros(len(clusters), dtype=np.bool_)
        for other, table in tables.items():
            # Both persons marked just these traits, two or more; of each such set of traits 20 rows.
            trait_sets, set_of = np.unique(~np.isnan(marks) & ~np.isnan(table), axis=0, return_inverse=True)
            for number, traits in enumerate(trait_sets):
                rows = set_of.ravel() == number
                if other == rater or traits.sum() < 2 or rows.sum() < FEW:
                    continue
                pair = np.hstack([marks[rows][:, traits], table[rows][:, traits]])
                if (np.ptp(pair, axis=0) > 0).all():
                    blocks.append(sums_by_code(_products(pair), clusters[rows], int(clusters.max()) + 1))
                    sizes.append(len(pair))
                    shared |= rows
        if not blocks:
            halos[rater] = Estimate(None, note=f"fewer than {FEW} responses whose traits another person marked too")
            continue
        value = float(np.average([_excess(block.sum(axis=0)[None])[0] for block in blocks], weights=sizes))
        halos[rater] = Estimate(value, n=int(shared.sum()))
        if draws:
            drawn = np.average([_excess(total) for total in draw_totals(blocks, draws, seed)], axis=0, weights=sizes)
            reach = interval(drawn, len(np.unique(clusters[shared])))
            halos[rater] = halos[rater]._replace(low=reach.low, high=reach.high, clusters=reach.clusters)
    return halos


def _products(marks: Floats) -> Floats:
    """1, every column and every product of two, (n, 1 + k + k squared); about the means, which keeps their digits."""
    x = marks - marks.mean(axis=0)
    return np.hstack([np.ones((len(x), 1)), x, (x[:, :, None] * x[:, None, :]).reshape(len(x), -1)])


def _excess(totals: Floats) -> Floats:
    """Of sums of `_products` of t and t columns, (samples, …): mean correlation of two traits within the first t less
    that across."""
    width = round(np.sqrt(totals.shape[1] - 0.75) - 0.5)
    n, sums, products = np.split(totals, [1, 1 + width], axis=1)
    mean = sums / n
    cov = products.reshape(-1, width, width) / n[:, :, None] - mean[:, :, None] * mean[:, None, :]
    sd = np.sqrt(np.maximum(np.einsum("sii->si", cov), 1e-12))
    r = cov / sd[:, :, None] / sd[:, None, :]
    traits = width // 2
    apart = ~np.eye(traits, dtype=bool)
    within = r[:, :traits, :traits]
    across = r[:, :traits, traits:]
    return np.asarray(within[:, apart].mean(axis=1) - across[:, apart].mean(axis=1))


def _between(value: float, se: float, n: int) -> Estimate:
    reach = float(norm.ppf(0.975)) * se
    return Estimate(value, value - reach, value + reach, se, n=int(n), note=_few_ratings(n))


def _few_ratings(n: int) -> str:
    return f"fewer than {FEW} ratings" if n < FEW else ""
