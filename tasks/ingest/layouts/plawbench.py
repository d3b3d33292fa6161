"""What the columns of PLawBench need before they map: its criteria, cut into their sub-points."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

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
    return frame.assign(criteria=pd.Series(criteria, frame.index, dtype=object))


def sub_points(text: str, points: float) -> list[tuple[str, float]]:
    """Sub-points of a criterion as (text without the mark, points); none where fewer than two are marked.

    A sub-point begins with the line of its mark, or at a further mark of the line. What stands before the first, such
    as a condition for them all, is said with each. Unsigned marks, as in '（5分）', are read where the signed ones do
    not add up to the criterion's points and all do together; a mark that the following ones split is their heading.
    """
    marks = _marks(text, points)
    begins = [_begin(text, marks, at) for at in range(len(marks))]
    if sum(mark.points for mark in marks) != points:
        headings = [at for at in range(len(marks)) if _is_split([mark.points for mark in marks[at:]])]
        for at in reversed(headings):
            del marks[at], begins[at + 1]
    if len(marks) < 2:
        return []
    head = text[: begins[0]].strip()
    ends = [*begins[1:], len(text)]
    told = [(text[b : m.start] + text[m.end : e]).strip() for b, m, e in zip(begins, marks, ends, strict=True)]
    return [(f"{head}\n{part}".strip(), mark.points) for part, mark in zip(told, marks, strict=True)]


def _listed(rubric: Sequence[dict[str, str]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, one in enumerate(rubric, 1):
        whole, points = f"C{number}", float(one["points"])
        found.append({"id": whole, "text": one["criterion"], "weight": points})
        for part, (text, weight) in enumerate(sub_points(one["criterion"], points), 1):
            found.append({"id": f"{whole}.{part}", "text": text, "weight": weight, "parent": whole})
    return found


def _marks(text: str, points: float) -> list[_Mark]:
    found = [
        _Mark(match.start(), match.end(), float(match["points"]), bool(match["sign"]))
        for match in _MARK.finditer(text)
        if match["sign"] or match["unit"]
    ]
    signed = [mark for mark in found if mark.signed]
    # An unsigned mark of all the points is the criterion's own.
    every = [mark for mark in found if mark.signed or mark.points != points]
    add_up = [marks for marks in (signed, every) if sum(mark.points for mark in marks) == points]
    return next(iter(add_up), signed)


def _begin(text: str, marks: Sequence[_Mark], at: int) -> int:
    line = text.rfind("\n", 0, marks[at].start) + 1
    return line if at == 0 or marks[at - 1].end <= line else marks[at].start


def _is_split(points: Sequence[float]) -> bool:
    """Whether two or more that follow the first add up to it."""
    return any(sum(points[1:end]) == points[0] for end in range(3, len(points) + 1))
