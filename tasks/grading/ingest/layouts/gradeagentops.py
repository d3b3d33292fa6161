"""What the columns of GradeAgentOps' data need before they map."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any

import pandas as pd

from rubricflow.tasks.core.store.cells import with_columns


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Question and student together are the answer's id; gold points become texts and weights."""
    pairs = zip(frame["question_id"], frame["student_id"], strict=True)
    frame = frame.assign(answered=[f"{question}:{student}" for question, student in pairs])
    if "Gold_points" not in frame:
        return frame
    lists = frame["Gold_points"].tolist()
    return with_columns(frame, {"points": _each(lists, "text"), "weights": _each(lists, "weight")})


def _each(lists: Iterable[list[dict[str, Any]]], key: str) -> list[list[Any]]:
    """One key of every gold point, answer by answer."""
    return [list(map(itemgetter(key), points)) for points in lists]
