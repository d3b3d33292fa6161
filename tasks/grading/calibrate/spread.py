"""How far a human score may lie from an aligned one: a predictive distribution, its levels and risk; a learned risk.

The human score of a row is taken as its aligned score + sigma(row) x epsilon, epsilon being one of the standardised
residuals of the labelled rows, each by a fit that had not seen the row. What the distribution cannot tell of the risk a
logistic regression learns from which labelled scores were wrong; its ridge pulls it towards one risk for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints

RIDGE = 10.0
"""Strength of the ridge of absolute residuals on standardised features."""
BOUNDS = (0.25, 4.0)
"""Sigma stays within these multiples of the mean absolute residual."""
FLOOR = 1e-6
"""Smallest sigma, as a share of the scale."""
FLAT = 1e-9
"""Features that vary by no more than this share of their mean are taken as constant."""
KEPT = 500
"""Standardised residuals that are stored, evenly spaced in rank, where there are more."""
FINEST = 12
"""Grids of up to this many parts of a step are distinguished from continuous human scores."""


class Sigma(Frozen):
    """The size of residuals, in the units of the scale fitted on."""

    means: tuple[float, ...]
    """Mean of each feature: the aligned score, its square, then the signals."""
    scales: tuple[float, ...]
    """Its standard deviation; 1 where it is constant."""
    coefficients: tuple[float, ...]
    """Ridge coefficient of each standardised feature."""
    intercept: float
    """The mean absolute residual."""
    low: float
    """Smallest sigma."""
    high: float
    """Largest sigma."""


class Spread(Frozen):
    """All that is needed to tell the risk of a new score."""

    signals: tuple[str, ...]
    """Signals that sigma goes by, besides the aligned score."""
    sigma: Sigma
    """The size of residuals."""
    epsilon: tuple[float, ...]
    """Standardised residuals, rising."""
    reach: float | None
    """Half the width of the conformal interval in sigmas; null where too few labels leave the whole scale."""
    tolerance: float
    """Steps of the scale that a score may differ from the human score."""
    grain: float
    """Steps between neighbouring human scores: 1 for single ratings, 1/2 where two are averaged; 0 where continuous."""
    errors: ErrorModel | None = None
    """What the risk is learned from, besides the distribution; null where no label, or every one, was wrong."""

    @property
    def hints(self) -> tuple[str, ...]:
        """Features that the error model takes."""
        return self.errors.features if self.errors else ()


def fit_sigma(residual: Floats, aligned: Floats, signals: Floats, span: float) -> Sigma:
    """Ridge regression of |residual| on the aligned score, its square and the signals, all standardised.

    residual, aligned: (n,), n >= 1; signals: (n, d), d >= 0; span: width of the scale, in the same units.
    """
    size = np.abs(residual)
    terms = _terms(aligned, signals)
    means, scales = _means_and_scales(terms)
    z = (terms - means) / scales
    mean = float(size.mean())
    # Solved here: the library takes longer to look at so few rows than to solve them, and this is done for every fold.
    coefficients = np.linalg.solve(z.T @ z + RIDGE * np.eye(z.shape[1]), z.T @ (size - mean))
    low, high = (max(bound * mean, FLOOR * span) for bound in BOUNDS)
    return Sigma(
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
        coefficients=tuple(coefficients.tolist()),
        intercept=mean,
        low=low,
        high=high,
    )


def sigmas(sigma: Sigma, aligned: Floats, signals: Floats) -> Floats:
    """Sigma of every row, shape (n,), > 0. Equal rows have equal sigmas, to the last bit."""
    means, scales, coefficients = (np.array(v) for v in (sigma.means, sigma.scales, sigma.coefficients))
    # As for latents: a product with BLAS may sum the same row in another order at another place.
    predicted = ((_terms(aligned, signals) - means) / scales * coefficients).sum(axis=1) + sigma.intercept
    return np.asarray(np.clip(predicted, sigma.low, sigma.high), dtype=np.float64)


def thinned(epsilon: Floats) -> Floats:
    """At most KEPT of the values, rising: the middle ones of as many equal shares of the ranks."""
    rising = np.sort(epsilon)
    if len(rising) <= KEPT:
        return rising
    return rising[np.floor((np.arange(KEPT) + 0.5) / KEPT * len(rising)).astype(np.int64)]


def grain_of(human: Floats, ratings: Floats) -> float:
    """The widest of 1, 1/2, ... 1/FINEST of a step whose multiples hold all human scores and every mean of as many
    ratings on the scale's steps, else 0.

    human: (n,) in steps; ratings: (n,) how many each is the mean of. Two people who agreed so far may differ next.
    """
    means = math.lcm(*map(int, np.unique(ratings)))
    for parts in range(means, FINEST + 1, means):
        if (np.abs(human * parts - np.round(human * parts)) < SLACK * FINEST).all():
            return 1 / parts
    return 0.0


def level_probabilities(aligned: Floats, sigma: Floats, top: int, epsilon: Floats) -> Floats:
    """Probability of each level 0 .. top for a human score, shape (n, top + 1); rows sum to 1.

    aligned, sigma: (n,) in steps above the lowest level; epsilon: (m,) rising. A level owns the scores from half a step
    below it up to half a step above, those at the ends all beyond.
    """
    below = np.zeros((len(aligned), top + 2))
    below[:, -1] = 1.0
    for level in range(1, top + 1):
        standardised = (level - 0.5 - SLACK - aligned) / sigma
        below[:, level] = np.searchsorted(epsilon, standardised, side="left") / len(epsilon)
    return np.diff(below, axis=1)


def risks(
    aligned: Floats,
    sigma: Floats,
    level: Floats,
    top: ArrayLike,
    epsilon: Floats,
    tolerance: float,
    grain: float,
) -> Floats:
    """Probability that a human score differs from the level given by more than the tolerance, shape (n,), 0 .. 1.

    aligned, sigma, level: (n,) in steps above the lowest level; top: the highest level, scalar or (n,); epsilon: (m,)
    rising; tolerance and grain in steps. Human scores are multiples of the grain, so the bound lies half a grain beyond
    the farthest one tolerated; none lies off the scale.
    """
    farthest = np.floor(tolerance / grain + SLACK) * grain if grain else tolerance
    bound = farthest + grain / 2 + SLACK
    above = 1 - np.searchsorted(epsilon, (level + bound - aligned) / sigma, side="right") / len(epsilon)
    below = np.searchsorted(epsilon, (level - bound - aligned) / sigma, side="left") / len(epsilon)
    above = np.where(level + farthest + SLACK >= np.asarray(top), 0.0, above)
    return np.clip(above + np.where(level - farthest - SLACK <= 0, 0.0, below), 0.0, 1.0)


def _terms(aligned: Floats, signals: Floats) -> Floats:
    return np.column_stack([aligned, aligned**2, signals])


def _means_and_scales(terms: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of every column, (d,); 1 for one that is constant."""
    means = terms.mean(axis=0)
    deviations = terms.std(axis=0)
    return means, np.where(deviations > FLAT * (1 + np.abs(means)), deviations, 1.0)


STRENGTH = 0.1
"""Inverse strength of the ridge of standardised terms. On recorded judges (tests/studies/promise.py)."""
FREE = 2.0
"""By so much larger are the log odds, the level and the item, whose ridge is weaker by its square."""
PARTS = 12
"""The scale is cut into as many parts, in which levels share a coefficient."""
FARTHEST = 4.0
"""Standard deviations from the mean beyond which a term counts no more."""


class ErrorModel(Frozen):
    """Log odds of a wrong score."""

    features: tuple[str, ...]
    """Features of the grading that it takes, in order."""
    least: float
    """Told risks are held between this and 1 less it."""
    means: tuple[float, ...]
    """Mean of each term: log odds, steps from the level, share of the scale to its nearer end, the features."""
    scales: tuple[float, ...]
    """Its standard deviation; 1 where it is constant."""
    coefficients: tuple[float, ...]
    """Of each standardised term."""
    parts: tuple[float, ...]
    """Of each part of the scale, by the level given."""
    items: dict[str, float]
    """Of each item fitted on; another has 0."""
    intercept: float
    """Log odds of a middling score."""

    def effect(self, item_id: str) -> float:
        """Log odds that an item adds; 0 for one not fitted on."""
        return self.items.get(item_id, 0.0)


class Placed(NamedTuple):
    """Scores as the error model sees them, (n,) each, in steps above the lowest level.

    aligned: unrounded; level: the one given; top: the highest level of the scale; by_distribution: its risk.
    """

    aligned: Floats
    level: Floats
    top: Floats
    by_distribution: Floats

    def take(self, rows: Bools) -> Placed:
        return Placed(*(column[rows] for column in self))


def fit_errors(
    placed: Placed, features: Floats, names: Sequence[str], item: Ints, items: Sequence[str], wrong: Bools, least: float
) -> ErrorModel | None:
    """Ridge logistic regression of `wrong`; None where all scores are wrong or none is.

    features: (n, d) finite, d names; item: (n,) index in items; wrong: (n,); least: see `ErrorModel`.
    """
    if wrong.all() or not wrong.any():
        return None
    terms = _error_terms(placed, features, least)
    means, scales = _means_and_scales(terms)
    width = terms.shape[1]
    weights = np.concatenate([[FREE], np.ones(width - 1), np.full(PARTS + len(items), FREE)])
    in_part = np.eye(PARTS)[_part(placed)]
    of_item = np.eye(len(items))[item]
    design = np.column_stack([_standard(terms, means, scales), in_part, of_item])
    fitted = LogisticRegression(C=STRENGTH, solver="newton-cholesky").fit(design * weights, wrong)
    coefficients, parts, effects = np.split(fitted.coef_[0] * weights, [width, width + PARTS])
    return ErrorModel(
        features=tuple(names),
        least=least,
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
        coefficients=tuple(coefficients.tolist()),
        parts=tuple(parts.tolist()),
        items=dict(zip(items, effects.tolist(), strict=True)),
        intercept=float(fitted.intercept_[0]),
    )


def error_risk(model: ErrorModel, placed: Placed, features: Floats, effect: float | Floats) -> Floats:
    """Probability that each score is wrong, (n,), 0 .. 1; equal rows have equal ones, to the last bit.

    features: (n, d) those that the model takes, NaN where a row lacks one, whose risk is NaN then; effect: of the rows'
    items, scalar or (n,).
    """
    means, scales, coefficients = (np.array(v) for v in (model.means, model.scales, model.coefficients))
    # A product with BLAS may sum the same row in another order at another place.
    standard = _standard(_error_terms(placed, features, model.least), means, scales)
    odds = (standard * coefficients).sum(axis=1) + np.array(model.parts)[_part(placed)] + effect + model.intercept
    return np.asarray(expit(odds), dtype=np.float64)


def _error_terms(placed: Placed, features: Floats, least: float) -> Floats:
    """Columns in the order of `ErrorModel.means`."""
    aligned, level, top, by_distribution = placed
    odds = logit(np.clip(by_distribution, least, 1 - least))
    from_level = np.abs(aligned - level)
    from_end = np.minimum(aligned, top - aligned) / top
    return np.column_stack([odds, from_level, from_end, features])


def _standard(terms: Floats, means: Floats, scales: Floats) -> Floats:
    return np.clip((terms - means) / scales, -FARTHEST, FARTHEST)


def _part(placed: Placed) -> Ints:
    """Part of the scale that each level lies in, 0 .. PARTS - 1; no two levels of a scale of so many share one."""
    share = placed.level / placed.top
    return np.minimum(np.floor(share * PARTS + SLACK), PARTS - 1).astype(np.int64)
