"""Mappings to the human scale: Rulers' phase III, and curves of the raw score alone.

Rulers: second-order ridge to a latent score, then a monotone map onto the human distribution. The map is the published
one: ridge and both empirical distributions come from the same calibration rows. A ridge knows the rows it was fitted on
a little too well, so the latents of new rows spread slightly less than the knots say and the outermost scores come out
slightly too seldom. Cross-fitted latents would be another method. Curves: a line, a rising step function, or mean and
standard deviation, with item offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.stats.agreement import to_levels
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints

# Latents closer than this share of the scale are one latent: rows that tie in exact arithmetic may not in floats.
TIE = 1e-9
CHUNK_BYTES = 16 * 2**20


class Alignment(Frozen):
    """A fitted mapping of features to the human scale, as numbers; JSON keeps every float exactly."""

    low: float
    """Lowest score of the scale fitted on."""
    high: float
    """Its highest score."""
    alpha: float
    """Strength of the ridge."""
    means: tuple[float, ...]
    """Mean of each second-order feature."""
    scales: tuple[float, ...]
    """Its standard deviation; 1 where it is constant."""
    coefficients: tuple[float, ...]
    """Ridge coefficient of each standardised second-order feature."""
    intercept: float
    """Ridge intercept."""
    latent_knots: tuple[float, ...]
    """Latent scores, strictly rising; the ends are the range seen in calibration."""
    score_knots: tuple[float, ...]
    """Human score at each latent knot, never falling; none where the latents stand as they are."""


class Aligned(NamedTuple):
    """Aligned rows, every array of shape (n,).

    latent: the ridge's score, NaN where a method has none; aligned: after the distribution map, within the scale;
    score: aligned, rounded half up to the scale's steps; clipped: whether the latent, or else the raw score, lies
    outside the range seen in calibration.
    """

    latent: Floats
    aligned: Floats
    score: Floats
    clipped: Bools


def fit(matrix: ArrayLike, target: ArrayLike, low: float, high: float, alpha: float = 2.5) -> Alignment:
    """Fit phi (features) -> z (latent) -> human score (Rulers, section 3.4, Eqs. 4-5).

    matrix: (n, d) finite, d >= 1; target: (n,) finite human scores on low .. high; n >= 2. The order of the rows does
    not matter, to the last bit.
    """
    x = np.asarray(matrix, dtype=np.float64)
    y = np.asarray(target, dtype=np.float64)
    order = np.lexsort(np.column_stack([x, y]).T)
    x, y = x[order], y[order]
    terms = second_order(x)
    scaler = StandardScaler().fit(terms)
    ridge = Ridge(alpha=alpha).fit(scaler.transform(terms), y)
    line = Alignment(
        low=low,
        high=high,
        alpha=alpha,
        means=tuple(scaler.mean_.tolist()),
        scales=tuple(scaler.scale_.tolist()),
        coefficients=tuple(ridge.coef_.tolist()),
        intercept=float(ridge.intercept_),
        latent_knots=(),
        score_knots=(),
    )
    latents, scores = knots(latent_scores(line, x), y, TIE * (high - low))
    return line.model_copy(update={"latent_knots": tuple(latents.tolist()), "score_knots": tuple(scores.tolist())})


def without_map(alignment: Alignment) -> Alignment:
    """The ridge alone, as in Rulers without phase III (Table 4): latents are clipped and rounded, not mapped."""
    ends = alignment.latent_knots[0], alignment.latent_knots[-1]
    return alignment.model_copy(update={"latent_knots": ends, "score_knots": ()})


def apply(alignment: Alignment, matrix: ArrayLike, scale: tuple[float, float, float]) -> Aligned:
    """Latent, aligned and final scores of new rows, in the units of `scale` (low, high, step).

    matrix: (n, d) finite, the fitted features in their order. A scale other than the fitted one stretches the fitted
    range onto it, as pooled mappings need.
    """
    latent = latent_scores(alignment, matrix)
    mapped = np.interp(latent, alignment.latent_knots, alignment.score_knots) if alignment.score_knots else latent
    return on_scale(latent, mapped, alignment.latent_knots, (alignment.low, alignment.high), scale)


def on_scale(
    given: Floats,
    mapped: Floats,
    seen: Sequence[float],
    fitted: tuple[float, float],
    scale: tuple[float, float, float],
) -> Aligned:
    """Aligned rows of mapped scores, (n,), in the units of `scale`; what they are mapped from stands as their latent.

    given: what they are mapped from; seen: rising, its range in calibration; fitted: ends of the scale fitted on.
    """
    aligned = stretch(np.clip(mapped, *fitted), fitted, scale)
    clipped = (given < seen[0]) | (given > seen[-1])
    return Aligned(stretch(given, fitted, scale), aligned, snap(aligned, scale), clipped)


def towards(found: Aligned, raw: Floats, weight: float, scale: tuple[float, float, float]) -> Aligned:
    """Aligned rows with a weight in 0 .. 1, and the raw scores, (n,) in the units of `scale`, with the rest of it."""
    if weight == 1:
        return found
    kept = np.clip(raw, scale[0], scale[1])
    aligned = np.round(kept + weight * (found.aligned - kept), DIGITS)
    return found._replace(aligned=aligned, score=snap(aligned, scale))


def snap(scores: ArrayLike, scale: tuple[float, float, float]) -> Floats:
    """Scores on the steps of the scale (low, high, step): nearest step, halves up, within low .. high; any shape."""
    low, _, step = scale
    # 3 steps of 0.1 are 0.30000000000000004; what is written down is 0.3.
    return np.asarray(np.round(low + step * to_levels(scores, *scale), 9), dtype=np.float64)


def stretch(values: Floats, fitted: tuple[float, float], scale: tuple[float, float, float]) -> Floats:
    """Values on the range fitted on, (low, high), as values of the scale; unchanged to the last bit where it is one."""
    low, high, _ = scale
    if (low, high) == fitted:
        return values
    return low + (values - fitted[0]) * ((high - low) / (fitted[1] - fitted[0]))


def latent_scores(alignment: Alignment, matrix: ArrayLike) -> Floats:
    """z of every row (Eq. 4), shape (n,), in the units fitted on. Equal rows have equal latents, to the last bit."""
    x = np.asarray(matrix, dtype=np.float64)
    means, scales, coefficients = (np.array(v) for v in (alignment.means, alignment.scales, alignment.coefficients))
    latent = np.empty(len(x))
    rows = max(1, CHUNK_BYTES // (8 * len(means)))
    for start in range(0, len(x), rows):
        part = slice(start, start + rows)
        # A product with BLAS may sum the same row in another order at another place.
        latent[part] = ((second_order(x[part]) - means) / scales * coefficients).sum(axis=1)
    return latent + alignment.intercept


def second_order(matrix: Floats) -> Floats:
    """The features, then all their products of two, squares included: (n, d) -> (n, d + d (d + 1) / 2)."""
    first, second = np.triu_indices(matrix.shape[1])
    return np.hstack([matrix, matrix[:, first] * matrix[:, second]])


def knots(latent: Floats, target: Floats, tie: float) -> tuple[Floats, Floats]:
    """Knots of the inverse of the human distribution at the distribution of the latents (Eq. 5).

    latent, target: (n,). Both distributions are taken at mid-ranks, so equal shares of n mean equal ranks. Latents
    within `tie` of their neighbour share one score, that of their mean rank, so no step has zero width.
    """
    z = np.sort(latent)
    y = np.sort(target)
    first = np.flatnonzero(np.concatenate([[True], np.diff(z) > tie]))
    last = np.concatenate([first[1:], [len(z)]]) - 1
    score = np.interp((first + last) / 2, np.arange(len(y)), y)
    latents, score = np.column_stack([z[first], z[last]]).ravel(), np.repeat(score, 2)
    rising = np.concatenate([[True], np.diff(latents) > 0])
    latents, score = latents[rising], score[rising]
    bend = np.ones(len(latents), dtype=np.bool_)  # without the knots inside level stretches
    bend[1:-1] = (score[1:-1] != score[:-2]) | (score[1:-1] != score[2:])
    return latents[bend], score[bend]


FLAT = 1e-9
"""Slopes and spreads up to this are none: scores of one value differ by specks after arithmetic."""
DIGITS = 12
"""Decimals of a raw score that count: shares of different scales that are equal may differ in the last bit."""


class Refusal(Exception):
    """Why a method cannot be fitted to some rows; it is then no candidate."""


class ScoreCurve(Frozen):
    """A piecewise linear map of the raw score, never falling, and what is added for each item."""

    low: float
    """Lowest score of the scale fitted on."""
    high: float
    """Its highest score."""
    raw_knots: tuple[float, ...]
    """Raw scores, strictly rising; the ends are the range seen in calibration."""
    score_knots: tuple[float, ...]
    """Score at each, never falling."""
    offsets: dict[str, float]
    """Item → what is added to its scores; 0 for an item that is not here."""


def apply_curve(curve: ScoreCurve, raw: ArrayLike, offset: Floats, scale: tuple[float, float, float]) -> Aligned:
    """Aligned and final scores of new rows, in the units of `scale`, onto which the fitted range is stretched.

    raw: (n,) finite raw scores on the scale fitted on; offset: what is added for
    their items, (n,). Beyond the range seen in
    calibration the score is that of its nearer end, and `clipped`. There is no latent score: NaN. Equal rows get equal
    scores to the last bit.
    """
    x = np.asarray(raw, dtype=np.float64).round(DIGITS)
    mapped = np.interp(x, curve.raw_knots, curve.score_knots) + offset
    found = on_scale(x, mapped, curve.raw_knots, (curve.low, curve.high), scale)
    return found._replace(latent=np.full(len(x), np.nan))


def fit_linear(
    raw: Floats, human: Floats, weight: Floats, item: Ints, items: tuple[str, ...], ends: tuple[float, float]
) -> ScoreCurve:
    """The weighted least-squares line of the human on the raw score, with shrunken item offsets.

    raw, human, weight (> 0), item (index in `items`): (n,); ends: of the scale. Refusal for one raw score throughout
    and for a slope that does not rise.
    """
    x, y, w, item = _ordered(raw, human, weight, item)
    if np.ptp(x) <= FLAT:
        raise Refusal("all raw scores are the same")
    mean_x = np.average(x, weights=w)
    mean_y = np.average(y, weights=w)
    slope = float(np.sum(w * (x - mean_x) * (y - mean_y)) / np.sum(w * (x - mean_x) ** 2))
    intercept = float(mean_y - slope * mean_x)
    if slope <= FLAT:
        raise Refusal(f"its slope is {slope:.3g}, not above 0")
    ends_seen = np.array([x.min(), x.max()])
    return _curve(ends_seen, intercept + slope * ends_seen, ends, offsets(y - (intercept + slope * x), w, item, items))


def fit_isotonic(
    raw: Floats, human: Floats, weight: Floats, item: Ints, items: tuple[str, ...], ends: tuple[float, float]
) -> ScoreCurve:
    """The weighted isotonic regression of the human on the raw score (Barlow et al. 1972), with shrunken item offsets.

    Between the raw scores seen it runs straight. Arguments as in `fit_linear`. Refusal where it does not rise.
    """
    x, y, w, item = _ordered(raw, human, weight, item)
    model = IsotonicRegression(increasing=True, out_of_bounds="clip").fit(x, y, sample_weight=w)
    if np.ptp(model.y_thresholds_) <= FLAT:
        raise Refusal("human scores do not rise with the raw score")
    return _curve(model.X_thresholds_, model.y_thresholds_, ends, offsets(y - model.predict(x), w, item, items))


def fit_linking(raw: Floats, human: Floats, weight: Floats, ends: tuple[float, float]) -> ScoreCurve:
    """Mean-and-standard-deviation linking (Kolen and Brennan 2014): the raw scores get the human mean and spread.

    Arguments as in `fit_linear`. Refusal where either has one value throughout.
    """
    x, y, w, _ = _ordered(raw, human, weight, np.zeros(len(raw), dtype=np.int64))
    mean_x = np.average(x, weights=w)
    mean_y = np.average(y, weights=w)
    spread_x, spread_y = (float(np.sqrt(np.average(gap**2, weights=w))) for gap in (x - mean_x, y - mean_y))
    if min(spread_x, spread_y) <= FLAT:
        raise Refusal("raw or human scores have no spread")
    ends_seen = np.array([x.min(), x.max()])
    return _curve(ends_seen, mean_y + (ends_seen - mean_x) * (spread_y / spread_x), ends, {})


def offsets(residual: Floats, weight: Floats, item: Ints, items: tuple[str, ...]) -> dict[str, float]:
    """Item → its mean residual, shrunk by tau^2 / (tau^2 + sigma^2 / n_k); empty where one item or too few rows.

    residual, weight, item (index in `items`): (n,). sigma^2 is the mean square within items and tau^2 the variance
    between them, by the method of moments for unequal groups, at least 0 (Searle, Casella and McCulloch 1992). With
    weights n_k is their sum and sigma^2 the variance of a row of weight 1.
    """
    total = np.bincount(item, weights=weight, minlength=len(items))
    items_seen = np.flatnonzero(total > 0)
    if not 1 < len(items_seen) < len(residual):
        return {}
    mean = np.bincount(item, weights=weight * residual, minlength=len(items))[items_seen] / total[items_seen]
    size = total[items_seen]
    centre = np.zeros(len(items))
    centre[items_seen] = mean
    within = float(np.sum(weight * (residual - centre[item]) ** 2)) / (len(residual) - len(items_seen))
    between = float(np.sum(size * (mean - np.average(mean, weights=size)) ** 2))
    tau2 = max(0.0, (between - (len(items_seen) - 1) * within) / (size.sum() - np.sum(size**2) / size.sum()))
    if tau2 == 0:
        return {}
    shrunk = mean * tau2 / (tau2 + within / size)
    return {items[k]: float(value) for k, value in zip(items_seen, shrunk, strict=True)}


def _ordered(raw: Floats, human: Floats, weight: Floats, item: Ints) -> tuple[Floats, Floats, Floats, Ints]:
    """The rows in an order of their own, so that sums do not depend on the order given."""
    x = np.round(raw, DIGITS)
    order = np.lexsort((weight, item, human, x))
    return x[order], human[order], weight[order], item[order]


def _curve(knots: Floats, to: Floats, ends: tuple[float, float], added: dict[str, float]) -> ScoreCurve:
    return ScoreCurve(
        low=ends[0], high=ends[1], raw_knots=tuple(knots.tolist()), score_knots=tuple(to.tolist()), offsets=added
    )
