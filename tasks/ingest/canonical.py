"""A chunk of a source as rows of the canonical tables, by the study's column mapping.

What a single row can break is refused here; what takes all rows to see is refused in the survey.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from tasks.contracts.errors import InputError
from tasks.contracts.settings.study import Column, ScoreColumns, Source
from tasks.ingest.listed import listed
from tasks.store.cells import as_number, as_text, need, quoted, text_or_none, texts
from tasks.text.formulas import unguarded

Record = dict[str, Any]
SPLITS = ("train", "calibration", "test")
MARKERS = ("human", "replayed")
"""Kinds of raters whose decisions a source may hold."""


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
    lists = ("key_elements", "key_weights", "misconceptions", "criteria")
    allowed = {"item_id", "question", "context", "reference_answer", "type", "rubric_id", *lists}
    mapping = {name: column for name, column in source.items.items() if name not in lists}
    named = _texts(source, frame, source.items, mapping, allowed, ("item_id", "question"))
    cells = [_cells(source, frame, source.items.get(name, {"const": None})) for name in lists]
    found = []
    for number, elements, weights, mistakes, criteria, *row in zip(
        _numbers(frame), *cells, *named.values(), strict=True
    ):
        record = dict(zip(named, row, strict=True))
        key = record["item_id"]
        made = {
            "item_id": key,
            "question": record["question"],
            "context": text_or_none(record.get("context")),
            "reference_answer": text_or_none(record.get("reference_answer")),
            "key_elements": _list(elements, source, number, "key_elements") or [],
            "type": text_or_none(record.get("type")) or "item",
            "rubric_id": text_or_none(record.get("rubric_id")) or key,
            "key_weights": _weights(weights, source, number),
            "misconceptions": _list(mistakes, source, number, "misconceptions"),
            "criteria": listed(criteria, source.file, number),
        }
        found.append((number, made))
    return found


def answers(source: Source, frame: pd.DataFrame) -> Answers:
    """The responses of a chunk; InputError for a missing column or value, or an unknown split."""
    if "text" not in source.responses:
        raise InputError("the mapping names no column for 'text'", file=source.file, field="text")
    allowed = {"response_id", "item_id", "author_id", "text", "split"}
    named = _texts(source, frame, source.responses, source.responses, allowed, ("response_id", "item_id"))
    rows, nothing = _numbers(frame), [None] * len(frame)
    splits = _filled(named.get("split", nothing))
    for number, split in zip(rows, splits, strict=True):
        if split is not None and split not in SPLITS:
            rule = f"{quoted(split)} is no split; use {', '.join(SPLITS)}"
            raise InputError(rule, file=source.file, row=number, field=name_of(source.responses["split"]))
    groups = {
        name: texts(_cells(source, frame, column), source.file, rows, column) for name, column in source.groups.items()
    }
    return Answers(
        rows,
        [str(cell) for cell in named["response_id"]],
        [str(cell) for cell in named["item_id"]],
        _filled(named.get("author_id", nothing)),
        [cell or "" for cell in named["text"]],
        splits,
        [
            [(name, group) for name, group in zip(groups, row, strict=True) if group and group.strip()]
            for row in zip(*groups.values(), strict=True)
        ]
        if groups
        else [[]] * len(frame),
    )


def scored(source: Source, frame: pd.DataFrame, known: Container[str]) -> tuple[list[int], list[str]]:
    """(number of the row, response) of each row of a file of scores; InputError for a missing column or value.

    known: the responses. An id that `votes --scores` kept from running as a formula is the one that it was before.
    """
    given = {"scored": source.scored or ""}
    named = _texts(source, frame, given, given, {"scored"}, ("scored",))
    ids = [str(cell) for cell in named["scored"]]
    return _numbers(frame), [name if name in known else unguarded(name) for name in ids]


def scores(source: Source, frame: pd.DataFrame) -> list[Scores]:
    """The gradings of a chunk, rater by rater; InputError for a missing column or what is no finite number."""
    return [_scores(source, frame, rater) for rater in source.scores]


def _scores(source: Source, frame: pd.DataFrame, rater: ScoreColumns) -> Scores:
    def numbers(column: str) -> list[float | None]:
        cells = _cells(source, frame, column)
        return [as_number(cell, source.file, row, column) for row, cell in zip(rows, cells, strict=True)]

    rows = _numbers(frame)
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
    for number, cell in zip(rows, _cells(source, frame, source.marks["level"]), strict=True):
        level = as_number(cell, source.file, number, field)
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
    """Texts, and None for those that are blank."""
    return [cell if cell and cell.strip() else None for cell in cells]


def name_of(column: Column) -> str:
    """A column as the user calls it."""
    return column if isinstance(column, str) else "const"


def _list(cell: Any, source: Source, number: int, field: str) -> list[str] | None:
    if isinstance(cell, list):
        return [as_text(element) for element in cell]
    if text_or_none(cell) is not None:
        raise InputError("is not a list", file=source.file, row=number, field=field)
    return None


def _weights(cell: Any, source: Source, number: int) -> list[float] | None:
    found = _list(cell, source, number, "key_weights")
    weights = [as_number(one, source.file, number, "key_weights") for one in found or []]
    if any(weight is None for weight in weights):
        raise InputError("holds an empty weight", file=source.file, row=number, field="key_weights")
    return [weight for weight in weights if weight is not None] or None
