"""What the columns of WebNLG's human evaluation need before they map."""

from __future__ import annotations

import hashlib

import pandas as pd

TRAITS = ("semantics", "grammar", "fluency")


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Triples stand one to a line and get an id; the score is the sum of the three traits."""
    meanings = [str(meaning) for meaning in frame["mr"]]
    triples = [meaning.replace("<br>", "\n") for meaning in meanings]
    ids = ["T" + hashlib.sha256(meaning.encode()).hexdigest()[:8] for meaning in meanings]
    marks = frame[list(TRAITS)].apply(pd.to_numeric, errors="coerce")
    return frame.assign(triples=triples, triples_id=ids, sum=marks.sum(axis=1, skipna=False))
