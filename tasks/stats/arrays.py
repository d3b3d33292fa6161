"""The array types that most functions take and give, and their quotient."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def ratio(top: Floats, bottom: Floats) -> Floats:
    """Quotients, element by element; NaN where the bottom is not above 0."""
    return np.divide(top, bottom, out=np.full_like(bottom, np.nan), where=bottom > 0)
