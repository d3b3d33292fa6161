"""What the columns of PLawBench need before they map: its criteria, cut into their sub-points."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from rubricflow.tasks.core.store.cells import with_columns

_MARK = re.compile(r"[（(]\s*(?P<sign>[+＋]?)\s*(?P<points>\d+(?:\.\d+)?)\s*(?P<unit>分?)\s*[)）]")


class _Mark(NamedTuple):
    """A mark of points: text[start:end]."""

    start: int
    end: int
    points: float
    signed: bool


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The criteria become lists, with sub-points where a criterion's text marks points, as in '（+5分）'."""
    criteria = [_listed(json.loads(cell)) for cell in frame["rubric_json"]]
    return with_columns(frame, {"criteria": criteria})


def sub_points(text: str, points: float) -> list[tuple[str, float]]:
    """Sub-points of a criterion as (text without the mark, points); none where fewer than two are marked.

    A sub-point begins with the line of its mark, or at a further mark of the line. What stands before the first, such
    as a condition for them all, is said with each. Unsigned marks, as in '（5分）', are read where the signed ones do
    not add up to the criterion's points and all do together; a mark that the following ones split is their heading.
    """
    marks = _marks(text, points)
    begins = [_begin(text, marks, position) for position in range(len(marks))]
    if sum(mark.points for mark in marks) != points:
        points_of_marks = [mark.points for mark in marks]
        headings = [position for position in range(len(marks)) if _is_split(points_of_marks[position:])]
        for position in reversed(headings):
            del marks[position], begins[position + 1]
    if len(marks) < 2:
        return []
    head = text[: begins[0]].strip()
    ends = [*begins[1:], len(text)]
    parts = list[tuple[str, float]]()
    for begin, mark, end in zip(begins, marks, ends, strict=True):
        part = (text[begin : mark.start] + text[mark.end : end]).strip()
        parts.append((f"{head}\n{part}".strip(), mark.points))
    return parts


def _listed(rubric: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    criteria: list[dict[str, Any]] = []
    for number, criterion in enumerate(rubric, 1):
        name, points = f"C{number}", float(criterion["points"])
        criteria.append({"id": name, "text": criterion["criterion"], "weight": points})
        for part, (text, weight) in enumerate(sub_points(criterion["criterion"], points), 1):
            criteria.append({"id": f"{name}.{part}", "text": text, "weight": weight, "parent": name})
    return criteria


def _marks(text: str, points: float) -> list[_Mark]:
    matches = (match for match in _MARK.finditer(text) if match["sign"] or match["unit"])
    candidates = [_Mark(*match.span(), float(match["points"]), bool(match["sign"])) for match in matches]
    signed = [mark for mark in candidates if mark.signed]
    # An unsigned mark of all the points is the criterion's own.
    every = [mark for mark in candidates if mark.signed or mark.points != points]
    if sum(mark.points for mark in signed) != points and sum(mark.points for mark in every) == points:
        return every
    return signed


def _begin(text: str, marks: Sequence[_Mark], position: int) -> int:
    line = text.rfind("\n", 0, marks[position].start) + 1
    return line if position == 0 or marks[position - 1].end <= line else marks[position].start


def _is_split(points: Sequence[float]) -> bool:
    """Whether two or more that follow the first add up to it."""
    return any(sum(points[1:end]) == points[0] for end in range(3, len(points) + 1))
