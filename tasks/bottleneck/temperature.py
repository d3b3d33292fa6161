"""Temperature scaling of the grade: one number that makes its probabilities right on the calibration split.

Logits are divided by it, so that no grade given changes (Guo et al. 2017, On calibration of modern neural networks).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from tasks.bottleneck.data import MISSING
from tasks.stats.arrays import Floats, Ints

BOUND = 10.0
"""The temperature lies within [1/BOUND, BOUND]: where all grades are right, likelihood alone would take it to 0."""


class Fitted(NamedTuple):
    """A temperature and what is to be known about it."""

    temperature: float
    note: str | None = None
    """Why it was not fitted, or that it lies at its bound; None where there is nothing to say."""


def fit(logits: Floats, grades: Ints) -> Fitted:
    """The temperature with the largest likelihood of the grades.

    logits: (n, S + 1); grades: (n,) classes 0…S, MISSING where there is none. It is 1 where nothing is labelled, where
    all labels are one grade, which tells nothing of the others, and where 1 is no worse than the best one found.
    """
    labelled = grades != MISSING
    if len(np.unique(grades[labelled])) < 2:
        reason = "all labels are one grade" if labelled.any() else "there are no labels"
        return Fitted(1.0, f"not fitted: {reason}")

    def loss_at(log_temperature: float) -> float:
        return loss(logits[labelled], grades[labelled], np.exp(log_temperature))

    # Convex in 1/T and so with one minimum in log T.
    best = minimize_scalar(loss_at, bounds=(-np.log(BOUND), np.log(BOUND)), method="bounded")
    if best.fun >= loss_at(0.0):
        return Fitted(1.0)
    at_bound = abs(best.x) > np.log(BOUND) - 1e-3
    return Fitted(float(np.exp(best.x)), "at its bound" if at_bound else None)


def loss(logits: Floats, grades: Ints, temperature: float) -> float:
    """Mean negative log-likelihood of the grades, in nats; logits (n, S + 1), grades (n,) without MISSING."""
    likely = log_softmax(logits / temperature, axis=1)
    return float(-likely[np.arange(len(grades)), grades].mean())
