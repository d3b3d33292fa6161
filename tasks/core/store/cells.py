"""A cell of a source file as text or number, and which rows a study selects: the same for every reader of foreign
files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError, refuse
from rubricflow.tasks.core.text.digest import text_digest, without_half_pairs
from rubricflow.tasks.core.text.tokens import decimal_of, number_of

_NO_TEXT: dict[type, str] = {list: "a list", dict: "an object", bytes: "bytes"}
_MONTH = r"(?:jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-zä]*"
_DAY = r"\d{4}-\d\d-\d\d.*|\d{1,2}([./-])\d{1,2}\1(?:\d{2,4})?"
_DATE = re.compile(rf"{_DAY}|\d{{1,2}}\.?[ -]{_MONTH}\.?|{_MONTH}\.?[ -]\d{{1,4}}", re.IGNORECASE)
"""What spreadsheets make of 3.5 or 3-5."""
_LONGEST_PART = 40
"""Characters of a part of an id; what is longer is represented by its digest."""
_DIGITS = 12
"""Of such a digest, in base 16."""


class UnreadableCell(NamedTuple):
    """A cell of a spreadsheet that has no value, which is an error where the value is needed, and nowhere else."""

    rule: str
    hint: str

    def __str__(self) -> str:
        return f"a cell that {self.rule}"


class EssayCell(NamedTuple):
    """A cell that holds what was read of a student's files."""

    text: str
    unread: str | None = None
    """Why a person has to look at it, a key of UNREAD: a file of it, or all, could not be read."""
    why: str | None = None
    """The names of such files, each with the reason."""
    joined: str | None = None
    """The names of the files, where they are several."""
    replaced: str | None = None
    """The names of those that a later attempt replaced."""

    def __str__(self) -> str:
        return self.text


def missing(cell: Any) -> bool:
    """Whether a cell is null or NaN; an empty string is there."""
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def as_text(cell: Any) -> str:
    """A cell as text; 3.0 of a numeric column is the id '3', and half a surrogate pair, which JSON can escape but no
    file can hold, becomes the replacement character."""
    return without_half_pairs(str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell))


def text_or_none(cell: Any) -> str | None:
    """A cell as text; None where it is missing or blank."""
    text = "" if missing(cell) else as_text(cell)
    return text if text.strip() else None


def texts(
    cells: Iterable[Any],
    file: object,
    rows: Iterable[int],
    field: str,
    report: Callable[[InputError], None] = refuse,
) -> list[str | None]:
    """Cells as texts; None where one is missing, InputError where one is a list, an object or bytes."""
    converted: list[str | None] = []
    for row, cell in zip(rows, cells, strict=True):
        if type(cell) is str and cell.isascii():  # nearly all cells, and the others cost ten times as much
            converted.append(cell)
        elif isinstance(cell, UnreadableCell):
            report(InputError(cell.rule, file=file, row=row, field=field, hint=cell.hint))
            converted.append(None)
        elif kind := _NO_TEXT.get(type(cell)):
            report(InputError(f"is {kind}, not text", file=file, row=row, field=field))
            converted.append(None)
        else:
            converted.append(None if missing(cell) else as_text(cell))
    return converted


def as_number(
    cell: Any, file: object, row: int | None, field: str | None, otherwise: str | None = None
) -> float | None:
    """A cell as a number, also one with a decimal comma; None where it is missing or blank, InputError where it is no
    finite number.

    otherwise: a hint for cells that are none.
    """
    if missing(cell) or (isinstance(cell, str) and not cell.strip()):
        return None
    if isinstance(cell, UnreadableCell):
        raise InputError(cell.rule, file=file, row=row, field=field, hint=cell.hint)
    number = None
    if isinstance(cell, str):
        number = decimal_of(cell)
    elif not isinstance(cell, bool | bytes):  # Python reads true as 1 and b"1" as 1; no file of scores means that
        try:
            number = float(cell)
        except (TypeError, ValueError, OverflowError):
            number = None
    if number is not None and math.isfinite(number):
        return number
    text, hint = str(cell).strip(), otherwise
    if isinstance(cell, str) and number_of(text.replace(",", "")) is not None:
        hint = "it may be a decimal or a thousand: write 1.000 as 1, and 1,000 as 1000"
    if _DATE.fullmatch(text):
        hint = "it is a date: a spreadsheet may have made it of 3.5; format the column as text and type it again"
    raise InputError(f"{quoted(cell)} is not a finite number", file=file, row=row, field=field, hint=hint)


def no_number(name: str) -> None:
    """For json.loads: ValueError for NaN and Infinity, which are no JSON."""
    raise ValueError(f"{name} is no JSON number")


def quoted(cell: Any) -> str:
    """The beginning of a cell as a message may show it: in quotes, control characters escaped."""
    return "'" + "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(cell)[:40]) + "'"


def need(frame: pd.DataFrame, name: str, file: object) -> None:
    """InputError where the frame has no such column."""
    if name not in frame.columns:
        columns = list(map(str, frame.columns))
        rule = f"no such column; there are {', '.join(columns)}"
        raise InputError(rule, file=file, field=name, hint=did_you_mean(name, columns))


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """The name most like one that is not there, as a question; None where none is like it. 'Student Answer' is
    'student_answer' here."""

    def letters(name: str) -> str:
        return re.sub(r"[\W_]+", "", name).casefold()

    folded = {letters(other): other for other in names}
    alike = get_close_matches(letters(name), folded, n=1, cutoff=0.6)
    return f"did you mean '{folded[alike[0]]}'?" if alike else None


def likely_id(name: str, ids: Container[str]) -> str | None:
    """What a spreadsheet may have done to an id that is not there: 001 became 1, 12 became 12.0."""
    bare = name.removesuffix(".0").lstrip("0") or "0"
    padded = (bare.zfill(length) for length in range(1, 13))
    other = next((other for other in (*padded, f"{bare}.0", name.upper(), name.lower()) if other in ids), None)
    return f"there is '{other}'; spreadsheets drop zeros and add '.0': format the column as text" if other else None


def with_columns(frame: pd.DataFrame, columns: Mapping[str, Iterable[Any]]) -> pd.DataFrame:
    """The frame with columns of cells of any kind, a list or None among them."""
    cells = {name: pd.Series(list(values), frame.index, dtype=object) for name, values in columns.items()}
    return frame.assign(**cells)


def select(frame: pd.DataFrame, where: Mapping[str, object], file: object) -> pd.DataFrame:
    """The rows in which every column of `where` has its value, or one of several; InputError for an unknown column.

    A number is the same in any writing, true and false in any case, as CSV files write them, and a text as it stands.
    """
    for name, value in where.items():
        need(frame, name, file)
        values = value if isinstance(value, list | tuple) else (value,)
        numbers = {one for one in values if isinstance(one, int | float) and not isinstance(one, bool)}
        words = set(map(_folded, values))
        chosen = []
        for cell in frame[name]:
            if missing(cell) or isinstance(cell, list | dict):
                chosen.append(False)
            else:
                chosen.append(_folded(cell) in words or (isinstance(cell, str) and number_of(cell) in numbers))
        frame = frame.loc[chosen]
    return frame


def _folded(value: Any) -> str:
    """A value to compare with: 1, 1.0 and '1' are one, and so are true and 'True', as CSV files write it."""
    return as_text(value).casefold() if str(value).casefold() in ("true", "false") else as_text(value)


def id_of(parts: Iterable[str]) -> str:
    """The id that texts make together. Different texts make different ids, but for chance collisions of digests."""
    shortened = []
    for part in map(str.strip, parts):
        is_short = len(part) <= _LONGEST_PART and part.isprintable() and ":" not in part and not part.startswith("#")
        shortened.append(part if is_short else f"#{text_digest(part)[:_DIGITS]}")
    return ":".join(shortened)
