"""Reading a source file into a frame of strings, numbers and lists. Nothing is guessed and nothing is dropped."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.contracts.errors import InputError

csv.field_size_limit(2**31 - 1)


def read(path: Path) -> pd.DataFrame:
    """The rows of a CSV, TSV, JSONL or Parquet file, chosen by its ending; all columns of dtype object.

    Text files are UTF-8 (a byte order mark is passed over). CSV cells are strings; an empty cell stays an empty string.
    The index counts rows from 0: records below the header, lines of a JSONL file; blank ones count and are left out.
    InputError names the file, the row (index + 1) and the rule.
    """
    readers = {".csv": _delimited, ".tsv": _delimited, ".jsonl": _jsonl, ".parquet": _parquet}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"'{path.suffix}' is not a known ending; use one of {', '.join(readers)}", file=path)
    if not path.is_file():
        raise InputError("no such file", file=path)
    try:
        return reader(path)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8: {error.reason} in line {_bad_line(path)}", file=path) from error


def _bad_line(path: Path) -> int:
    """Number of the first line that is not UTF-8; a decoder that reads in blocks knows only the place in its block."""
    content = path.read_bytes()
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return content.count(b"\n", 0, error.start) + 1
    raise ValueError(f"{path} is UTF-8")


def _delimited(path: Path) -> pd.DataFrame:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
        number = -1
        content: dict[int, list[str]] = {}
        try:
            header = next(rows, None)
            if not header:
                raise InputError("is empty; a header is needed", file=path)
            _refuse_repeated(header, path)
            for number, row in enumerate(rows):
                if not row:
                    continue
                if len(row) != len(header):
                    raise InputError(f"has {len(row)} cells, the header has {len(header)}", file=path, row=number + 1)
                content[number] = row
        except csv.Error as error:
            raise InputError(f"is not well-formed: {error}", file=path, row=number + 2) from error
    return pd.DataFrame(list(content.values()), columns=header, index=list(content), dtype=object)


def _jsonl(path: Path) -> pd.DataFrame:
    records: dict[int, dict[str, Any]] = {}
    # Not splitlines(): a JSON string may hold U+2028 and its like unescaped.
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n")):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"is not JSON: {getattr(error, 'msg', error)}", file=path, row=number + 1) from error
        if not isinstance(record, dict):
            raise InputError("is not a JSON object", file=path, row=number + 1)
        records[number] = record
    if not records:
        raise InputError("is empty", file=path)
    return pd.DataFrame(list(records.values()), index=list(records), dtype=object)


def _parquet(path: Path) -> pd.DataFrame:
    try:
        with pq.ParquetFile(path) as file:  # pq.read_table would take folders named a=b for columns
            table = file.read()
    except pa.ArrowException as error:
        raise InputError(f"is not Parquet: {error}", file=path) from error
    _refuse_repeated(table.column_names, path)
    return pd.DataFrame({name: pd.Series(table[name].to_pylist(), dtype=object) for name in table.column_names})


def _refuse_repeated(header: list[str], path: Path) -> None:
    repeated = sorted(name for name, count in Counter(header).items() if count > 1)
    if repeated:
        raise InputError(f"the header repeats {repeated}", file=path)
