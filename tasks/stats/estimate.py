"""An estimate with what the bootstrap says of it."""

from __future__ import annotations

from typing import NamedTuple


class Estimate(NamedTuple):
    """A statistic with its 95% percentile interval and bootstrap standard error; None where undefined, `note` says
    why."""

    value: float | None
    low: float | None = None
    high: float | None = None
    se: float | None = None
    clusters: int | None = None
    """How many were resampled."""
    n: int = 0
    """Responses it rests on."""
    note: str = ""
