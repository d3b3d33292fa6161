"""A chunk of a source as rows of the canonical tables, by the study's column mapping.

What a single row can break is refused here; what takes all rows to see is refused in the survey.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from tasks.contracts.errors import InputError
from tasks.contracts.settings.study import Column, ScoreColumns, Source
from tasks.contracts.tables.data import SPLITS
from tasks.ingest.listed import listed
from tasks.ingest.lists import cell_answers, cell_list, cell_texts
from tasks.ingest.words import numbers_of
from tasks.store.cells import as_number, need, quoted, refused, text_or_none, texts
from tasks.text.formulas import unguarded
from tasks.text.markup import is_markup, plain

Record = dict[str, Any]
MARKERS = ("human", "replayed")
"""Kinds of raters whose decisions a source may hold."""
_PROSE = ("question", "context", "reference_answer", "rubric_text")
"""What an item says in texts that may be HTML."""
_EMPTY = frozenset({"na", "n/a", "#n/a", "nan", "null", "none", "-"})


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
    """'html' where the text was made from markup."""


class Scores(NamedTuple):
    """One rater's gradings of a chunk, in the order of its answers."""

    rater: str
    kind: str
    score: list[float | None]
    traits: list[list[tuple[str, float]]]
    averaged: bool
    """Whether its scores are means of several persons'."""


class ChunkMarks(NamedTuple):
    """Decisions of a chunk by people, or recorded of a machine, one per row."""

    rows: list[int]
    response_id: list[str]
    rater_id: list[str]
    criterion_id: list[str]
    level: list[int]
    rater_kind: list[str]


def items(source: Source, frame: pd.DataFrame) -> list[tuple[int, Record]]:
    """(number of the row, row of `items`) for each row.

    InputError for a missing column or value, for what should be a list and is none, or a listed criterion that cannot
    be one, see `listed`.
    """
    lists = ("reference_answer", "key_elements", "key_weights", "misconceptions", "criteria")
    allowed = {"item_id", "question", "context", "type", "rubric_id", "rubric_text", *lists}
    mapping = {name: column for name, column in source.items.items() if name not in lists}
    named = _texts(source, frame, source.items, mapping, allowed, ("item_id", "question"))
    columns = {name: source.items.get(name, {"const": None}) for name in lists}
    cells = {name: _cells(source, frame, column) for name, column in columns.items()}
    names = {name: name_of(column) for name, column in columns.items()}
    found = []
    for at, number in enumerate(_numbers(frame)):
        record = {name: texts[at] for name, texts in named.items()} | {name: of[at] for name, of in cells.items()}
        row = _item(record, names, source.file, number)
        found.append((number, _without_markup(row) if source.html else row))
    return found


def _without_markup(row: Record) -> Record:
    """A row of `items` whose texts are plain."""
    plain_texts = {name: plain(row[name]) for name in _PROSE if row[name] is not None}
    answers = row["reference_answers"] and [plain(answer) for answer in row["reference_answers"]]
    return row | plain_texts | {"reference_answers": answers}


def _item(record: Record, names: Mapping[str, str], file: str, row: int) -> Record:
    """A row of `items`; record: its cells by canonical name, names: the columns of those that may hold a list."""

    def told(name: str) -> list[str] | None:
        return cell_texts(record[name], file, row, names[name])

    key, model = record["item_id"], cell_answers(record["reference_answer"], file, row, names["reference_answer"])
    return {
        "item_id": key,
        "question": record["question"],
        "context": text_or_none(record.get("context")),
        "reference_answer": "\nor: ".join(model) or None,
        "key_elements": told("key_elements") or [],
        "type": text_or_none(record.get("type")) or "item",
        "rubric_id": text_or_none(record.get("rubric_id")) or key,
        "key_weights": _weights(record["key_weights"], file, row, names["key_weights"]),
        "misconceptions": told("misconceptions"),
        "criteria": listed(record["criteria"], file, row, names["criteria"]),
        "reference_answers": model if len(model) > 1 else None,
        "rubric_text": text_or_none(record.get("rubric_text")),
    }


def answers(source: Source, frame: pd.DataFrame) -> Answers:
    """The responses of a chunk; InputError for a missing column or value, or an unknown split."""
    if "text" not in source.responses:
        raise InputError("the mapping names no column for 'text'", file=source.file, field="text")
    allowed = {"response_id", "item_id", "author_id", "author_name", "text", "split"}
    named = _texts(source, frame, source.responses, source.responses, allowed, ("response_id", "item_id"))
    rows, nothing = _numbers(frame), [None] * len(frame)
    splits = _filled(named.get("split", nothing))
    for number, split in zip(rows, splits, strict=True):
        if split is not None and split not in SPLITS:
            rule = f"{quoted(split)} is no split; use {', '.join(SPLITS)}"
            raise InputError(rule, file=source.file, row=number, field=name_of(source.responses["split"]))
    groups = {
        name: _filled(texts(_cells(source, frame, column), source.file, rows, column))
        for name, column in source.groups.items()
    }
    stored = [cell or "" for cell in named["text"]]
    marked = [source.html and is_markup(cell) for cell in stored]
    return Answers(
        rows,
        [str(cell) for cell in named["response_id"]],
        [str(cell) for cell in named["item_id"]],
        _authors(named.get("author_id", nothing), source, rows),
        [plain(cell) for cell in stored] if source.html else stored,
        splits,
        [
            [(name, group) for name, group in zip(groups, row, strict=True) if group]
            for row in zip(*groups.values(), strict=True)
        ]
        if groups
        else [[]] * len(frame),
        _filled(named.get("author_name", nothing)),
        ["html" if markup else None for markup in marked],
    )


def scored(source: Source, frame: pd.DataFrame, known: Container[str]) -> tuple[list[int], list[str]]:
    """(number of the row, response) of each row of a file of scores; InputError for a missing column or value.

    known: the responses. An id that `votes --scores` kept from running as a formula is the one that it was before.
    """
    given = {"scored": source.scored or ""}
    named = _texts(source, frame, given, given, {"scored"}, ("scored",))
    ids = [str(cell) for cell in named["scored"]]
    return _numbers(frame), [name if name in known else unguarded(name) for name in ids]


def chosen(source: Source, frame: pd.DataFrame) -> list[bool]:
    """Whether the labels of each row of a file of scores were chosen rather than drawn; InputError for a missing column
    or what says neither."""
    if source.split is None:
        return [False] * len(frame)
    rows, field = _numbers(frame), name_of(source.split)
    said = _filled(texts(_cells(source, frame, source.split), source.file, rows, field))
    for number, split in zip(rows, said, strict=True):
        if split not in (None, "chosen"):
            rule = f"{quoted(split)} is neither 'chosen' nor empty"
            raise InputError(rule, file=source.file, row=number, field=field)
    return [split is not None for split in said]


def scores(source: Source, frame: pd.DataFrame) -> list[Scores]:
    """The gradings of a chunk, rater by rater; InputError for a missing column, or what is neither a finite number nor
    one of the rater's words."""
    return [_scores(source, frame, rater) for rater in source.scores]


def _scores(source: Source, frame: pd.DataFrame, rater: ScoreColumns) -> Scores:
    def numbers(column: str) -> list[float | None]:
        cells = _cells(source, frame, column)
        return [number(cell, source.file, row, column) for row, cell in zip(rows, cells, strict=True)]

    rows, number = _numbers(frame), numbers_of(rater.words)
    traits = {name: numbers(column) for name, column in rater.traits.items()}
    marks = [
        [(name, mark) for name, mark in zip(traits, row, strict=True) if mark is not None]
        for row in zip(*traits.values(), strict=True)
    ]
    nothing: list[float | None] = [None] * len(frame)
    score = numbers(rater.score) if rater.score else nothing
    return Scores(rater.rater, rater.kind, score, marks if traits else [[]] * len(frame), rater.averaged)


def marks(source: Source, frame: pd.DataFrame) -> ChunkMarks:
    """The marks of a chunk; InputError for a missing column or value, what is no level, or no kind of rater."""
    names = ("response_id", "rater_id", "criterion_id", "level")
    ids = {name: column for name, column in source.marks.items() if name != "level"}
    named = _texts(source, frame, source.marks, ids, {*names, "rater_kind"}, names)
    field, rows, levels = name_of(source.marks["level"]), _numbers(frame), []
    level_of = numbers_of(source.words)
    for number, cell in zip(rows, _cells(source, frame, source.marks["level"]), strict=True):
        level = level_of(cell, source.file, number, field)
        if level is None:
            raise InputError("is empty", file=source.file, row=number, field=field)
        if level != int(level) or level < 0:
            raise InputError(f"{quoted(cell)} is no level", file=source.file, row=number, field=field)
        levels.append(int(level))
    kinds = [kind or "human" for kind in _filled(named.get("rater_kind", [None] * len(rows)))]
    for number, kind in zip(rows, kinds, strict=True):
        if kind not in MARKERS:
            rule = f"{quoted(kind)} is no kind of rater; use {', '.join(MARKERS)}"
            raise InputError(rule, file=source.file, row=number, field=name_of(source.marks["rater_kind"]))
    response_id, rater_id, criterion_id = ([str(cell) for cell in named[name]] for name in names[:3])
    return ChunkMarks(rows, response_id, rater_id, criterion_id, levels, kinds)


def _numbers(frame: pd.DataFrame) -> list[int]:
    """The rows' numbers in their file, from 1."""
    return [number + 1 for number in frame.index.tolist()]


def _cells(source: Source, frame: pd.DataFrame, column: Column) -> list[Any]:
    if isinstance(column, dict):
        return [column["const"]] * len(frame)
    need(frame, column, source.file)
    return frame[column].tolist()


def _texts(
    source: Source,
    frame: pd.DataFrame,
    given: Mapping[str, Column],
    mapping: Mapping[str, Column],
    allowed: set[str],
    required: tuple[str, ...],
) -> dict[str, list[str | None]]:
    """The columns of `mapping`, a part of what is given, as texts by their canonical name."""
    for name in sorted(set(given) - allowed):
        rule = f"'{name}' is no canonical column; there are {', '.join(sorted(allowed))}"
        raise InputError(rule, file=source.file, field=name)
    for name in required:
        if name not in given:
            raise InputError(f"the mapping names no column for '{name}'", file=source.file, field=name)
    rows = _numbers(frame)
    found = {
        name: texts(_cells(source, frame, column), source.file, rows, name_of(column))
        for name, column in mapping.items()
    }
    for name in (name for name in required if name in mapping):
        for number, cell in zip(rows, found[name], strict=True):
            if cell is None or not cell.strip():
                raise InputError("is empty", file=source.file, row=number, field=name_of(mapping[name]))
    return found


def _filled(cells: Sequence[str | None]) -> list[str | None]:
    """Texts without the blanks around them, which a spreadsheet does not show, and None for those that are blank."""
    return [cell.strip() or None if cell else None for cell in cells]


def _authors(cells: Sequence[str | None], source: Source, rows: Sequence[int]) -> list[str | None]:
    """Authors; InputError for a word by which programs write an empty cell: all of these would be one author."""
    authors = _filled(cells)
    for row, author in zip(rows, authors, strict=True):
        if author is not None and author.casefold() in _EMPTY:
            hint = "leave the cell empty, or name the author otherwise"
            field = name_of(source.responses["author_id"])
            raise refused(author, "reads like an empty cell", source.file, row, field, hint)
    return authors


def name_of(column: Column) -> str:
    """A column as the user calls it."""
    return column if isinstance(column, str) else "const"


def _weights(cell: Any, file: str, row: int, field: str) -> list[float] | None:
    weights = [as_number(one, file, row, field) for one in cell_list(cell, file, row, field) or []]
    if any(weight is None for weight in weights):
        raise InputError("holds an empty weight", file=file, row=row, field=field)
    return [weight for weight in weights if weight is not None] or None
