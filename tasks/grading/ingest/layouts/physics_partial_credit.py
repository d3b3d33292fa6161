"""What the columns of the physics explanations need before they map."""

from __future__ import annotations

import pandas as pd


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Question and student together are the answer's id; a person's score is the sum of the three items. A problem gets
    the most detailed rubric that the source has of it."""
    if "student" not in frame:
        rubrics = frame[(frame["kind"] == "Rubric") & (frame["name"] == "detailed")]
        return frame.assign(guide=frame["question_id"].map(rubrics.set_index("question_id")["text"]).astype(object))
    pairs = zip(frame["question_id"], frame["student"], strict=True)
    sums = {}
    for rater in ("human1", "human2"):
        marks = frame[[f"item{n}_{rater}" for n in (1, 2, 3)]].astype(float)
        sums[rater] = marks.sum(axis=1, skipna=False)
    return frame.assign(answered=[f"{question}:{student}" for question, student in pairs], **sums)
