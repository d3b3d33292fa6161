"""Files as documents, whatever they are called; which form a document has; and what stands in it at a path."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject
from rubricflow.tasks.core.store.cells import missing
from rubricflow.tasks.core.store.delimited import encoding_of
from rubricflow.tasks.core.store.sheets import open_sheet
from rubricflow.tasks.grading.logs.forms import PLAIN, LogForm, forms

LARGEST = 2 << 30
"""Bytes to which a compressed log may unpack."""
TABLE = "table"
"""The form of a plain table."""
STUDY = ".calibration"
"""What the folder of a calibration's study ends with."""
_FIRST = 50
"""Cases by which a form is told."""
_ZSTD = 93


def documents(files: Sequence[Path]) -> tuple[list[tuple[Path, Any, LogForm]], list[str]]:
    """Every log among the files with its form, and the files of folders that are passed over: what no form tells, the
    studies of earlier calibrations, and plain tables next to a tool's own logs. InputError for a file given by name
    that is no log."""
    found = []
    passed = []
    for given in files:
        if not given.exists():
            raise InputError("no such file", file=given)
        if not given.is_dir():
            found.append((given, *_told(document_of(given), given)))
            continue
        inside = []
        for path in sorted(path for path in given.rglob("*") if path.is_file()):
            if any(part.endswith(STUDY) for part in path.relative_to(given).parts[:-1]):
                continue
            try:
                inside.append((path, *_told(document_of(path), path)))
            except (InputError, UnicodeDecodeError):
                passed.append(str(path.relative_to(given)))
        is_tool = any(form.tool != TABLE for _, _, form in inside)
        passed += [str(path.relative_to(given)) for path, _, form in inside if is_tool and form.tool == TABLE]
        found += [one for one in inside if not (is_tool and one[2].tool == TABLE)]
    return found, passed


def document_of(path: Path) -> Any:
    """What a file holds, by its first bytes: JSON, JSON lines, Parquet, an archive of inspect_ai or a sheet; a list of
    rows or an object."""
    with path.open("rb") as file:
        start = file.read(4096)
    if start.startswith(b"PAR1"):
        return pq.ParquetFile(path).read().to_pylist()
    if start.startswith(b"PK\x03\x04") and "header.json" in zipfile.ZipFile(path).namelist():
        return _archive(path)
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] in (b"{", b"["):
        return _json(path)
    if start.startswith(b"PK\x03\x04") and path.suffix.lower() not in (".xlsx", ".xlsm"):
        raise InputError("an archive without header.json is no log that is known", file=path)
    sheet = open_sheet(path)
    return [dict(zip(sheet.columns, row.cells, strict=True)) for row in sheet.rows()]


def folded_names(rows: Iterable[JsonObject]) -> dict[str, str]:
    """The names of columns in lower case without blanks → as they are written."""
    return {str(name).strip().casefold().replace(" ", "_"): name for row in rows for name in row}


def named_columns(rows: Iterable[JsonObject], likely: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Column → its name in a table, the first of its likely ones; those that the table lacks are left out."""
    names = folded_names(rows)
    first = {column: next((name for name in of if name in names), None) for column, of in likely.items()}
    return {column: names[name] for column, name in first.items() if name is not None}


def rows_of(path: Path) -> list[JsonDict]:
    """The rows of a table; InputError for a file that is none."""
    if not path.is_file():
        raise InputError("no such file", file=path)
    rows = document_of(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError("is no table of rows with names", file=path)
    return rows


def _json(path: Path) -> Any:
    """One JSON value, or one in every line."""
    text = path.read_text(encoding=encoding_of(path, None)[0])
    try:
        document = json.loads(text)
    except ValueError as error:
        whole = error
    else:
        if isinstance(document, dict) and document.keys() >= {"columns", "data"}:  # a table as pandas splits it
            return [dict(zip(document["columns"], row, strict=True)) for row in document["data"]]
        return document
    records = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                records.append(json.loads(line))
            except ValueError as error:
                problem = whole if not records else error
                raise InputError(f"is not JSON: {problem}", file=path, row=number) from error
    return records


def _archive(path: Path) -> JsonDict:
    """inspect_ai's archive: its header with its samples. Members may be packed by zstd, which Python's own reader of
    archives does not know yet."""
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        if sum(member.file_size for member in archive.infolist()) > LARGEST:
            raise InputError(f"unpacks to more than {LARGEST >> 30} GiB", file=path)

        def member(info: zipfile.ZipInfo) -> Any:
            if info.compress_type != _ZSTD:
                return json.loads(archive.read(info))
            file.seek(info.header_offset)
            head = file.read(30)
            file.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), io.SEEK_CUR)
            packed = pa.BufferReader(file.read(info.compress_size))
            return json.loads(pa.CompressedInputStream(packed, "zstd").read(info.file_size))

        infos = archive.infolist()
        header = member(next(info for info in infos if info.filename == "header.json"))
        header["samples"] = [member(info) for info in infos if re.fullmatch(r"samples/[^/]+\.json", info.filename)]
        return dict(header)


def _told(document: Any, path: Path) -> tuple[Any, LogForm]:
    """A document and its form: the first that tells it, or a plain table where its columns say enough. One object that
    no form tells is a list of one; InputError where that is none either."""
    lists = [document] if isinstance(document, list) else [document, [document]]
    for given in lists:
        for form in forms():
            if all(_stands(paths, form, given) for paths in form.told_by):
                return given, form
    if document in ({}, []) or not all(isinstance(row, dict) for row in lists[-1]):
        raise InputError("no form that is known: it is no table of objects", file=path)
    return lists[-1], _plain(document, lists[-1], path)


def _plain(document: Any, rows: list[JsonDict], path: Path) -> LogForm:
    """The form of a plain table; InputError where no column of verdicts is among its own."""
    names = folded_names(rows[:_FIRST])
    columns = {
        column: tuple(f"case.{names[name]}" for name in likely if name in names)
        for column, likely in PLAIN.items()
        if not names.keys().isdisjoint(likely)
    }
    if not columns.keys() & {"score", "verdict"}:
        known = ", ".join(dict.fromkeys(form.tool for form in forms()))
        seen = f"{'an object' if isinstance(document, dict) else 'a table'} with {', '.join([*names.values()][:12])}"
        hint = f"known are {known}, and tables with a column {', '.join((*PLAIN['verdict'][:4], *PLAIN['score'][:1]))}"
        raise InputError(f"no form that is known: it is {seen}", file=path, hint=hint)
    judge = {name.removeprefix("judge "): columns.pop(name) for name in [*columns] if name.startswith("judge ")}
    return LogForm(tool=TABLE, told_by=(), columns=columns, judge=judge)


def _stands(path: str, form: LogForm, document: Any) -> bool:
    """Whether a path, or one of its alternatives, holds something in the document or in one of its first cases."""
    named = next((found for cases in form.cases if isinstance(found := at(cases, {"log": document}), list)), [])
    cases = [case for case in named[:_FIRST] if isinstance(case, dict)]
    if path.startswith("like:"):
        return any(re.fullmatch(path.removeprefix("like:"), str(name)) for case in cases for name in case)
    alternatives = path.split("|")
    roots = [{"log": document, "case": case} for case in cases] or [{"log": document}]
    return any(at(one, root) is not None for one in alternatives for root in roots)


def cases_of(form: LogForm, document: Any) -> list[Any]:
    """The list of a prepared document's cases."""
    paths = (form.read_cases,) if form.read_cases else form.cases
    return next((found for path in paths if isinstance(found := at(path, {"log": document}), list)), [])


def at(path: str, roots: JsonObject) -> Any:
    """What stands at a path, None for nothing. Keys may hold dots themselves: the longest key that is there counts."""
    root, _, rest = path.partition(".")
    node = roots.get(root)
    names = rest.split(".") if rest else []
    while names:
        if isinstance(node, list):
            node, names = node[int(names[0])] if names[0].isdecimal() and int(names[0]) < len(node) else None, names[1:]
        elif isinstance(node, dict):
            length = next((n for n in range(len(names), 0, -1) if ".".join(names[:n]) in node), 0)
            node, names = (node[".".join(names[:length])], names[length:]) if length else (None, [])
        else:
            return None
    return node


def first_of(paths: Iterable[str], roots: JsonObject) -> Any:
    """The first of several paths that holds something."""
    return next((value for path in paths if not is_blank(value := at(path, roots))), None)


def is_blank(value: Any) -> bool:
    return missing(value) or value in ("", [], {})
