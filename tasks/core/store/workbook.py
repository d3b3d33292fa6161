"""Excel workbooks (.xlsx): the values of a sheet as texts, as the spreadsheet shows them."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, time
from itertools import repeat
from pathlib import Path
from typing import Any

from openpyxl import load_workbook

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import UnreadableCell
from rubricflow.tasks.core.store.delimited import Line

LARGEST = 256 << 20
"""Bytes to which the tables of a workbook may unpack."""
LARGEST_ELSE = 16 << 20
"""Bytes to which the rest of its XML may, styles and the like: the library holds that as trees, ten times as large."""
RATIO = 50
"""How many times its own size a workbook of more than LARGEST_ELSE may unpack to."""
MOST_ROWS, MOST_CELLS = 1 << 20, 50_000_000
"""Of a sheet: the rows that Excel has; the cells that are looked at, blank ones among them."""
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_SAVE_ANEW = "open it in Excel or LibreOffice and save it as .xlsx"
_AS_CSV = "save the sheet as 'CSV UTF-8'"
_ZEROS = re.compile(r"[0#?]*0[ /-]*(?:[0 /-]*0)?")
"""A number's format that shows digits alone: zeros that are always there, and signs that part them."""
_UNSEEN = re.compile(r'\[[^\]]*\]|_.|\*.|["\\]')
"""What a format says of colours, languages and widths, and the marks of signs that stand for themselves."""
_FORMULA = re.compile(rb"<f[ >/]")
_SHEET = re.compile(r"xl/worksheets/[^/]+\.xml")
_TABLES = re.compile(r"xl/(worksheets/[^/]+|sharedStrings)\.xml", re.IGNORECASE)
FORMULA = "holds a formula that was never calculated"


def shown_sheets(path: Path) -> dict[str, bool]:
    """The sheets of a workbook that have cells, in their order → whether a spreadsheet shows them; InputError for a
    file that is no readable workbook."""
    with _workbook(path) as book:
        return {sheet.title: sheet.sheet_state == "visible" for sheet in book.worksheets}


def sheet_lines(path: Path, sheet: str) -> Iterator[Line]:
    """The rows of a sheet with the number that a spreadsheet shows beside each; cells as `cell_text` has them."""
    formulas = _has_formulas(path)
    with _workbook(path) as book:
        values = _rows(book[sheet])
        if not formulas:
            yield from _lines(path, values, repeat(()))
            return
        with _workbook(path, formulas=True) as written:
            yield from _lines(path, values, _rows(written[sheet]))


def _lines(path: Path, values: Iterator[Any], written: Iterator[Any]) -> Iterator[Line]:
    """written: the same rows with their formulas, which have no value where no program has calculated them."""
    number = looked_at = 0
    while True:
        with _readable(path):
            cells, formulas = next(values, None), next(written, ())
            if cells is None:
                return
            number, looked_at = number + 1, looked_at + len(cells)
            if number > MOST_ROWS or looked_at > MOST_CELLS:
                rule = f"has a sheet of more than {MOST_ROWS:,} rows or {MOST_CELLS:,} cells, blank ones among them"
                raise InputError(rule, file=path, hint=_AS_CSV)
            texts = [cell_text(cell) for cell in cells]
            for place, (cell, formula) in enumerate(zip(cells, formulas, strict=False)):
                if formula.data_type == "f" and cell.value is None:
                    texts[place] = UnreadableCell(FORMULA, _SAVE_ANEW)
        yield Line(number, texts)


def cell_text(cell: Any) -> Any:
    """A cell of openpyxl as text: numbers with 15 digits, as spreadsheets show them, with the zeros that its format
    puts before them; dates as 2024-05-03; '' for an empty one, and `UnreadableCell` for one that shows an error."""
    value = cell.value
    if value is None:
        return ""
    if cell.data_type == "e":
        return UnreadableCell(f"shows the error {value}", "mend it in the spreadsheet")
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if isinstance(value, int):
        return _with_zeros(value, cell.number_format)
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value)


def _with_zeros(value: int, number_format: str) -> str:
    """A whole number as a format of digits shows it, as in 0000000 or 000-0000; by any other format as it is."""
    form = _UNSEEN.sub("", number_format.split(";")[0])
    if value < 0 or not _ZEROS.fullmatch(form):
        return str(value)
    digits, shown = str(value).zfill(form.count("0")), ""
    for sign in reversed(form):
        shown = (digits[-1:] if sign in "0#?" else sign) + shown
        digits = digits[:-1] if sign in "0#?" else digits
    return digits + shown


def _rows(sheet: Any) -> Iterator[Any]:
    # What a sheet says of its own size may be wrong, and is not needed.
    sheet.reset_dimensions()
    return iter(sheet.iter_rows())


@contextmanager
def _workbook(path: Path, formulas: bool = False) -> Iterator[Any]:
    with _readable(path):
        _refuse_other_files(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            book = load_workbook(path, read_only=True, data_only=not formulas, keep_links=False)
    try:
        yield book
    finally:
        book.close()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """The library answers a broken workbook with any exception: all mean the same."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        message = " ".join(str(error).split())[:120] or type(error).__name__
        rule = f"is a damaged workbook: {message}"
        raise InputError(rule, file=path, hint=f"download it again, or {_SAVE_ANEW}") from error


def _refuse_other_files(path: Path) -> None:
    """InputError for what only bears the name of a workbook, or unpacks to more than memory should hold."""
    with path.open("rb") as file:
        head = file.read(4096)
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        raise InputError("is an empty file, no workbook", file=path)
    if head.startswith(_OLD_OFFICE):
        raise InputError(_old_office(path), file=path, hint=_SAVE_ANEW)
    if text.startswith((b"<html", b"<!doctype", b"<table", b"<?xml", b"<meta", b"<head")):
        raise InputError("is a web page or XML that is called a workbook", file=path, hint=_SAVE_ANEW)
    if not head.startswith(b"PK"):
        hint = "if it is text, call it .csv" if b"\0" not in head else _SAVE_ANEW
        raise InputError("is no Excel workbook", file=path, hint=hint)
    if not zipfile.is_zipfile(path):
        raise InputError("is cut off: the end of the workbook is missing", file=path, hint="download it again")
    _refuse_other_archives(path)


def _old_office(path: Path) -> str:
    if "EncryptedPackage".encode("utf-16-le") in path.read_bytes():
        return "is protected with a password"
    return "is a workbook of the old Excel format (.xls)"


def _refuse_other_archives(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
    names = {part.filename for part in parts}
    if "[Content_Types].xml" not in names:
        kind = "an OpenDocument file" if "content.xml" in names else "a zip archive without a workbook in it"
        raise InputError(f"is {kind}", file=path, hint=_SAVE_ANEW)
    if len(names) < len(parts):
        raise InputError("is a damaged workbook: it holds a part twice", file=path, hint=_SAVE_ANEW)
    tables = sum(part.file_size for part in parts if _TABLES.fullmatch(part.filename))
    # What hardly packs is a picture, whatever its name, and is never unpacked.
    packed = (part for part in parts if part.file_size > 3 * part.compress_size)
    others = sum(part.file_size for part in packed if not _TABLES.fullmatch(part.filename))
    of_size = max(LARGEST_ELSE, RATIO * path.stat().st_size)
    for unpacked, most in ((tables, LARGEST), (others, LARGEST_ELSE), (tables + others, of_size)):
        if unpacked > most:
            rule = f"unpacks to {unpacked / 1e6:,.0f} MB, and of such a file at most {most / 1e6:,.0f} are read"
            raise InputError(rule, file=path, hint=_AS_CSV)


def _has_formulas(path: Path) -> bool:
    """Whether any sheet has a formula: only then is it worth reading them beside their values."""
    with _readable(path), zipfile.ZipFile(path) as archive:
        names = (entry.filename for entry in archive.infolist())
        return any(_holds(archive, name) for name in names if _SHEET.fullmatch(name))


def _holds(archive: zipfile.ZipFile, name: str) -> bool:
    tail = b""
    with archive.open(name) as sheet:
        while block := sheet.read(1 << 20):
            if _FORMULA.search(tail + block):
                return True
            tail = block[-2:]
    return False
