"""The table of ratings: a row per response, a column per rater, NaN where a rater gave none."""

import numpy as np
import numpy.typing as npt

from tasks.stats.arrays import Floats


def checked_ratings(ratings: npt.ArrayLike) -> Floats:
    """The ratings as a float array of shape (n responses, k raters); ValueError on another shape or an infinity."""
    table = np.asarray(ratings, dtype=np.float64)
    if table.ndim != 2 or np.isinf(table).any():
        raise ValueError(f"ratings must be a 2-D table of finite scores or NaN, got shape {table.shape}")
    return table
