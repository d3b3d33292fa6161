"""Sheets as people hand them in: delimited text or Excel, read row by row into texts, nothing guessed of their meaning.

sheet = open_sheet(Path("answers.xlsx"))
print(sheet.format.words)            # "sheet 'Class 7b', not read: 'Notes'"
for row in sheet.rows():
    row.line, row.number, dict(zip(sheet.columns, row.cells))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.errors import InputError, refuse
from rubricflow.tasks.core.contracts.settings.study import Source
from rubricflow.tasks.core.store.cells import UnreadableCell
from rubricflow.tasks.core.store.delimited import DELIMITERS, Line, delimited_lines, delimiter_of
from rubricflow.tasks.core.store.encodings import encoding_of
from rubricflow.tasks.core.store.workbook import sheet_lines, shown_sheets

TEXT = (".csv", ".tsv", ".txt")
WORKBOOK = (".xlsx", ".xlsm")
ENDINGS = TEXT + WORKBOOK
"""Files that are sheets."""
OLD = (".xls", ".ods", ".numbers")
"""Spreadsheets that are not read."""


class SheetFormat(NamedTuple):
    """What a file was seen to be."""

    encoding: str | None
    """Python's name of a text file's encoding; None of a workbook."""
    delimiter: str | None
    """What parts the cells of a text file; None of a workbook."""
    sheet: str | None
    """The sheet of a workbook that is read; None of a text file."""
    words: str
    """All that in one line for people."""


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
    format: SheetFormat
    lines: Callable[[], Iterator[Line]]
    """All rows of the file as they stand, each time anew."""

    def rows(self, report: Callable[[InputError], None] = refuse) -> Iterator[SheetRow]:
        """The rows that are not blank, one at a time: however long the file, only one is in memory.

        report: what becomes of a row that has more or fewer cells than the header, which is passed over then; it is
        raised where nothing else is said. InputError for a file that cannot be read on: broken quotes, a damaged
        workbook.
        """
        width = self.places[-1] + 1
        below = (line for line in self.lines() if line.number > self.header_line)
        for number, line in enumerate(below, 1):
            cells = _without_blank_end(line.cells, width)
            if not any(map(_filled, cells)):
                continue
            if self.format.sheet is not None:
                cells = [*cells, *[""] * (width - len(cells))]
            if len(cells) != width:
                report(self._odd_row(line, number, len(cells), width))
                continue
            yield SheetRow(line.number, number, tuple(cells[place] for place in self.places))

    def _odd_row(self, line: Line, number: int, count: int, width: int) -> InputError:
        rule = f"has {count} cells, the header has {width}"
        hint = "a text that holds the delimiter, a quotation mark or a line break stands in quotes"
        if self.format.sheet is not None:
            hint = "a column with cells needs a name in the header"
        return InputError(rule, file=self.path, line=line.number, row=number, hint=hint)


def open_sheet(path: Path, encoding: str | None = None, sheet: str | None = None, repeats: bool = False) -> SourceSheet:
    """A CSV, TSV or Excel file as a sheet with a header.

    encoding: of a text file, where it says none by a byte order mark and is no UTF-8 (see `encoding_of`); sheet: of a
    workbook, the first that is not hidden where none is named. What parts the cells of a text file is seen in its
    header line. The header is the first row that is not blank. All cells are texts: '001' stays '001', 'NA' stays 'NA',
    and a number of a workbook is what a spreadsheet shows of it.

    repeats: columns may share a name; all but the first then get their place in the file after it, see `told_apart`.

    InputError names the file and the rule: an ending that is none of ENDINGS, no such file or sheet, what is no
    workbook, no header, two columns of one name, an encoding that does not fit.
    """
    ending = path.suffix.lower()
    if ending in OLD:
        hint = "open it in Excel or LibreOffice and save it as .xlsx"
        raise InputError(f"'{ending}' files are not read", file=path, hint=hint)
    if ending not in ENDINGS:
        raise InputError(f"'{path.suffix}' is not a known ending; use one of {', '.join(ENDINGS)}", file=path)
    if not path.is_file():
        raise InputError("no such file", file=path)
    try:
        return _workbook(path, sheet, repeats) if ending in WORKBOOK else _text(path, encoding, repeats)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error


def open_source(path: Path, source: Source) -> SourceSheet:
    """A source's file, read as the source says; as `open_sheet`. A wide file's columns may share a name."""
    return open_sheet(path, source.encoding, source.sheet, repeats=bool(source.wide))


def _text(path: Path, named: str | None, repeats: bool) -> SourceSheet:
    encoding = encoding_of(path, named)
    delimiter = delimiter_of(path, encoding.codec)
    parted = f"cells parted by {DELIMITERS.get(delimiter, repr(delimiter))}"
    file_format = SheetFormat(encoding.codec, delimiter, None, f"{encoding.words}, {parted}")
    return _with_header(path, file_format, lambda: delimited_lines(path, encoding.codec, delimiter), repeats)


def _workbook(path: Path, named: str | None, repeats: bool) -> SourceSheet:
    shown = shown_sheets(path)
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
    file_format = SheetFormat(
        None, None, name, f"sheet {read}" + (f", not read: {', '.join(listed)}" if listed else "")
    )
    return _with_header(path, file_format, lambda: sheet_lines(path, name), repeats)


def _with_header(
    path: Path, file_format: SheetFormat, lines: Callable[[], Iterator[Line]], repeats: bool
) -> SourceSheet:
    """The sheet below its header; InputError where it has none that could be one."""
    rows = (line for line in lines() if any(map(_filled, line.cells)))
    header = next(rows, None)
    if header is None:
        raise InputError(_empty(file_format), file=path)
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
    _refuse_title(path, header, len(columns), next(rows, None))
    unnamed = sum(not name for name in names[: places[-1]])
    if unnamed:
        plural = "1 column without a name" if unnamed == 1 else f"{unnamed} columns without a name"
        file_format = file_format._replace(words=f"{file_format.words}, {plural} not read")
    return SourceSheet(path, columns, places, header.number, file_format, lines)


def told_apart(header: Sequence[str]) -> list[str]:
    """Names of columns, each once: "1.0" in the sixth column, after another of that name, becomes "1.0 (column 6)".

    An empty name stays empty.
    """
    names: list[str] = []
    for place, name in enumerate(header, 1):
        is_repeated = bool(name) and name in names
        names.append(f"{name} (column {place})" if is_repeated else name)
    return names


def _refuse_title(path: Path, header: Line, names: int, below: Line | None) -> None:
    """InputError where the first row is no header but a title above it."""
    filled = sum(map(_filled, below.cells)) if below else 0
    if filled >= 2 * names:
        rule = f"the first row names {names} column{'s' * (names > 1)}, and the row below it has {filled} cells"
        hint = "is it a title? The first row must be the names of the columns: delete what stands above them"
        raise InputError(rule, file=path, line=header.number, hint=hint)


def _empty(file_format: SheetFormat) -> str:
    return "is empty; a header is needed" if file_format.sheet is None else f"sheet '{file_format.sheet}' is empty"


def _filled(cell: Any) -> bool:
    return isinstance(cell, UnreadableCell) or bool(cell.strip())


def _without_blank_end(cells: Sequence[Any], width: int) -> list[Any]:
    """A row without blank cells beyond the header."""
    end = len(cells)
    while end > width and not _filled(cells[end - 1]):
        end -= 1
    return list(islice(cells, end))
