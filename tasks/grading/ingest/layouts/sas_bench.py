"""What the columns of SAS-Bench need before they map: answers in one piece, and questions with the marks they bear."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import as_number, need, quoted, texts, with_columns

_END = re.compile(r"(?<=[。；！？])|(?<=．)(?!\d)|(?<=[^\\];)|\n\s*\n")
_TEXTS = ("id", "question", "reference", "analysis")


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """An item is what is asked with the same question, reference, analysis and total. Its points are the reference's
    sentences, cut at semicolons, too; the source says nowhere which earns how much, so they share the total equally. An
    answer is its steps in order.

    The file's name tells the subject ('0_Physics_ShortAns.jsonl'), which stands before ids. InputError for a missing
    column, a total that is no whole number from 1, a mark off 0 to the total, and steps that are no list of objects
    with a response.
    """
    for name in (*_TEXTS, "total", "manual_label", "steps"):
        need(frame, name, file)
    rows, subject = [number + 1 for number in frame.index.tolist()], file.split("_")[1]
    ids, questions, references, analyses = (texts(frame[name], file, rows, name) for name in _TEXTS)
    marks = zip(rows, frame["total"], frame["manual_label"], strict=True)
    tops = [_top(total, mark, file, row) for row, total, mark in marks]
    identities = zip(questions, references, analyses, tops, strict=True)
    points = [_points(reference) for reference in references]
    columns: dict[str, Iterable[Any]] = {
        "id": [name and f"{subject}:{name}" for name in ids],
        "item": [f"{subject}:{_digest(*parts)}" for parts in identities],
        "points": points,
        "weights": [[top / len(parts)] * len(parts) if parts else [] for parts, top in zip(points, tops, strict=True)],
        "answer": [_answer(cell, file, row) for row, cell in zip(rows, frame["steps"], strict=True)],
    }
    return with_columns(frame.assign(subject=subject), columns)


def _top(cell: Any, mark: Any, file: str, row: int) -> int:
    """The total, under which the mark must lie."""
    total, marked = as_number(cell, file, row, "total"), as_number(mark, file, row, "manual_label")
    if total is None:
        raise InputError("is empty", file=file, row=row, field="total")
    if total < 1 or not total.is_integer():
        raise InputError(f"{quoted(cell)} is no whole number of marks from 1", file=file, row=row, field="total")
    if marked is not None and not 0 <= marked <= total:
        raise InputError(f"{marked:g} is off the scale 0 to {total:g}", file=file, row=row, field="manual_label")
    return int(total)


def _digest(*parts: object) -> str:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:12]


def _points(reference: str | None) -> list[str]:
    """Not cut at line breaks, which stand anywhere in these texts, nor in numbers and LaTeX's `\\;`."""
    return [part.strip() for part in _END.split(reference or "") if any(map(str.isalnum, part))]


def _answer(cell: Any, file: str, row: int) -> str:
    """The steps' responses, a line break between them as between the lines of one that the authors put together."""
    if not isinstance(cell, list) or not all(isinstance(step, dict) for step in cell):
        raise InputError("is not a list of objects", file=file, row=row, field="steps")
    responses = texts([step.get("response") for step in cell], file, [row] * len(cell), "steps.response")
    if None in responses:
        raise InputError(f"step {responses.index(None) + 1} has no response", file=file, row=row, field="steps")
    return "\n".join(response for response in responses if response is not None)
