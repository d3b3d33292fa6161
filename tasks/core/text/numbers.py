"""Numbers that are written as text: in the cells of files, in replies, in votes."""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def number_of(text: str) -> float | None:
    """The finite number that a text is, blanks around it left out: digits 0 to 9 with an optional sign, decimal point
    and exponent. None for all else that Python's `float` would read: digits of other scripts, 1_0, inf, nan."""
    bare = text.strip()
    number = float(bare) if _NUMBER.fullmatch(bare) else math.inf
    return number if math.isfinite(number) else None
