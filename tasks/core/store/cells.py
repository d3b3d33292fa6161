"""What a cell of a source file says, and which rows a study selects: the same for every reader of foreign files."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError, refuse
from rubricflow.tasks.core.text.numbers import number_of

_NO_TEXT: dict[type, str] = {list: "a list", dict: "an object", bytes: "bytes"}
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_MONTH = r"(?:jan|feb|m[aä]r|apr|ma[iy]|jun|jul|aug|sep|o[ck]t|nov|de[cz])[a-zä]*"
_DAY = r"\d{4}-\d\d-\d\d.*|\d{1,2}([./-])\d{1,2}\1(?:\d{2,4})?"
_DATE = re.compile(rf"{_DAY}|\d{{1,2}}\.?[ -]{_MONTH}\.?|{_MONTH}\.?[ -]\d{{1,4}}", re.IGNORECASE)
"""What spreadsheets make of 3.5 or 3-5."""
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")


class UnreadableCell(NamedTuple):
    """A cell of a spreadsheet that has no value: it says so where somebody needs the value, and nowhere else."""

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
    """The names of such files, with what is said of each."""
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
    text = str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)
    if text.isascii() or not _HALF_A_PAIR.search(text):
        return text
    return _HALF_A_PAIR.sub("\ufffd", text)


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
            continue
        kind = _NO_TEXT.get(type(cell))
        if isinstance(cell, UnreadableCell):
            report(InputError(cell.rule, file=file, row=row, field=field, hint=cell.hint))
        elif kind:
            report(InputError(f"is {kind}, not text", file=file, row=row, field=field))
        readable = not (kind or missing(cell) or isinstance(cell, UnreadableCell))
        converted.append(as_text(cell) if readable else None)
    return converted


def as_number(
    cell: Any, file: object, row: int | None, field: str | None, otherwise: str | None = None
) -> float | None:
    """A cell as a number; None where it is missing or blank, InputError where it is no finite number.

    otherwise: what somebody may do whose cells are none.
    """
    if missing(cell) or (isinstance(cell, str) and not cell.strip()):
        return None
    if isinstance(cell, UnreadableCell):
        raise InputError(cell.rule, file=file, row=row, field=field, hint=cell.hint)
    number = number_of(cell) if isinstance(cell, str) else _finite(cell)
    if number is None:
        raise refused(cell, "is not a finite number", file, row, field, _number_hint(str(cell).strip()) or otherwise)
    return number


def _number_hint(text: str) -> str | None:
    if _DECIMAL_COMMA.fullmatch(text):
        return "decimals are written with a point"
    if _DATE.fullmatch(text):
        return "it is a date: a spreadsheet may have made it of 3.5; format the column as text and type it again"
    return None


def refused(
    cell: Any, rule: str, file: object, row: int | None, field: str | None, hint: str | None = None
) -> InputError:
    """The error about a cell that breaks a rule, which shows its beginning."""
    return InputError(f"{quoted(cell)} {rule}", file=file, row=row, field=field, hint=hint)


def _finite(cell: Any) -> float | None:
    """Python reads true as 1 and b"1" as 1; no file of scores means that."""
    try:
        number = math.nan if isinstance(cell, bool | bytes) else float(cell)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


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
    """The name that somebody may have meant by one that is not there, as a question; None where none is like it."""
    folded = {_letters(other): other for other in names}
    alike = get_close_matches(_letters(name), folded, n=1, cutoff=0.6)
    return f"did you mean '{folded[alike[0]]}'?" if alike else None


def likely_id(name: str, ids: Container[str]) -> str | None:
    """What a spreadsheet may have done to an id that is not there: 001 became 1, 12 became 12.0."""
    bare = name.removesuffix(".0").lstrip("0") or "0"
    padded = (bare.zfill(length) for length in range(1, 13))
    other = next((other for other in (*padded, f"{bare}.0", name.upper(), name.lower()) if other in ids), None)
    return f"there is '{other}'; spreadsheets drop zeros and add '.0': format the column as text" if other else None


def _letters(name: str) -> str:
    """A name by which 'Student Answer' is 'student_answer'."""
    return re.sub(r"[\W_]+", "", name).casefold()


def with_columns(frame: pd.DataFrame, columns: Mapping[str, Iterable[Any]]) -> pd.DataFrame:
    """The frame with columns of cells of any kind, a list or None among them."""
    cells = {name: pd.Series(list(values), frame.index, dtype=object) for name, values in columns.items()}
    return frame.assign(**cells)


def select(frame: pd.DataFrame, where: Mapping[str, object], file: object) -> pd.DataFrame:
    """The rows in which every column of `where` has its value; InputError for an unknown column."""
    for name, value in where.items():
        need(frame, name, file)
        frame = frame.loc[[_is(cell, value) for cell in frame[name]]]
    return frame


def _is(cell: Any, value: Any) -> bool:
    """Whether a cell has a value: a number in any writing of it, true and false in any case, as CSV files write them,
    and a text as it stands."""
    if missing(cell) or isinstance(cell, list | dict):
        return False
    if isinstance(value, int | float) and not isinstance(value, bool) and isinstance(cell, str):
        return number_of(cell) == value
    return _folded(cell) == _folded(value)


def _folded(value: Any) -> str:
    """A value to compare with: 1, 1.0 and '1' are one, and so are true and 'True', as CSV files write it."""
    return as_text(value).casefold() if str(value).casefold() in ("true", "false") else as_text(value)
