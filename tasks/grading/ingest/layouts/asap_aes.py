"""What the columns of ASAP-AES need before they map."""

from __future__ import annotations

import pandas as pd

from rubricflow.tasks.core.store.cells import with_columns

TRAITS = {
    7: ("ideas", "organization", "style", "conventions"),
    8: ("ideas", "organization", "voice", "word_choice", "sentence_fluency", "conventions"),
}
SUMMED = (1, 7, 8)
"""Sets whose resolved score is the sum of two raters; one rater's score counts twice on that scale."""


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Essays: trait columns get their set's names, and one rater's score is put on the resolved scale. Sets: what kind
    each is, and the raters' guide where the file has it."""
    if "essay" not in frame:
        kinds = ["source_dependent" if text else "persuasive_or_narrative" for text in frame["source_text"]]
        guides = frame["rubric_text"] if "rubric_text" in frame else [None] * len(frame)
        return with_columns(frame, {"kind": kinds, "rubric_text": guides})
    columns: dict[str, pd.Series] = {}
    summed = frame["essay_set"].isin(SUMMED)
    for rater in (1, 2):
        single = frame[f"rater{rater}_domain1"].astype(float)
        columns[f"rater{rater}_score"] = single.where(~summed, 2 * single)
        for number, names in TRAITS.items():
            for position, name in enumerate(names, 1):
                marks = frame[f"rater{rater}_trait{position}"].astype(float).where(frame["essay_set"] == number)
                earlier = columns.get(f"rater{rater}_{name}")
                columns[f"rater{rater}_{name}"] = marks if earlier is None else earlier.fillna(marks)
    return frame.assign(**columns)
