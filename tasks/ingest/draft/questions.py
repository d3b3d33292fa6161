"""A file of questions beside one of answers: which of its columns says what, and one to fill in."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from tasks.contracts.errors import InputError
from tasks.ingest.draft.drafted import UNWRITTEN, DraftedItem
from tasks.ingest.draft.guess import Column, guessed, number

QUESTIONS = "questions.csv"
"""What a table of questions is called that `init` writes."""
QUESTION_COLUMNS = {"item_id": "question", "question": "wording", "reference_answer": "model_answer"}
"""Canonical column of `items` → its column."""


def listed_questions(
    file: Path, frame: pd.DataFrame, columns: Sequence[Column], items: Sequence[DraftedItem]
) -> tuple[dict[str, str], tuple[DraftedItem, ...]]:
    """(canonical column of `items` → column, the questions with what the file says of them).

    InputError where no column holds the ids of all questions that are answered, or none their wording.
    """
    item_ids = {item.item_id for item in items}
    keys = [column for column in columns if item_ids <= {cell.strip() for cell in column.cells}]
    if not keys:
        rule = f"no column holds all ids of the questions that are answered: {', '.join(sorted(item_ids)[:5])}"
        raise InputError(rule, file=file, hint="the ids stand in the answers' column of questions")
    others = [column for column in columns if column.name != keys[0].name]
    roles = guessed(others)
    texts = sorted((column for column in others if not column.numeric), key=lambda column: -column.length)
    free = [column.name for column in texts if column.name != roles.reference]
    wording = roles.question if isinstance(roles.question, str) else next(iter(free), None)
    if wording is None:
        raise InputError("no column holds the wording of the questions", file=file, hint="call it 'question'")
    reference = roles.reference if isinstance(roles.reference, str) else None
    mapping = {"item_id": keys[0].name, "question": wording} | ({"reference_answer": reference} if reference else {})
    rows = {str(row[keys[0].name]).strip(): row for row in frame.to_dict("records")}
    points = roles.points if isinstance(roles.points, str) else None
    described = list[DraftedItem]()
    for item in items:
        row = rows[item.item_id]
        model = row[reference].strip() if reference else ""
        most = number(row[points]) if points else item.points
        described.append(replace(item, question=row[wording].strip() or None, reference=model or None, points=most))
    return mapping, tuple(described)


def question_table(items: Sequence[DraftedItem]) -> str:
    """The table of questions (CSV), with a mark where a wording is to be written."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(QUESTION_COLUMNS.values())
    for item in items:
        writer.writerow(
            [item.item_id, item.question or f"{UNWRITTEN} the wording of {item.item_id}", item.reference or ""]
        )
    return text.getvalue()
