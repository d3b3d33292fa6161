"""Variance components of crossed ratings and the reliability that follows from them.

ratings: (n responses, k raters), score units, NaN where a rater gave none; a column is one rater throughout. ValueError
on another shape or an infinity.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from tasks.stats.agreement import SLACK
from tasks.stats.arrays import Bools, Floats
from tasks.stats.pair_sums import FLAT
from tasks.stats.ratings import checked_ratings


class Components(NamedTuple):
    """Variances, squared score units, >= 0: between responses (person), between raters (rater), and the rest (error),
    which holds response by rater and chance."""

    person: float
    rater: float
    error: float


def connected(ratings: npt.ArrayLike) -> bool:
    """Whether shared responses link all raters who rated anything: else severities of two parts do not compare."""
    given = ~np.isnan(checked_ratings(ratings))
    rated = given[:, given.any(axis=0)].astype(np.int64)
    return int(connected_components(csr_array(rated.T @ rated), directed=False)[0]) <= 1


def variance_components(ratings: npt.ArrayLike) -> Components | None:
    """Components of score = mean + response + rater + error by restricted maximum likelihood (Patterson and Thompson
    1971), any pattern of gaps.

    Responses and raters are crossed and random, without interaction; components are kept >= 0 and may be 0. In a
    complete table with positive components it gives the analysis of variance, and person over the sum is ICC(2,1).
    None unless there are two responses, two connected raters and a rating more than response and rater means fit.
    """
    table = checked_ratings(ratings)
    given = ~np.isnan(table)
    table = table[given.any(axis=1)][:, given.any(axis=0)]
    given = ~np.isnan(table)
    n, k = table.shape
    if n < 2 or k < 2 or not connected(table) or given.sum() < n + k:
        return None
    own = np.where(given, table - np.nanmean(table), 0.0)
    persons, raters, left = _two_way(own, given)
    if left <= FLAT * float((own**2).sum()):
        # Without error the likelihood has no top; its limit is the spread of the effects themselves.
        return Components(float(persons.var(ddof=1)), float(raters.var(ddof=1)), 0.0)
    return _reml(_Sums.of(own, given))


def generalizability(components: Components, n_raters: int) -> tuple[float | None, float | None]:
    """(relative, absolute) reliability, 0 .. 1, of the mean of `n_raters` ratings by the same, or by any, raters
    (Cronbach et al. 1972).

    None where nothing varies. ValueError for n_raters < 1.
    """
    if n_raters < 1:
        raise ValueError(f"needs a rater, got {n_raters}")
    person, rater, error = components
    wholes = person + error / n_raters, person + (rater + error) / n_raters
    relative, absolute = (person / whole if whole > 0 else None for whole in wholes)
    return relative, absolute


def _two_way(own: Floats, given: Bools) -> tuple[Floats, Floats, float]:
    """(response effects, rater effects, residual sum of squares) by least squares, both kinds fixed."""
    share = given / given.sum(axis=1, keepdims=True)
    normal = np.diag(given.sum(axis=0).astype(np.float64)) - share.T @ given
    raters = np.linalg.lstsq(normal, own.sum(axis=0) - share.T @ own.sum(axis=1), rcond=None)[0]
    persons = np.where(given, own - raters, 0.0).sum(axis=1) / given.sum(axis=1)
    left = np.where(given, own - persons[:, None] - raters, 0.0)
    return persons, raters, float((left**2).sum())


class _Sums(NamedTuple):
    """What the likelihood needs of the ratings, by the number c of ratings that a response has.

    ratings: their number; square: their sum of squares; counts: every c that occurs; rows: responses with c ratings;
    pairs: (counts, k, k) responses with c ratings, by two raters of them; totals: (counts, k) sums over those of a
    rater of the response's total; squares: sums of squared totals; each, sums: ratings per rater, number and sum.
    """

    ratings: int
    square: float
    counts: Floats
    rows: Floats
    pairs: Floats
    totals: Floats
    squares: Floats
    each: Floats
    sums: Floats

    @classmethod
    def of(cls, own: Floats, given: Bools) -> "_Sums":
        there, many, total = given.astype(np.float64), given.sum(axis=1), own.sum(axis=1)
        counts = np.unique(many)
        parts = [many == c for c in counts]
        return cls(
            ratings=int(given.sum()),
            square=float((own**2).sum()),
            counts=counts.astype(np.float64),
            rows=np.array([part.sum() for part in parts], dtype=np.float64),
            pairs=np.stack([there[part].T @ there[part] for part in parts]),
            totals=np.stack([there[part].T @ total[part] for part in parts]),
            squares=np.array([total[part] @ total[part] for part in parts]),
            each=there.sum(axis=0),
            sums=own.sum(axis=0),
        )


def _reml(sums: _Sums) -> Components:
    # Square roots of the ratios to the error variance, as their edge at 0 is smooth; edges are also tried by
    # themselves, so that a component on its bound is 0 and not nearly 0.
    options = {"xatol": 1e-8, "fatol": 1e-9}

    def deviance(person: float, rater: float) -> float:
        return _profile(sums, person**2, rater**2)[0]

    inside = minimize(lambda at: deviance(*at), (1.0, 0.5), method="Nelder-Mead", options=options).x
    person = minimize(lambda at: deviance(at[0], 0.0), (1.0,), method="Nelder-Mead", options=options).x[0]
    rater = minimize(lambda at: deviance(0.0, at[0]), (0.5,), method="Nelder-Mead", options=options).x[0]
    tried = [(0.0, 0.0), (float(person), 0.0), (0.0, float(rater)), (float(inside[0]), float(inside[1]))]
    values = [deviance(*at) for at in tried]
    # The fewest components within rounding of the best.
    best = tried[int(np.argmax(np.array(values) <= min(values) + SLACK))]
    ratios = best[0] ** 2, best[1] ** 2
    error = _profile(sums, *ratios)[1]
    return Components(ratios[0] * error, ratios[1] * error, error)


def _profile(sums: _Sums, person: float, rater: float) -> tuple[float, float]:
    """(-2 log restricted likelihood less a constant, error variance) at its best error variance.

    person, rater: ratios of these variances to that of the error. All is in units of the error variance. Responses are
    eliminated block by block, raters by Woodbury's identity, so that the work grows with k alone; the mean's column of
    ones is the sum of the raters' columns.
    """
    weight = person / (1 + sums.counts * person)
    inner = np.diag(sums.each) - np.tensordot(weight, sums.pairs, axes=1)
    right = sums.sums - weight @ sums.totals
    square = sums.square - float(weight @ sums.squares)
    system = np.eye(len(inner)) + rater * inner
    solved = np.linalg.solve(system, np.column_stack([right, inner.sum(axis=1)]))
    mean_right, mean_square = solved.sum(axis=0)
    left = square - rater * float(right @ solved[:, 0]) - mean_right**2 / mean_square
    freedom = sums.ratings - 1
    volume = float(sums.rows @ np.log1p(sums.counts * person)) + float(np.linalg.slogdet(system)[1])
    return float(freedom * np.log(left / freedom) + volume + np.log(mean_square)), float(left / freedom)
