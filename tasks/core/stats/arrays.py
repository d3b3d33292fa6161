"""The array types that most functions take and give, and their quotient."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def ratio(top: Floats, bottom: Floats) -> Floats:
    """Quotients, element by element; NaN where the bottom is not above 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(bottom > 0, top / bottom, np.nan)


def defined(value: float) -> float | None:
    """A number as tables hold it: None where it is undefined."""
    return float(value) if np.isfinite(value) else None


FLAT = 1e-12
"""Of a second moment: rounding leaves about 1e-14 of it where all scores of a sample are one."""


def about_mean(n: Floats, x: Floats, xx: Floats) -> Floats:
    """Sums of squares about the mean of n scores, from their sums and sums of squares; exact zeros where all are one.
    n is at least 1."""
    squares = xx - x * x / n
    return np.where(squares <= FLAT * xx, 0.0, squares)


def welch(a: Floats, b: Floats) -> tuple[float, float]:
    """Standard error of the difference of the means of two samples of at least two values each, and its degrees of
    freedom, 1 where nothing varies (Welch 1947)."""
    errors = np.array([a.var(ddof=1), b.var(ddof=1)])
    sizes = np.array([len(a), len(b)])
    errors /= sizes
    lower = float((errors**2 / (sizes - 1)).sum())
    return float(np.sqrt(errors.sum())), float(errors.sum() ** 2 / lower) if lower else 1.0


# The table of ratings: a row per response, a column per rater, NaN where a rater gave none.


def checked_ratings(ratings: ArrayLike) -> Floats:
    """The ratings as a float array of shape (n responses, k raters); ValueError on another shape or an infinity."""
    table = np.asarray(ratings, dtype=np.float64)
    if table.ndim != 2 or np.isinf(table).any():
        raise ValueError(f"ratings must be a 2-D table of finite scores or NaN, got shape {table.shape}")
    return table
