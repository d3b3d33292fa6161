"""Cells that hold a list: of a JSON or Parquet file as it stands, of a CSV file as JSON."""

from __future__ import annotations

import json
import re
from typing import Any

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import UnreadableCell, as_text, missing, text_or_none

_WRITTEN = 'write ["one", "two"]'
_LIST_OF_TEXTS = re.compile(r"""\s*\[\s*["'{]""")
"""How a list of texts or objects begins; a text may begin with [1] or [sic]."""


def cell_list(cell: Any, file: object, row: int, field: str) -> list[Any] | None:
    """The list of a cell, a JSON list in a text included; None where it is missing or blank.

    InputError for what is no list, and for JSON that is broken, with the place of the first fault.
    """
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        cell = _parsed(cell, file, row, field)
    if isinstance(cell, list):
        return cell
    if text_or_none(cell) is not None:
        raise InputError("is not a list", file=file, row=row, field=field, hint=_WRITTEN)
    return None


def cell_texts(cell: Any, file: object, row: int, field: str) -> list[str] | None:
    """The texts of a cell that holds a list of them, or of objects each with its 'text'; None as for `cell_list`.

    InputError names an element by its place, from 0: null, true or false, a list, or an object that has no text, or a
    weight, which a list of texts cannot keep.
    """
    elements = cell_list(cell, file, row, field)
    return elements and [_text(element, file, row, f"{field}.{place}") for place, element in enumerate(elements)]


def cell_answers(cell: Any, file: object, row: int, field: str) -> list[str]:
    """The model answers of a cell: its text, or those of a list; none where it is missing or blank."""
    if isinstance(cell, list) or (isinstance(cell, str) and _LIST_OF_TEXTS.match(cell)):
        return [text for text in cell_texts(cell, file, row, field) or [] if text.strip()]
    if isinstance(cell, UnreadableCell):
        raise InputError(cell.rule, file=file, row=row, field=field, hint=cell.hint)
    if isinstance(cell, dict | bytes):
        raise InputError("is neither a text nor a list of texts", file=file, row=row, field=field)
    text = text_or_none(cell)
    return [text] if text is not None else []


def _parsed(cell: str, file: object, row: int, field: str) -> Any:
    try:
        return json.loads(cell, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        place = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        rule = f"is no JSON list: {getattr(error, 'msg', error)}{place}"
        raise InputError(rule, file=file, row=row, field=field, hint=_WRITTEN) from error


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _text(element: Any, file: object, row: int, field: str) -> str:
    if isinstance(element, dict):
        if not missing(element.get("weight")):
            rule, hint = "has a weight, which a list of texts cannot keep", "give the weights in key_weights"
            raise InputError(rule, file=file, row=row, field=field, hint=hint)
        element = element.get("text")
    if isinstance(element, dict | list | bytes | bool):
        raise InputError("is neither a text nor an object with a 'text'", file=file, row=row, field=field)
    if missing(element):
        raise InputError("is empty", file=file, row=row, field=field)
    return as_text(element)
