"""Verdicts of an invented judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


def verdicts(seed: int, answers: int = 200, shift: float = 0.0, start: int = 0, **columns: Any) -> pd.DataFrame:
    """One score 0 to 1 for each answer, its own case, whose true score is in `truth`."""
    rng = np.random.default_rng(seed)
    truth = rng.random(answers)
    score = np.clip(0.8 * truth + 0.2 * rng.random(answers) + shift, 0, 1)
    ids = [f"a{number:05d}" for number in range(start, start + answers)]
    frame = pd.DataFrame(
        {
            **{"answer_id": ids, "case_id": ids, "subject": None, "group": None, "criterion": "", "sample": 0},
            **{"score": score, "status": "scored", "explanation": None, "answer": "an answer of some words"},
            **{"output_tokens": np.nan, "truth": truth},
        }
    )
    return frame.assign(**columns)


def labels(frame: pd.DataFrame, number: int) -> pd.DataFrame:
    """People's labels on the first answers."""
    kept = frame.head(number)
    return pd.DataFrame(
        {
            "answer_id": kept["answer_id"],
            "criterion": kept["criterion"],
            "rater": "p",
            "score": kept["truth"],
            "split": None,
        }
    )
