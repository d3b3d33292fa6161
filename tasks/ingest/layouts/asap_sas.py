"""What the columns of ASAP-SAS need before they map."""

from __future__ import annotations

import re

import pandas as pd

_PARAGRAPH_MARK = re.compile(r"(?:(?<!\s)\s++)?\^\s?[pP]\s*")  # blanks are tried once, not from each


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Answers: the transcribers' mark for a new paragraph becomes a line break. Key elements: headings, 'other' go."""
    if "student_answer" in frame:
        return frame.assign(student_answer=frame["student_answer"].map(lambda text: _PARAGRAPH_MARK.sub("\n", text)))
    elements = [
        [e for e in found or [] if not e.rstrip().endswith(":") and not e.lower().startswith("other")]
        for found in frame["key_elements"]
    ]
    return frame.assign(key_elements=pd.Series(elements, index=frame.index, dtype=object))
