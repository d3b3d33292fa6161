"""What the columns of DREsS need before they map."""

from __future__ import annotations

import hashlib

import pandas as pd

TRAITS = ("content", "organization", "language")


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """A prompt gets an id of its text; the score is the sum of the three traits, empty where one is."""
    parts = frame[list(TRAITS)].apply(pd.to_numeric, errors="coerce")
    ids = ["P" + hashlib.sha256(str(prompt).encode()).hexdigest()[:8] for prompt in frame["prompt"]]
    return frame.assign(prompt_id=ids, sum=parts.sum(axis=1, skipna=False))
