"""The columns of a chunk of a source, as the study's mapping names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Column, Source
from rubricflow.tasks.core.store.cells import did_you_mean, need, refused, texts
from rubricflow.tasks.core.store.faults import Report

_EMPTY = frozenset({"na", "n/a", "#n/a", "nan", "null", "none", "-"})
"""Words by which programs write an empty cell."""


def row_numbers(frame: pd.DataFrame) -> list[int]:
    """The rows' numbers in their file, from 1."""
    return [number + 1 for number in frame.index.tolist()]


def column_cells(source: Source, frame: pd.DataFrame, column: Column, report: Report) -> list[Any]:
    """The cells of a column, or its constant; nothing in any row once `report` is told that there is none."""
    if isinstance(column, dict):
        return [column["const"]] * len(frame)
    try:
        need(frame, column, source.file)
    except InputError as error:
        hint = "; ".join(filter(None, (error.hint, f"the study names it in {_place_in_study(source, column)}")))
        report(InputError(error.rule, file=source.file, field=column, hint=hint))
        return [None] * len(frame)
    return frame[column].tolist()


def _place_in_study(source: Source, column: str) -> str:
    """Where a source names a column."""
    for section in ("items", "responses", "groups", "marks"):
        for key, value in getattr(source, section).items():
            if value == column:
                return f"data.sources: {section}.{key}"
    rater = next(
        (rater.rater for rater in source.scores if column in (rater.score, rater.notes, *rater.traits.values())), None
    )
    return "data.sources" if rater is None else f"data.sources: scores of rater '{rater}'"


def column_texts(
    source: Source,
    frame: pd.DataFrame,
    mapped: Mapping[str, Column],
    mapping: Mapping[str, Column],
    allowed: set[str],
    required: tuple[str, ...],
    report: Report,
) -> dict[str, list[str | None]]:
    """The columns of `mapping`, a part of what is given, as texts by their canonical name."""
    for name in sorted(set(mapped) - allowed):
        rule = f"'{name}' is no canonical column; there are {', '.join(sorted(allowed))}"
        report(InputError(rule, file=source.file, field=name, hint=did_you_mean(name, allowed)))
    for name in required:
        if name not in mapped:
            report(InputError(f"the mapping names no column for '{name}'", file=source.file, field=name))
    rows = row_numbers(frame)
    nothing: list[str | None] = [None] * len(rows)
    columns = dict.fromkeys(required, nothing)
    for name, column in mapping.items():
        cells = column_cells(source, frame, column, report)
        columns[name] = texts(cells, source.file, rows, name_of(column), report)
        is_there = isinstance(column, dict) or column in frame.columns
        if name in required and is_there:
            _refuse_blank(columns[name], source.file, rows, name_of(column), report)
    return columns


def _refuse_blank(cells: Sequence[str | None], file: str, rows: Sequence[int], column: str, report: Report) -> None:
    for number, cell in zip(rows, cells, strict=True):
        if cell is None or not cell.strip():
            report(InputError("is empty", file=file, row=number, field=column))


def as_ids(cells: Sequence[str | None]) -> list[str]:
    """Ids without the blanks around them, which nobody sees; '' for a missing one."""
    return [(cell or "").strip() for cell in cells]


def without_blanks(cells: Sequence[str | None]) -> list[str | None]:
    """Texts without the blanks around them, which a spreadsheet does not show, and None for those that are blank."""
    return [cell.strip() or None if cell else None for cell in cells]


def authors_of(cells: Sequence[str | None], source: Source, rows: Sequence[int], report: Report) -> list[str | None]:
    """Authors; InputError for a word by which programs write an empty cell: all of these would be one author."""
    authors = without_blanks(cells)
    for row, author in zip(rows, authors, strict=True):
        if author is not None and author.casefold() in _EMPTY:
            hint = "leave the cell empty, or name the author otherwise"
            field = name_of(source.responses["author_id"])
            report(refused(author, "reads like an empty cell", source.file, row, field, hint))
    return authors


def name_of(column: Column) -> str:
    """A column as the user calls it."""
    return column if isinstance(column, str) else "const"
