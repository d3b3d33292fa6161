"""A file of questions beside one of answers: which of its columns says what, and one to fill in."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.grading.ingest.draft.drafted import UNWRITTEN, DraftedItem, Known
from rubricflow.tasks.grading.ingest.draft.guess import Column, guessed, number
from rubricflow.tasks.grading.ingest.draft.names import is_named
from rubricflow.tasks.grading.ingest.draft.points import points_in

QUESTIONS = "questions.csv"
"""What a table of questions is called that `init` writes."""
QUESTION_COLUMNS = {"item_id": "question", "question": "wording", "reference_answer": "model_answer"}
"""Canonical column of `items` → its column."""


def known_questions(columns: Sequence[Column]) -> Known:
    """What a table of questions may call them: by all its cells but the wordings, which number them."""
    wording = _wording(columns)
    words = [(" ".join(cell.split()),) for cell in wording.cells] if wording else []
    ids = frozenset(cell.strip() for column in columns if column is not wording for cell in column.cells)
    return Known(ids, {text: f"Q{place}" for place, text in enumerate(dict.fromkeys(words), 1)})


def _wording(columns: Sequence[Column]) -> Column | None:
    """The column of wordings: the one that is called so, else the longest texts that are no model answers."""
    roles = guessed(columns)
    texts = sorted((column for column in columns if not column.numeric), key=lambda column: -column.length)
    free = [column for column in texts if column.name != roles.reference]
    return next((column for column in free if column.name == roles.question), next(iter(free), None))


def listed_questions(
    file: Path, columns: Sequence[Column], items: Sequence[DraftedItem], numbered: str
) -> tuple[dict[str, Any], tuple[DraftedItem, ...]]:
    """(what a study says of the file, the questions with what the file says of them).

    Questions are found by their ids or, failing that, by their wording, which numbers them then; numbered: the column
    of these numbers. InputError where no column holds the ids or the wording of all questions that are answered.
    """
    item_ids = {item.item_id for item in items}
    key = next((column for column in columns if item_ids <= {cell.strip() for cell in column.cells}), None)
    wording = _wording([column for column in columns if column is not key])
    by_wording = key is None and wording is not None and item_ids <= set(known_questions(columns).numbers.values())
    if key is None and not by_wording:
        rule = f"no column holds all ids of the questions that are answered: {', '.join(sorted(item_ids)[:5])}"
        raise InputError(rule, file=file, hint="the ids stand in the answers' column of questions")
    if wording is None:
        raise InputError("no column holds the wording of the questions", file=file, hint="call it 'question'")
    others = [column for column in columns if column is not key]
    roles, cells = guessed(others), {column.name: column.rows for column in columns}
    reference = cells.get(str(roles.reference))
    worth = (
        column.rows
        for role in ("points", "score")
        for column in others
        if column.numeric and is_named(column.name, role)
    )
    points = next(worth, None)
    if key is None:
        numbers = known_questions(columns).numbers
        places = {numbers[" ".join(cell.split()),]: row for row, cell in enumerate(wording.rows) if cell.strip()}
    else:
        places = {cell.strip(): row for row, cell in enumerate(key.rows)}
    mapping = {"item_id": key.name if key else numbered, "question": wording.name}
    mapping |= {"reference_answer": str(roles.reference)} if reference else {}
    described = list[DraftedItem]()
    for item in items:
        row = places[item.item_id]
        model, most = reference[row].strip() if reference else "", number(points[row]) if points else None
        text = wording.rows[row].strip() or None
        most = most or item.points or points_in(text or "", is_header=False)
        described.append(replace(item, question=text, reference=model or None, points=most))
    made = {"numbered": {numbered: [wording.name]}} if key is None else {}
    return {"file": file, "items": mapping} | made, tuple(described)


def question_table(items: Sequence[DraftedItem]) -> str:
    """The table of questions (CSV), with a mark where a wording is to be written."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(QUESTION_COLUMNS.values())
    for item in items:
        unwritten = f"{UNWRITTEN} the wording of question {item.item_id}"
        writer.writerow([item.item_id, item.question or unwritten, item.reference or ""])
    return text.getvalue()
