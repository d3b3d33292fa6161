"""Reading a source file into a frame of strings, numbers and lists. Nothing is guessed and nothing is dropped."""

from __future__ import annotations

import csv
import json
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
    InputError names the file, the row (1 is the first below the header) and the rule.
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
        raise InputError(f"cannot be read: {error.strerror}", file=path) from error
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8: {error.reason} at byte {error.start}", file=path) from error


def _delimited(path: Path) -> pd.DataFrame:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
        try:
            header = next(rows, None)
            if not header:
                raise InputError("is empty; a header is needed", file=path)
            repeated = {name for name in header if header.count(name) > 1}
            if repeated:
                raise InputError(f"the header repeats {sorted(repeated)}", file=path)
            content = []
            for number, row in enumerate(rows, 1):
                if not row:
                    continue
                if len(row) != len(header):
                    raise InputError(f"has {len(row)} cells, the header has {len(header)}", file=path, row=number)
                content.append(row)
        except csv.Error as error:
            raise InputError(f"is not well-formed: {error}", file=path, row=rows.line_num) from error
    return pd.DataFrame(content, columns=header, dtype=object)


def _jsonl(path: Path) -> pd.DataFrame:
    records: list[dict[str, Any]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"is not JSON: {error.msg}", file=path, row=number) from error
        if not isinstance(record, dict):
            raise InputError("is not a JSON object", file=path, row=number)
        records.append(record)
    return pd.DataFrame(records, dtype=object)


def _parquet(path: Path) -> pd.DataFrame:
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise InputError(f"is not Parquet: {error}", file=path) from error
    return pd.DataFrame({name: pd.Series(table[name].to_pylist(), dtype=object) for name in table.column_names})
