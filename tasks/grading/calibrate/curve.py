"""Mappings of the raw score alone: a line, a rising step function or mean and standard deviation, with item offsets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.isotonic import IsotonicRegression

from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.grading.calibrate.alignment import Aligned, snap, stretch

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

    def offset(self, item_id: str) -> float:
        """What is added to the scores of an item."""
        return self.offsets.get(item_id, 0.0)


def apply_curve(
    curve: ScoreCurve, raw: npt.ArrayLike, offset: float | Floats, scale: tuple[float, float, float]
) -> Aligned:
    """Aligned and final scores of new rows, in the units of `scale`, onto which the fitted range is stretched.

    raw: (n,) finite raw scores on the scale fitted on; offset: of their item, or (n,). Beyond the range seen in
    calibration the score is that of its nearer end, and `clipped`. There is no latent score: NaN. Equal rows get equal
    scores to the last bit.
    """
    x = np.round(np.asarray(raw, dtype=np.float64), DIGITS)
    mapped = np.interp(x, curve.raw_knots, curve.score_knots) + offset
    aligned = stretch(np.clip(mapped, curve.low, curve.high), (curve.low, curve.high), scale)
    clipped = (x < curve.raw_knots[0]) | (x > curve.raw_knots[-1])
    return Aligned(np.full(len(x), np.nan), aligned, snap(aligned, scale), clipped)


def fit_linear(
    raw: Floats, human: Floats, weight: Floats, item: Ints, items: tuple[str, ...], ends: tuple[float, float]
) -> ScoreCurve:
    """The weighted least-squares line of the human on the raw score, with shrunken item offsets.

    raw, human, weight (> 0), item (index in `items`): (n,); ends: of the scale. Refusal for one raw score throughout
    and for a slope that does not rise.
    """
    x, y, w, item = _ordered(raw, human, weight, item)
    slope, intercept = _line(x, y, w)
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
    spreads = [float(np.sqrt(np.average((z - np.average(z, weights=w)) ** 2, weights=w))) for z in (x, y)]
    if min(spreads) <= FLAT:
        raise Refusal("raw or human scores have no spread")
    ends_seen = np.array([x.min(), x.max()])
    return _curve(
        ends_seen,
        np.average(y, weights=w) + (ends_seen - np.average(x, weights=w)) * (spreads[1] / spreads[0]),
        ends,
        {},
    )


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


def _line(x: Floats, y: Floats, w: Floats) -> tuple[float, float]:
    """Slope and intercept of the weighted least-squares line; Refusal for constant x."""
    if np.ptp(x) <= FLAT:
        raise Refusal("all raw scores are the same")
    mean_x, mean_y = np.average(x, weights=w), np.average(y, weights=w)
    slope = np.sum(w * (x - mean_x) * (y - mean_y)) / np.sum(w * (x - mean_x) ** 2)
    return float(slope), float(mean_y - slope * mean_x)


def _ordered(raw: Floats, human: Floats, weight: Floats, item: Ints) -> tuple[Floats, Floats, Floats, Ints]:
    """The rows in an order of their own, so that sums do not depend on the order given."""
    x = np.round(raw, DIGITS)
    order = np.lexsort((weight, item, human, x))
    return x[order], human[order], weight[order], item[order]


def _curve(knots: Floats, to: Floats, ends: tuple[float, float], added: dict[str, float]) -> ScoreCurve:
    return ScoreCurve(
        low=ends[0], high=ends[1], raw_knots=tuple(knots.tolist()), score_knots=tuple(to.tolist()), offsets=added
    )
