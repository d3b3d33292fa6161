"""The risk of a score, learned from which labelled scores were wrong, beside what the predictive distribution tells.

A logistic regression whose ridge pulls it towards one risk for all; what the distribution tells is pulled least.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints

STRENGTH = 0.1
"""Inverse strength of the ridge of standardised terms. On recorded judges (tests/studies/promise.py)."""
FREE = 2.0
"""By so much larger are the log odds, the level and the item, whose ridge is weaker by its square."""
PARTS = 12
"""The scale is cut into as many parts, in which levels share a coefficient."""
FARTHEST = 4.0
"""Standard deviations from the mean beyond which a term counts no more."""
CONSTANT = 1e-9
"""Terms that vary by no more than this share of their mean are taken as constant."""


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
        """Some of the scores."""
        return Placed(*(column[rows] for column in self))


def fit_errors(
    placed: Placed, features: Floats, names: Sequence[str], item: Ints, items: Sequence[str], wrong: Bools, least: float
) -> ErrorModel | None:
    """Ridge logistic regression of `wrong`; None where all scores are wrong or none is.

    features: (n, d) finite, d names; item: (n,) index in items; wrong: (n,); least: see `ErrorModel`.
    """
    if wrong.all() or not wrong.any():
        return None
    terms = _terms(placed, features, least)
    means, deviations = terms.mean(axis=0), terms.std(axis=0)
    scales = np.where(deviations > CONSTANT * (1 + np.abs(means)), deviations, 1.0)
    width = terms.shape[1]
    weights = np.concatenate([[FREE], np.ones(width - 1), np.full(PARTS + len(items), FREE)])
    in_part, of_item = np.eye(PARTS)[_part(placed)], np.eye(len(items))[item]
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

    features: (n, d) those that the model takes, finite; effect: of the rows' items, scalar or (n,).
    """
    means, scales, coefficients = (np.array(v) for v in (model.means, model.scales, model.coefficients))
    # A product with BLAS may sum the same row in another order at another place.
    standard = _standard(_terms(placed, features, model.least), means, scales)
    odds = (standard * coefficients).sum(axis=1) + np.array(model.parts)[_part(placed)] + effect + model.intercept
    return np.asarray(expit(odds), dtype=np.float64)


def _terms(placed: Placed, features: Floats, least: float) -> Floats:
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
