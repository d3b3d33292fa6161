"""A chunk of a source as rows of the canonical tables, by the study's column mapping.

What a single row can break is refused here; what takes all rows to see is refused in the survey.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, NamedTuple

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError, refuse
from rubricflow.tasks.core.contracts.settings.study import ScoreColumns, Source
from rubricflow.tasks.core.contracts.tables.data import SPLITS
from rubricflow.tasks.core.store.cells import EssayCell, as_number, quoted, refused, text_or_none, texts
from rubricflow.tasks.core.store.faults import Report
from rubricflow.tasks.core.store.sheets import WORKBOOK
from rubricflow.tasks.core.text.formulas import unguarded
from rubricflow.tasks.core.text.markup import is_markup, plain
from rubricflow.tasks.grading.ingest.columns import (
    as_ids,
    authors_of,
    column_cells,
    column_texts,
    name_of,
    row_numbers,
    without_blanks,
)
from rubricflow.tasks.grading.ingest.listed import listed
from rubricflow.tasks.grading.ingest.lists import cell_answers, cell_list, cell_texts
from rubricflow.tasks.grading.ingest.words import Decimals, Number, numbers_of

Record = dict[str, Any]
MARKERS = ("human", "replayed")
"""Kinds of raters whose decisions a source may hold."""
_PROSE = ("question", "context", "reference_answer", "rubric_text")
"""What an item says in texts that may be HTML."""


class Answers(NamedTuple):
    """Responses of a chunk: one entry of each list per row."""

    rows: list[int]
    """Number of the row in its file, from 1."""
    response_id: list[str]
    item_id: list[str]
    author_id: list[str | None]
    text: list[str]
    split: list[str | None]
    """What the source says; None where it says nothing."""
    groups: list[list[tuple[str, str]]]
    author_name: list[str | None]
    made_from: list[str | None]
    """A key of MADE_FROM, where the source held no plain text."""
    handed_in: list[EssayCell | None]
    """What is to be said of the files that a student handed in."""


class Scores(NamedTuple):
    """One rater's gradings of a chunk, in the order of its answers."""

    rater: str
    kind: str
    score: list[float | None]
    traits: list[list[tuple[str, float]]]
    averaged: bool
    """Whether its scores are means of several persons'."""
    notes: list[str | None] | None = None
    """What the rater says to each student; None where the study names no column of it."""


class ChunkMarks(NamedTuple):
    """Decisions of a chunk by people, or recorded of a machine, one per row."""

    rows: list[int]
    response_id: list[str]
    rater_id: list[str]
    criterion_id: list[str]
    level: list[int]
    rater_kind: list[str]


def items(source: Source, frame: pd.DataFrame, report: Report = refuse) -> list[tuple[int, Record]]:
    """(number of the row, row of `items`) for each row; those that `report` is told about are left out.

    InputError for a missing column or value, for what should be a list and is none, or a listed criterion that cannot
    be one, see `listed`.
    """
    lists = ("reference_answer", "key_elements", "key_weights", "misconceptions", "criteria")
    allowed = {"item_id", "question", "context", "type", "rubric_id", "rubric_text", *lists}
    mapping = {name: column for name, column in source.items.items() if name not in lists}
    named = column_texts(source, frame, source.items, mapping, allowed, ("item_id", "question"), report)
    columns = {name: source.items.get(name, {"const": None}) for name in lists}
    cells = {name: column_cells(source, frame, column, report) for name, column in columns.items()}
    names = {name: name_of(column) for name, column in columns.items()}
    numbered_items = list[tuple[int, Record]]()
    for position, number in enumerate(row_numbers(frame)):
        record = {name: column[position] for name, column in (named | cells).items()}
        if not all((record[name] or "").strip() for name in ("item_id", "question")):
            continue
        try:
            row = _item(record, names, source.file, number)
            numbered_items.append((number, _without_markup(row) if source.html else row))
        except InputError as error:
            report(error)
    return numbered_items


def _without_markup(row: Record) -> Record:
    """A row of `items` whose texts are plain."""
    plain_texts = {name: plain(row[name]) for name in _PROSE if row[name] is not None}
    answers = row["reference_answers"] and [plain(answer) for answer in row["reference_answers"]]
    return row | plain_texts | {"reference_answers": answers}


def _item(record: Record, names: Mapping[str, str], file: str, row: int) -> Record:
    """A row of `items`; record: its cells by canonical name, names: the columns of those that may hold a list."""

    def listed_texts(name: str) -> list[str] | None:
        return cell_texts(record[name], file, row, names[name])

    key = record["item_id"].strip()
    model = cell_answers(record["reference_answer"], file, row, names["reference_answer"])
    return {
        "item_id": key,
        "question": record["question"],
        "context": text_or_none(record.get("context")),
        "reference_answer": "\nor: ".join(model) or None,
        "key_elements": listed_texts("key_elements") or [],
        "type": text_or_none(record.get("type")) or "item",
        "rubric_id": (text_or_none(record.get("rubric_id")) or key).strip(),
        "key_weights": _weights(record["key_weights"], file, row, names["key_weights"]),
        "misconceptions": listed_texts("misconceptions"),
        "criteria": listed(record["criteria"], file, row, names["criteria"]),
        "reference_answers": model if len(model) > 1 else None,
        "rubric_text": text_or_none(record.get("rubric_text")),
    }


def answers(source: Source, frame: pd.DataFrame, report: Report = refuse) -> Answers:
    """The responses of a chunk; InputError for a missing column or value, or an unknown split. An id that is missing
    is '' once `report` is told."""
    if "text" not in source.responses:
        report(InputError("the mapping names no column for 'text'", file=source.file, field="text"))
    allowed = {"response_id", "item_id", "author_id", "author_name", "text", "split"}
    named = column_texts(source, frame, source.responses, source.responses, allowed, ("response_id", "item_id"), report)
    rows, nothing = row_numbers(frame), [None] * len(frame)
    splits = without_blanks(named.get("split", nothing))
    for number, split in zip(rows, splits, strict=True):
        if split is not None and split not in SPLITS:
            rule = f"{quoted(split)} is no split; use {', '.join(SPLITS)}"
            report(InputError(rule, file=source.file, row=number, field=name_of(source.responses["split"])))
    stored = [cell or "" for cell in named.get("text", nothing)]
    column = source.responses.get("text")
    raw = frame[column].tolist() if isinstance(column, str) and column in frame.columns else nothing
    handed_in = [cell if isinstance(cell, EssayCell) else None for cell in raw]
    marked = [source.html and essay is None and is_markup(cell) for essay, cell in zip(handed_in, stored, strict=True)]
    made_from = ["html" if markup else None for markup in marked]
    return Answers(
        rows=rows,
        response_id=as_ids(named["response_id"]),
        item_id=as_ids(named["item_id"]),
        author_id=authors_of(named.get("author_id", nothing), source, rows, report),
        text=[plain(cell) for cell in stored] if source.html else stored,
        split=splits,
        groups=_groups(source, frame, report),
        author_name=without_blanks(named.get("author_name", nothing)),
        made_from=[essay.unread or "file" if essay else made for essay, made in zip(handed_in, made_from, strict=True)],
        handed_in=handed_in,
    )


def _groups(source: Source, frame: pd.DataFrame, report: Report) -> list[list[tuple[str, str]]]:
    """(group variable, group) of each answer, without the variables that say nothing of it."""
    rows = row_numbers(frame)
    groups: list[list[tuple[str, str]]] = [[] for _ in rows]
    for name, column in source.groups.items():
        cells = texts(column_cells(source, frame, column, report), source.file, rows, column, report)
        for answer, group in zip(groups, without_blanks(cells), strict=True):
            if group:
                answer.append((name, group))
    return groups


def scored(
    source: Source, frame: pd.DataFrame, responses: Container[str], report: Report = refuse
) -> tuple[list[int], list[str]]:
    """(number of the row, response) of each row of a file of scores; InputError for a missing column or value.

    known: the responses. An id that `votes --scores` kept from running as a formula is the one that it was before.
    """
    column_of_ids = {"scored": source.scored or ""}
    named = column_texts(source, frame, column_of_ids, column_of_ids, {"scored"}, ("scored",), report)
    ids = as_ids(named["scored"])
    return row_numbers(frame), [name if name in responses else unguarded(name) for name in ids]


def chosen(source: Source, frame: pd.DataFrame, report: Report = refuse) -> list[bool]:
    """Whether the labels of each row of a file of scores were chosen rather than drawn; InputError for a missing column
    or what says neither."""
    if source.split is None:
        return [False] * len(frame)
    rows, field = row_numbers(frame), name_of(source.split)
    words = without_blanks(texts(column_cells(source, frame, source.split, report), source.file, rows, field, report))
    for number, split in zip(rows, words, strict=True):
        if split not in (None, "chosen"):
            rule = f"{quoted(split)} is neither 'chosen' nor empty"
            report(InputError(rule, file=source.file, row=number, field=field))
    return [split is not None for split in words]


def scores(source: Source, frame: pd.DataFrame, report: Report = refuse) -> list[Scores]:
    """The gradings of a chunk, rater by rater; InputError for a missing column, or what is neither a finite number nor
    one of the rater's words."""
    return [_scores(source, frame, rater, report) for rater in source.scores]


def look_at_decimals(source: Source, frame: pd.DataFrame, decimals: Decimals, report: Report) -> None:
    """InputError for a column of scores that writes its decimals in two ways; words are not looked at. In a workbook a
    number has a point here, whatever a spreadsheet shows, and a text may have a comma."""
    if source.file.lower().endswith(WORKBOOK):
        return
    rows = row_numbers(frame)
    for rater in source.scores:
        for column in filter(None, (rater.score, *rater.traits.values())):
            if column in frame.columns and not rater.words:
                decimals.look(source.file, column, rows, frame[column].tolist(), report)


def _scores(source: Source, frame: pd.DataFrame, rater: ScoreColumns, report: Report) -> Scores:
    def numbers(column: str) -> list[float | None]:
        cells = column_cells(source, frame, column, report)
        return [_number(number, cell, source.file, row, column, report) for row, cell in zip(rows, cells, strict=True)]

    rows, number = row_numbers(frame), numbers_of(rater.words)
    traits = {name: numbers(column) for name, column in rater.traits.items()}
    marks: list[list[tuple[str, float]]] = [[] for _ in rows]
    for name, column in traits.items():
        for answer, mark in zip(marks, column, strict=True):
            if mark is not None:
                answer.append((name, mark))
    nothing: list[float | None] = [None] * len(frame)
    score = numbers(rater.score) if rater.score else nothing
    notes: list[str | None] | None = None
    if rater.notes:
        cells = column_cells(source, frame, rater.notes, report)
        notes = without_blanks(texts(cells, source.file, row_numbers(frame), rater.notes, report))
    return Scores(rater.rater, rater.kind, score, marks, rater.averaged, notes)


def _number(read: Number, cell: Any, file: str, row: int, column: str, report: Report) -> float | None:
    try:
        return read(cell, file, row, column)
    except InputError as error:
        report(error)
        return None


def marks(source: Source, frame: pd.DataFrame, report: Report = refuse) -> ChunkMarks:
    """The marks of a chunk; InputError for a missing column or value, what is no level, or no kind of rater."""
    names = ("response_id", "rater_id", "criterion_id", "level")
    ids = {name: column for name, column in source.marks.items() if name != "level"}
    named = column_texts(source, frame, source.marks, ids, {*names, "rater_kind"}, names, report)
    rows, column = row_numbers(frame), source.marks.get("level", {"const": None})
    cells, level_of = column_cells(source, frame, column, report), numbers_of(source.words)
    levels = [
        _level(level_of, cell, source.file, number, name_of(column), report)
        for number, cell in zip(rows, cells, strict=True)
    ]
    kinds = [kind or "human" for kind in without_blanks(named.get("rater_kind", [None] * len(rows)))]
    for number, kind in zip(rows, kinds, strict=True):
        if kind not in MARKERS:
            rule = f"{quoted(kind)} is no kind of rater; use {', '.join(MARKERS)}"
            report(InputError(rule, file=source.file, row=number, field=name_of(source.marks["rater_kind"])))
    response_id, rater_id, criterion_id = (as_ids(named[name]) for name in names[:3])
    return ChunkMarks(rows, response_id, rater_id, criterion_id, levels, kinds)


def _level(read: Number, cell: Any, file: str, row: int, column: str, report: Report) -> int:
    """A cell as a level; -1 once `report` is told that it is none."""
    try:
        level = read(cell, file, row, column)
        if level is None:
            raise InputError("is empty", file=file, row=row, field=column)
        if level != int(level) or level < 0:
            raise refused(cell, "is no level", file, row, column)
    except InputError as error:
        report(error)
        return -1
    return int(level)


def _weights(cell: Any, file: str, row: int, field: str) -> list[float] | None:
    weights = [as_number(element, file, row, field) for element in cell_list(cell, file, row, field) or []]
    if any(weight is None for weight in weights):
        raise InputError("holds an empty weight", file=file, row=row, field=field)
    return [weight for weight in weights if weight is not None] or None
