"""What the columns of WritingBench need before they map."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import pandas as pd

from rubricflow.tasks.core.store.cells import with_columns

BANDS = ("1-2", "3-4", "5-6", "7-8", "9-10")
WEIGHT = 10
"""Points of each criterion."""


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The criteria become lists; the ten levels are named by their score, a band's upper one also by what it says."""
    checklists = map(json.loads, frame["checklist"])
    return with_columns(frame, {"criteria": map(_criteria, checklists)})


def _criteria(checklist: list[dict[str, str]]) -> list[dict[str, Any]]:
    return [_listed(f"C{number}", criterion) for number, criterion in enumerate(checklist, 1)]


def _listed(name: str, criterion: dict[str, str]) -> dict[str, Any]:
    lower, upper = zip(*(band.split("-") for band in BANDS), strict=True)
    described = [f"{score} (band {band}): {criterion[band]}" for score, band in zip(upper, BANDS, strict=True)]
    levels = list(chain.from_iterable(zip(lower, described, strict=True)))
    return {
        "id": name,
        "text": f"{criterion['name']}: {criterion['criteria_description']}",
        "weight": WEIGHT,
        "levels": levels,
    }
