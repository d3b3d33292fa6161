"""Sheets as people hand them in: delimited text or Excel, read row by row into texts, nothing guessed of their meaning.

sheet = open_sheet(Path("answers.xlsx"))
print(sheet.words)                   # "sheet 'Class 7b', not read: 'Notes'"
for row in sheet.rows():
    row.line, row.number, dict(zip(sheet.columns, row.cells))

The second half reads workbooks (.xlsx): the values of a sheet as texts, as the spreadsheet shows them.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from openpyxl import load_workbook

from rubricflow.tasks.core.contracts.errors import InputError, one_line, refuse
from rubricflow.tasks.core.contracts.settings.data import Source
from rubricflow.tasks.core.store.cells import UnreadableCell
from rubricflow.tasks.core.store.delimited import DELIMITERS, Line, delimited_lines, delimiter_of, encoding_of

TEXT = (".csv", ".tsv", ".txt")
WORKBOOK = (".xlsx", ".xlsm")
ENDINGS = TEXT + WORKBOOK
"""Files that are sheets."""
OLD = (".xls", ".ods", ".numbers")
"""Spreadsheets that are not read."""
LARGEST = 256 << 20
"""Bytes to which the tables of a workbook may unpack."""
LARGEST_ELSE = 16 << 20
"""Bytes to which the rest of its XML may, styles and the like: the library holds that as trees, ten times as large."""
RATIO = 50
"""How many times its own size a workbook of more than LARGEST_ELSE may unpack to."""
MOST_ROWS, MOST_CELLS = 1 << 20, 50_000_000
"""Of a sheet: the rows that Excel has; the cells that are looked at, blank ones among them."""
FORMULA = "holds a formula that was never calculated"
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_SAVE_ANEW = "open it in Excel or LibreOffice and save it as .xlsx"
_AS_CSV = "save the sheet as 'CSV UTF-8'"
_ZEROS = re.compile(r"[0#?]*0[ /-]*(?:[0 /-]*0)?")
"""A number's format that shows digits alone: zeros that are always there, and signs that part them."""
_UNSEEN = re.compile(r'\[[^\]]*\]|_.|\*.|["\\]')
"""Colours, languages and widths in a format, and the marks of signs that stand for themselves."""
_FORMULA = re.compile(rb"<f[ >/]")
_SHEET = re.compile(r"xl/worksheets/[^/]+\.xml")
_TABLES = re.compile(r"xl/(worksheets/[^/]+|sharedStrings)\.xml", re.IGNORECASE)


class SheetRow(NamedTuple):
    """A row of the data."""

    line: int
    """Where it begins: the line of a text file in an editor, the row of a workbook in a spreadsheet, from 1."""
    number: int
    """Its number among the rows below the header, from 1, blank ones counted, a text of several lines being one row."""
    cells: tuple[Any, ...]
    """Of every column its text, '' where it is empty; `UnreadableCell` where a spreadsheet shows an error."""


class SourceSheet(NamedTuple):
    """A sheet that can be read any number of times."""

    path: Path
    columns: tuple[str, ...]
    """The names of the header, without blanks around them; columns without a name are left out."""
    places: tuple[int, ...]
    """Their places in a row of the file, from 0."""
    header_line: int
    sheet: str | None
    """The sheet of a workbook that is read; None of a text file."""
    words: str
    """What the file was seen to be, in one line for people."""
    lines: Callable[[], Iterator[Line]]
    """All rows of the file as they stand, each time anew."""

    def rows(self, report: Callable[[InputError], None] = refuse) -> Iterator[SheetRow]:
        """The rows that are not blank, one at a time: however long the file, only one is in memory.

        report: what becomes of a row that has more or fewer cells than the header, which is passed over then.
        InputError for a file that cannot be read on: broken quotes, a damaged workbook.
        """
        width = self.places[-1] + 1
        of_workbook = self.sheet is not None
        below = (line for line in self.lines() if line.number > self.header_line)
        for number, line in enumerate(below, 1):
            cells = list(line.cells)
            while len(cells) > width and not _filled(cells[-1]):
                cells.pop()
            if not any(map(_filled, cells)):
                continue
            if of_workbook:
                cells += [""] * (width - len(cells))
            if len(cells) == width:
                yield SheetRow(line.number, number, tuple(cells[place] for place in self.places))
                continue
            rule = f"has {len(cells)} cells, the header has {width}"
            hint = "a text that holds the delimiter, a quotation mark or a line break stands in quotes"
            hint = "a column with cells needs a name in the header" if of_workbook else hint
            report(InputError(rule, file=self.path, line=line.number, row=number, hint=hint))


def open_source(path: Path, source: Source) -> SourceSheet:
    """A source's file, read with the source's settings; as `open_sheet`. A wide file's columns may share a name."""
    return open_sheet(path, source.encoding, source.sheet, repeats=bool(source.wide))


def open_sheet(path: Path, encoding: str | None = None, sheet: str | None = None, repeats: bool = False) -> SourceSheet:
    """A CSV, TSV or Excel file as a sheet with a header.

    encoding: of a text file without a byte order mark that is no UTF-8 (see `encoding_of`); sheet: of a workbook, the
    first that is not hidden where none is named. What parts the cells of a text file is seen in its header line. The
    header is the first row that is not blank; of Qualtrics, which writes three, the one that has the questions. All
    cells are texts: '001' stays '001', 'NA' stays 'NA', and a number of a workbook is what a spreadsheet shows of it.

    repeats: columns may share a name; all but the first then get their place in the file after it, see `told_apart`.

    InputError names the file and the rule: an ending that is none of ENDINGS, no such file or sheet, what is no
    workbook, no header, two columns of one name, an encoding that does not fit.
    """
    ending = path.suffix.lower()
    if ending in OLD:
        raise InputError(f"'{ending}' files are not read", file=path, hint=_SAVE_ANEW)
    if ending not in ENDINGS:
        raise InputError(f"'{path.suffix}' is not a known ending; use one of {', '.join(ENDINGS)}", file=path)
    if not path.is_file():
        raise InputError("no such file", file=path)
    try:
        if ending in WORKBOOK:
            name, words = _sheet_to_read(path, sheet)
            return _with_header(path, name, words, lambda: sheet_lines(path, name), repeats)
        codec, words = encoding_of(path, encoding)
        delimiter = delimiter_of(path, codec)
        words = f"{words}, cells parted by {DELIMITERS.get(delimiter, repr(delimiter))}"
        return _with_header(path, None, words, lambda: delimited_lines(path, codec, delimiter), repeats)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error


def _sheet_to_read(path: Path, named: str | None) -> tuple[str, str]:
    """(name, words) of the sheet of a workbook to read."""
    with _workbook(path) as book:
        shown = {sheet.title: sheet.sheet_state == "visible" for sheet in book.worksheets}
    if not shown:
        raise InputError("has no sheet with cells", file=path)
    listed = [f"'{name}'" if is_shown else f"'{name}' (hidden)" for name, is_shown in shown.items()]
    if named is not None and named not in shown:
        raise InputError(f"has no sheet '{named}'; there are {', '.join(listed)}", file=path, field="sheet")
    name = named or next((name for name, is_shown in shown.items() if is_shown), None)
    if name is None:
        rule, hint = f"has hidden sheets alone: {', '.join(listed)}", "show the one to read in the spreadsheet"
        raise InputError(rule, file=path, field="sheet", hint=f"{hint}, or name it in the study: 'sheet'")
    read = listed.pop(list(shown).index(name))
    return name, f"sheet {read}" + (f", not read: {', '.join(listed)}" if listed else "")


def _with_header(
    path: Path, sheet: str | None, words: str, lines: Callable[[], Iterator[Line]], repeats: bool
) -> SourceSheet:
    """The sheet below its header; InputError where it has none that could be one."""
    rows = (line for line in lines() if any(map(_filled, line.cells)))
    header = next(rows, None)
    if header is None:
        rule = f"sheet '{sheet}' is empty" if sheet else "is empty; a header is needed"
        raise InputError(rule, file=path)
    below = next(rows, None)
    third = next(rows, None) if below and len(below.cells) == len(header.cells) else None
    if below and third and any(str(cell).startswith('{"ImportId"') for cell in third.cells):
        # Qualtrics: names of its own, what was asked, and JSON.
        header, below = Line(third.number, below.cells), next(rows, None)
    names = [str(name).strip() for name in header.cells]
    names = told_apart(names) if repeats else names
    if any("\0" in name for name in names):
        raise InputError("has NUL characters in its header; is it UTF-16? Save it as UTF-8", file=path)
    places = tuple(place for place, name in enumerate(names) if name)
    columns = tuple(names[place] for place in places)
    repeated = sorted(name for name, count in Counter(columns).items() if count > 1)
    if repeated:
        rule = f"the header repeats {', '.join(map(repr, repeated))}"
        raise InputError(rule, file=path, line=header.number, hint="give each column a name of its own")
    filled = sum(map(_filled, below.cells)) if below else 0
    if filled >= 2 * len(columns):
        rule = f"columns named in the first row: {len(columns)}, cells in the row below it: {filled}"
        hint = (
            "is it a title, or are the names in two rows? The first row must be the names of the columns: delete what "
            "stands above them, and put into one cell what names a column in two"
        )
        raise InputError(rule, file=path, line=header.number, hint=hint)
    unnamed = sum(not name for name in names[: places[-1]])
    if unnamed:
        words = f"{words}, columns without a name, which are not read: {unnamed}"
    return SourceSheet(path, columns, places, header.number, sheet, words, lines)


def told_apart(header: Sequence[str]) -> list[str]:
    """Names of columns, each once: "1.0" in the sixth column, after another of that name, becomes "1.0 (column 6)".

    An empty name stays empty.
    """
    names = []
    for place, name in enumerate(header, 1):
        names.append(f"{name} (column {place})" if name and name in names else name)
    return names


def _filled(cell: Any) -> bool:
    return isinstance(cell, UnreadableCell) or bool(cell.strip())


def sheet_lines(path: Path, sheet: str) -> Iterator[Line]:
    """The rows of a sheet of a workbook with the number that a spreadsheet shows of each; cells as `cell_text` has
    them. InputError where it cannot be read."""
    with _workbook(path) as book:
        if not _has_formulas(path):
            yield from _lines(path, book[sheet], None)
            return
        with _workbook(path, formulas=True) as written:
            yield from _lines(path, book[sheet], written[sheet])


def _lines(path: Path, sheet: Any, written: Any) -> Iterator[Line]:
    """written: the same sheet with its formulas, which have no value where no program has calculated them."""
    sheet.reset_dimensions()  # a sheet's own size may be wrong, and is not needed
    values = iter(sheet.iter_rows())
    formulas: Iterator[Any] = repeat(())
    if written is not None:
        written.reset_dimensions()
        formulas = iter(written.iter_rows())
    number = looked_at = 0
    while True:
        with _readable(path):
            cells = next(values, None)
            formula_cells = next(formulas, ())
            if cells is None:
                return
            number, looked_at = number + 1, looked_at + len(cells)
            if number > MOST_ROWS or looked_at > MOST_CELLS:
                rule = f"has a sheet of more than {MOST_ROWS:,} rows or {MOST_CELLS:,} cells, blank ones among them"
                raise InputError(rule, file=path, hint=_AS_CSV)
            texts = [cell_text(cell) for cell in cells]
            for place, (cell, formula) in enumerate(zip(cells, formula_cells, strict=False)):
                if formula.data_type == "f" and cell.value is None:
                    texts[place] = UnreadableCell(FORMULA, _SAVE_ANEW)
        yield Line(number, texts)


def cell_text(cell: Any) -> Any:
    """A cell of openpyxl as text: numbers with 15 digits, as spreadsheets show them, with the zeros that its format
    puts before them, shares as percentages where it shows them so; dates as 2024-05-03; '' for an empty one, and
    `UnreadableCell` for one that shows an error."""
    value = cell.value
    if value is None:
        return ""
    if cell.data_type == "e":
        return UnreadableCell(f"shows the error {value}", "mend it in the spreadsheet")
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float) and cell.number_format.endswith("%"):
        return f"{value * 100:.15g}%"
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
    digits = str(value).zfill(form.count("0"))
    shown = ""
    for sign in reversed(form):
        shown = (digits[-1:] if sign in "0#?" else sign) + shown
        digits = digits[:-1] if sign in "0#?" else digits
    return digits + shown


@contextmanager
def _workbook(path: Path, formulas: bool = False) -> Iterator[Any]:
    with _readable(path):
        _refuse_other_files(path)
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
        rule = f"is a damaged workbook: {one_line(error, 120)}"
        raise InputError(rule, file=path, hint=f"download it again, or {_SAVE_ANEW}") from error


def _refuse_other_files(path: Path) -> None:
    """InputError for what only bears the name of a workbook, or unpacks to more than memory should hold."""
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(_OLD_OFFICE):
        raise InputError("is protected with a password, or of the old Excel format (.xls)", file=path, hint=_SAVE_ANEW)
    if not head.startswith(b"PK"):
        hint = f"if it is text, call it .csv; a web page: {_SAVE_ANEW}" if b"\0" not in head else _SAVE_ANEW
        raise InputError("is no Excel workbook", file=path, hint=hint)
    if not zipfile.is_zipfile(path):
        raise InputError("is cut off: the end of the workbook is missing", file=path, hint="download it again")
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
    names = {part.filename for part in parts}
    if "[Content_Types].xml" not in names or len(names) < len(parts):
        raise InputError("is no Excel workbook, or a damaged one", file=path, hint=_SAVE_ANEW)
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
    """Whether any sheet has a formula: only then is it worth reading them with their values."""
    with _readable(path), zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if _SHEET.fullmatch(entry.filename):
                tail = b""
                with archive.open(entry) as sheet:
                    while block := sheet.read(1 << 20):
                        if _FORMULA.search(tail + block):
                            return True
                        tail = block[-2:]
    return False
