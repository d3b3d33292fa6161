"""Reading a source file into frames of strings, numbers and lists (nothing is guessed and nothing is dropped), and the
errors of the input gathered, so that a person mends them in one go."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError, InputErrors, refuse
from rubricflow.tasks.core.contracts.settings.data import Source
from rubricflow.tasks.core.store.cells import EssayCell, no_number
from rubricflow.tasks.core.store.delimited import first_undecodable
from rubricflow.tasks.core.store.essays import COLUMNS, essay_rows, is_essays
from rubricflow.tasks.core.store.sheets import ENDINGS, OLD, SheetRow, open_sheet

Report = Callable[[InputError], None]
"""What becomes of an error: `refuse` raises it, `Faults.add` gathers it."""
ROWS = 10_000
"""Rows of a chunk at most."""
CHARACTERS = 8_000_000
"""Characters after which a chunk ends early, so that long texts need no more memory than short ones."""
_BATCH = 1_000
Opened = tuple[Sequence[str], Iterator[SheetRow]]
"""The header of a file and its rows."""


def read(path: Path) -> pd.DataFrame:
    """All rows of a source file in one frame, see `chunks`."""
    return pd.concat(chunks(path))


def chunks(
    path: Path, encoding: str | None = None, sheet: str | None = None, report: Report = refuse, repeats: bool = False
) -> Iterator[pd.DataFrame]:
    """The rows of a CSV, TSV, Excel, JSONL, JSON or Parquet file, chosen by its ending, or of a folder of essays, in
    frames of at most ROWS rows.

    All columns are of dtype object, and every frame has all columns of the file; a file without rows is one empty
    frame. Sheets (CSV, TSV, Excel) are read as `open_sheet` does: their cells are strings, an empty cell is an empty
    string. JSON is UTF-8 (a byte order mark is passed over), one list of objects, or one object of objects, which is
    one row, and is read whole. A folder of essays is a row a student, see `essay_rows`. The index counts rows from 0:
    records below the header, lines of a JSONL file, objects of a JSON one; blank lines count and are left out. report:
    what becomes of a row of a sheet that has too few or too many cells. InputError names the file, the row (index + 1)
    and the rule.

    repeats: columns of a sheet may share a name, see `open_sheet`.
    """
    try:
        header, records = _opened(path, encoding, sheet, report, repeats)
        repeated = sorted(name for name, count in Counter(header).items() if count > 1)
        if repeated:
            raise InputError(f"the header repeats {repeated}", file=path)
        rows, length, is_first = list[SheetRow](), 0, True
        for row in records:
            rows.append(row)
            length += sum(len(str(cell)) for cell in row.cells if isinstance(cell, str | EssayCell))
            if len(rows) == ROWS or length >= CHARACTERS:
                yield _frame(header, rows)
                rows, length, is_first = [], 0, False
        if rows or is_first:
            yield _frame(header, rows)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"is not UTF-8: {error.reason} in line {first_undecodable(path, 'utf-8')}", file=path
        ) from error


def _opened(path: Path, encoding: str | None, sheet: str | None, report: Report, repeats: bool) -> Opened:
    ending = path.suffix.lower()
    if is_essays(path):
        return COLUMNS, (SheetRow(number, number, row) for number, row in enumerate(essay_rows(path), 1))
    if ending in (*ENDINGS, *OLD):
        opened = open_sheet(path, encoding, sheet, repeats)
        return opened.columns, opened.rows(report)
    if ending not in _READERS:
        endings = ", ".join((*ENDINGS, *_READERS, ".zip"))
        rule = f"'{path.suffix}' is not a known ending; use one of {endings}, or a folder of essays"
        raise InputError(rule, file=path)
    if not path.is_file():
        raise InputError("no such file", file=path)
    return _READERS[ending](path)


def _frame(header: Sequence[str], rows: Sequence[SheetRow]) -> pd.DataFrame:
    columns = zip(*(row.cells for row in rows), strict=True) if rows else [()] * len(header)
    cells = {name: list(column) for name, column in zip(header, columns, strict=True)}
    return pd.DataFrame(cells, index=pd.Index([row.number - 1 for row in rows], dtype="int64"), dtype=object)


def _jsonl(path: Path) -> Opened:
    """The keys of all records are the header."""
    keys = _keys(path, (record for _, record in _lines(path)))
    return keys, (SheetRow(number, number, tuple(map(record.get, keys))) for number, record in _lines(path))


def _lines(path: Path) -> Iterator[tuple[int, Record]]:
    # Only \n ends a line: a JSON string may hold U+2028 and its like unescaped.
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                record = _parsed(line, path, number)
                if not isinstance(record, dict):
                    raise InputError("is not a JSON object", file=path, row=number)
                yield number, record


def _json(path: Path) -> Opened:
    """The keys of all objects of a list are the header."""
    objects = _parsed(path.read_text(encoding="utf-8-sig"), path)
    if isinstance(objects, dict) and all(isinstance(value, dict) for value in objects.values()):
        objects = [objects]
    if not isinstance(objects, list) or not all(isinstance(record, dict) for record in objects):
        raise InputError("is not a list of JSON objects", file=path)
    keys = _keys(path, objects)
    return keys, (SheetRow(number, number, tuple(map(record.get, keys))) for number, record in enumerate(objects, 1))


def _keys(path: Path, records: Iterable[Record]) -> list[str]:
    """The keys of all records, each once, in the order in which they first occur."""
    keys = list(dict.fromkeys(chain.from_iterable(records)))
    if not keys:
        raise InputError("is empty", file=path)
    return keys


def _parsed(text: str, path: Path, row: int | None = None) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {getattr(error, 'msg', error)}", file=path, row=row) from error


def _once(pairs: list[tuple[str, Any]]) -> Record:
    values = dict(pairs)
    if len(values) < len(pairs):
        repeated, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key '{repeated}' is given twice")
    return values


def _parquet(path: Path) -> Opened:
    with _refusing_others(path), pq.ParquetFile(path) as file:
        header = file.schema_arrow.names

    def rows() -> Iterator[SheetRow]:
        read = 1
        # pq.read_table would take folders named a=b for columns
        with _refusing_others(path), pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH):
                columns = [column.to_pylist() for column in batch.columns]
                for number, cells in enumerate(zip(*columns, strict=True), read):
                    yield SheetRow(number, number, cells)
                read += batch.num_rows

    return header, rows()


@contextmanager
def _refusing_others(path: Path) -> Iterator[None]:
    try:
        yield
    except pa.ArrowException as error:
        raise InputError(f"is not Parquet: {error}", file=path) from error


_READERS: dict[str, Callable[[Path], Opened]] = {".jsonl": _jsonl, ".json": _json, ".parquet": _parquet}

SHOWN = 20
"""Errors that are shown; of the others people see the number."""


class Faults:
    """The first errors, and how many there are. Of the errors about one cell the first counts: the others follow."""

    def __init__(self) -> None:
        self.first: list[InputError] = []
        self.count = 0
        self.lost_rows = False
        """Whether rows are missing, so that what names them may not be to blame."""
        self._cells: set[tuple[object, int | None, str | None, str]] = set()

    def add(self, error: InputError) -> None:
        cell = (error.file, error.row, error.field, "" if error.row is not None and error.field else error.rule)
        if cell in self._cells:
            return
        self._cells.add(cell)
        self.lost_rows |= error.row is None or error.field is None
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(error)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """What is raised in here is gathered, and ends this block alone."""
        try:
            yield
        except InputErrors as several:
            for error in several.errors:
                self.add(error)
        except InputError as error:
            self.add(error)

    def locate(self, file: str, path: Path | None, lines_of: Callable[[set[int]], dict[int, int]]) -> None:
        """Give the errors about a file's rows the file's own name and the lines on which they begin, in the order of
        the lines. path: by which a reader of the file calls it; lines_of: rows → the line of each."""
        mine = [error for error in self.first if error.file in (file, path) and (error.row or error.line)]
        rows = {error.row for error in mine if error.row and error.line is None}
        lines = lines_of(rows) if rows else {}
        placed = [error.placed(file, error.line or lines.get(error.row or 0)) for error in mine]
        placed.sort(key=lambda error: error.line or error.row or 0)
        self.first = [error for error in self.first if error not in mine] + placed

    def refuse(self) -> None:
        """InputError for a single error, InputErrors for several, nothing where there is none."""
        if self.count == 1:
            raise self.first[0]
        if self.first:
            raise InputErrors(self.first, self.count)


def row_lines(path: Path, rows: set[int], source: Source) -> dict[int, int]:
    """Row of a source's file, from 1 → the line on which it begins; empty for files that have no lines, or none whose
    rows can be read."""
    if path.suffix.lower() == ".jsonl":
        return {row: row for row in rows}
    lines = {}
    if path.suffix.lower() in ENDINGS:
        with suppress(InputError):  # it is among the errors already
            _, records = _opened(path, source.encoding, source.sheet, lambda error: None, bool(source.wide))
            lines = {row.number: row.line for row in records if row.number in rows}
    return lines
