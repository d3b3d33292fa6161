"""How far a human score may lie from an aligned one: a predictive distribution, its levels and its risk.

The human score of a row is taken as its aligned score + sigma(row) x epsilon, epsilon being one of the standardised
residuals of the labelled rows, each by a fit that had not seen the row.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.calibrate.errors import ErrorModel

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
"""Grids of up to this many parts of a step are told from continuous human scores."""


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
    """Signals that sigma goes by, beside the aligned score."""
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
    """What the risk is learned from beside the distribution; null where no label, or every one, was wrong."""

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
    means, deviations = terms.mean(axis=0), terms.std(axis=0)
    scales = np.where(deviations > FLAT * (1 + np.abs(means)), deviations, 1.0)
    z, mean = (terms - means) / scales, float(size.mean())
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
    top: npt.ArrayLike,
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
