"""Delimited text (CSV and its like): rows with the line on which each begins."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts.errors import InputError

DELIMITERS: dict[str, str] = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""What may part the cells of a row, with its name."""
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_DECLARED = re.compile(r"sep=(.)\s*", re.IGNORECASE)
"""A first line by which Excel is told the delimiter."""
_HEADER = 1 << 16
"""Characters in which the header ends."""

csv.field_size_limit(2**31 - 1)


class Line(NamedTuple):
    """A record of the file: the line on which it begins, from 1, and its cells."""

    number: int
    cells: list[str]


def delimiter_of(path: Path, encoding: str) -> str:
    """What parts the cells, by the header line alone: what an answer holds says nothing about that.

    Quoted names count for nothing. A comma or semicolon before a blank belongs to a name ('Name, first name') where
    there is another delimiter. A .tsv file is parted by tabs where its header has one, and a file with a single column
    by commas.
    """
    header = _header(path, encoding)
    declared = _DECLARED.fullmatch(header)
    if declared:
        return declared[1]
    bare = _QUOTED.sub("", header)
    if "\t" in bare:
        return "\t"
    counts = {sign: bare.count(sign) for sign in (";", ",")}
    if all(counts.values()):
        counts = {sign: count - bare.count(f"{sign} ") for sign, count in counts.items()}
    return max(counts, key=lambda sign: counts[sign]) if any(counts.values()) else ","


def _header(path: Path, encoding: str) -> str:
    """The first line that is not blank, with all lines that a quoted name of it spans."""
    with path.open(encoding=encoding, newline="") as file:
        text = file.read(_HEADER).lstrip()
    header = ""
    for line in StringIO(text, newline=None):
        header += line
        if header.count('"') % 2 == 0:
            break
    return header.strip("\n")


def delimited_lines(path: Path, encoding: str, delimiter: str) -> Iterator[Line]:
    """All records, blank ones without cells; InputError for broken quotes, with the line where the record begins."""
    begin = 1
    with path.open(encoding=encoding, newline="") as file:
        records = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            for cells in records:
                declares = begin == 1 and len(cells) <= 2 and _DECLARED.fullmatch(delimiter.join(cells))
                yield Line(begin, [] if declares else cells)
                begin = records.line_num + 1
        except csv.Error as error:
            raise InputError(_quotes(error), file=path, line=begin, hint=_QUOTES_HINT) from error


_QUOTES_HINT = 'a text that holds a quotation mark stands in quotes, and the mark twice: "he said ""yes"""'


def _quotes(error: csv.Error) -> str:
    """What is wrong, in words of people."""
    message = str(error)
    if "end of data" in message:
        return "is not well-formed: a quotation mark opens a text here and none closes it"
    if "expected after" in message:
        return "is not well-formed: something stands between a closing quotation mark and the end of the cell"
    return f"is not well-formed: {message}"
