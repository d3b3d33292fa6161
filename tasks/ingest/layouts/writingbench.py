"""What the columns of WritingBench need before they map."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

BANDS = ("1-2", "3-4", "5-6", "7-8", "9-10")
WEIGHT = 10
"""Points of each criterion."""


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The criteria become lists; the ten levels are named by their score, a band's upper one also by what it says."""
    criteria = [
        [_listed(f"C{number}", one) for number, one in enumerate(json.loads(cell), 1)] for cell in frame["checklist"]
    ]
    return frame.assign(criteria=pd.Series(criteria, frame.index, dtype=object))


def _listed(name: str, one: dict[str, str]) -> dict[str, Any]:
    lower, upper = zip(*(band.split("-") for band in BANDS), strict=True)
    said = [f"{score} (band {band}): {one[band]}" for score, band in zip(upper, BANDS, strict=True)]
    levels = [level for pair in zip(lower, said, strict=True) for level in pair]
    return {"id": name, "text": f"{one['name']}: {one['criteria_description']}", "weight": WEIGHT, "levels": levels}
