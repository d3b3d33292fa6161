"""What the columns of ASAP-SAS need before they map."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

from rubricflow.tasks.core.store.cells import with_columns

_PARAGRAPH_MARK = re.compile(r"(?:(?<!\s)\s++)?\^\s?[pP]\s*")  # blanks are tried once, not from each
_TITLES = re.compile(r"\A(?:\s*(?:rubric range|scoring rubric)\s*:[^\n]*(?:\n|\Z))+", re.IGNORECASE)
_GUIDE = ("rubric_text", "key_elements", "possible_answers_text")


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Answers: the transcribers' mark for a new paragraph becomes a line break. Key elements: headings, 'other' go; the
    scoring guide that raters had is the rubric's text with all of them, and the answers that it gives as possible."""
    if "student_answer" in frame:
        return frame.assign(student_answer=frame["student_answer"].map(lambda text: _PARAGRAPH_MARK.sub("\n", text)))
    parts = zip(*(frame[name] if name in frame else [None] * len(frame) for name in _GUIDE), strict=True)
    elements = [_without_headings(listed or []) for listed in frame["key_elements"]]
    return with_columns(frame, {"key_elements": elements, "guide": [_guide(*row) for row in parts]})


def _without_headings(elements: Iterable[str]) -> list[str]:
    return [e for e in elements if not e.rstrip().endswith(":") and not e.lower().startswith("other")]


def _guide(rubric: Any, elements: Iterable[str] | None, possible: Any) -> str | None:
    """The parts of a scoring guide that the source has, under each other; None where it has no rubric's text."""
    if not isinstance(rubric, str) or not rubric.strip():
        return None
    listed = [e if e.rstrip().endswith(":") else f"- {e}" for e in elements or ()]
    keys = "\n".join(["Key elements:", *listed]) if listed else ""
    parts = (_TITLES.sub("", rubric), keys, possible if isinstance(possible, str) else "")
    return "\n\n".join(part.strip() for part in parts if part.strip())
