"""Reading a source file into frames of strings, numbers and lists. Nothing is guessed and nothing is dropped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rubricflow.tasks.core.contracts.errors import InputError, refuse
from rubricflow.tasks.core.store.essays import COLUMNS, essay_rows, is_essays
from rubricflow.tasks.core.store.faults import Report
from rubricflow.tasks.core.store.sheets import ENDINGS, OLD, open_sheet

ROWS = 10_000
"""Rows of a chunk at most."""
CHARACTERS = 8_000_000
"""Characters after which a chunk ends early, so that long texts need no more memory than short ones."""
_BATCH = 1_000
Record = tuple[int, int, Sequence[Any]]
"""Number of the row from 0, its length in characters (roughly), and its cells."""


def read(path: Path) -> pd.DataFrame:
    """All rows of a source file in one frame, see `chunks`."""
    return pd.concat(chunks(path))


def chunks(
    path: Path, encoding: str | None = None, sheet: str | None = None, report: Report = refuse, repeats: bool = False
) -> Iterator[pd.DataFrame]:
    """The rows of a CSV, TSV, Excel, JSONL, JSON or Parquet file, chosen by its ending, or of a folder of essays, in
    frames of at most ROWS rows.

    All columns are of dtype object, and every frame has all columns of the file; a file without rows is one empty
    frame. Sheets (CSV, TSV, Excel) are read as `open_sheet` says: their cells are strings, an empty cell is an empty
    string. JSON is UTF-8 (a byte order mark is passed over), one list of objects, or one object of objects, which is
    one row, and is read whole. A folder of essays is a row a student, see `essay_rows`. The index counts rows from 0:
    records below the header, lines of a JSONL file, objects of a JSON one; blank lines count and are left out. report:
    what becomes of a row of a sheet that has too few or too many cells. InputError names the file, the row (index + 1)
    and the rule.

    repeats: columns of a sheet may share a name, see `open_sheet`.
    """
    readers = {".jsonl": _jsonl, ".json": _json, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    reader = _essays if is_essays(path) else reader
    if reader is None and path.suffix.lower() not in (*ENDINGS, *OLD):
        endings = ", ".join((*ENDINGS, *readers, ".zip"))
        rule = f"'{path.suffix}' is not a known ending; use one of {endings}, or a folder of essays"
        raise InputError(rule, file=path)
    if not (path.is_file() or reader is _essays):
        raise InputError("no such file", file=path)
    try:
        records = reader(path) if reader else _sheet(path, encoding, sheet, report, repeats)
        _, _, header = next(records)
        repeated = sorted(name for name, count in Counter(header).items() if count > 1)
        if repeated:
            raise InputError(f"the header repeats {repeated}", file=path)
        yield from _frames(header, records)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8: {error.reason}{_bad_line(path)}", file=path) from error


def _frames(header: Sequence[str], records: Iterable[Record]) -> Iterator[pd.DataFrame]:
    numbers: list[int] = []
    rows: list[Sequence[Any]] = []
    length = frame_count = 0
    for number, characters, cells in records:
        numbers.append(number)
        rows.append(cells)
        length += characters
        if len(rows) == ROWS or length >= CHARACTERS:
            yield _frame(header, numbers, rows)
            numbers, rows, length, frame_count = [], [], 0, frame_count + 1
    if rows or not frame_count:
        yield _frame(header, numbers, rows)


def _frame(header: Sequence[str], numbers: list[int], rows: list[Sequence[Any]]) -> pd.DataFrame:
    columns = zip(*rows, strict=True) if rows else [()] * len(header)
    cells = {name: list(column) for name, column in zip(header, columns, strict=True)}
    return pd.DataFrame(cells, index=pd.Index(numbers, dtype="int64"), dtype=object)


def _bad_line(path: Path) -> str:
    """Where the first line is that is not UTF-8; a decoder that reads in blocks knows only the place in its block."""
    if path.suffix.lower() == ".parquet":
        return ""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f" in line {number}"
    raise ValueError(f"{path} is UTF-8")


def _sheet(path: Path, encoding: str | None, name: str | None, report: Report, repeats: bool) -> Iterator[Record]:
    """The header as row -1, then the rows."""
    sheet = open_sheet(path, encoding, name, repeats)
    yield -1, 0, sheet.columns
    for row in sheet.rows(report):
        yield row.number - 1, sum(map(len, row.cells)), row.cells


def _jsonl(path: Path) -> Iterator[Record]:
    """The keys of all records as row -1, then the records."""
    keys = _keys(record for _, _, record in _objects(path))
    if not keys:
        raise InputError("is empty", file=path)
    yield -1, 0, keys
    for number, characters, record in _objects(path):
        yield number, characters, [record.get(key) for key in keys]


def _objects(path: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    # Only \n ends a line: a JSON string may hold U+2028 and its like unescaped.
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file):
            if not line.strip():
                continue
            try:
                record = json.loads(line, object_pairs_hook=_once, parse_constant=_no_number)
            except (ValueError, RecursionError) as error:
                raise InputError(f"is not JSON: {getattr(error, 'msg', error)}", file=path, row=number + 1) from error
            if not isinstance(record, dict):
                raise InputError("is not a JSON object", file=path, row=number + 1)
            yield number, len(line), record


def _json(path: Path) -> Iterator[Record]:
    """The keys of all objects of a list as row -1, then the objects."""
    try:
        objects = json.loads(path.read_text(encoding="utf-8-sig"), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise
        raise InputError(f"is not JSON: {getattr(error, 'msg', error)}", file=path) from error
    if isinstance(objects, dict) and all(isinstance(value, dict) for value in objects.values()):
        objects = [objects]
    if not isinstance(objects, list) or not all(isinstance(record, dict) for record in objects):
        raise InputError("is not a list of JSON objects", file=path)
    keys = _keys(objects)
    if not keys:
        raise InputError("is empty", file=path)
    yield -1, 0, keys
    for number, record in enumerate(objects):
        cells = [record.get(key) for key in keys]
        yield number, sum(len(cell) for cell in cells if isinstance(cell, str)), cells


def _essays(path: Path) -> Iterator[Record]:
    """The columns of a folder of essays as row -1, then a row a student."""
    yield -1, 0, COLUMNS
    for number, row in enumerate(essay_rows(path)):
        yield number, len(row[2].text), row


def _keys(records: Iterable[dict[str, Any]]) -> list[str]:
    """The keys of all records, each once, in the order in which they first occur."""
    return list(dict.fromkeys(chain.from_iterable(records)))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        repeated = next(key for key, count in counts.items() if count > 1)
        raise ValueError(f"the key '{repeated}' is given twice")
    return values


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _parquet(path: Path) -> Iterator[Record]:
    """The columns' names as row -1, then the rows."""
    read = 0
    try:
        with pq.ParquetFile(path) as file:  # pq.read_table would take folders named a=b for columns
            yield -1, 0, file.schema_arrow.names
            for batch in file.iter_batches(_BATCH):
                columns = [column.to_pylist() for column in batch.columns]
                for number, row in enumerate(zip(*columns, strict=True), read):
                    yield number, batch.nbytes // batch.num_rows, row
                read += batch.num_rows
    except pa.ArrowException as error:
        raise InputError(f"is not Parquet: {error}", file=path) from error
