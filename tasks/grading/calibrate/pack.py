"""Long rows of numbers as text, so that a mapping of many thousand coefficients stays small in its JSON."""

from __future__ import annotations

import base64

import numpy as np

from rubricflow.tasks.core.stats.arrays import Floats, Ints


def packed_floats(values: Floats) -> str:
    """Base64 of the values as little-endian floats of 32 bits: seven digits are kept."""
    return base64.b64encode(np.asarray(values, dtype="<f4").tobytes()).decode("ascii")


def unpacked_floats(text: str) -> Floats:
    """The values, (n,)."""
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(np.float64)


def packed_ints(values: Ints) -> str:
    """Base64 of the values as little-endian integers of 32 bits."""
    return base64.b64encode(np.asarray(values, dtype="<i4").tobytes()).decode("ascii")


def unpacked_ints(text: str) -> Ints:
    """The values, (n,)."""
    return np.frombuffer(base64.b64decode(text), dtype="<i4").astype(np.int64)
