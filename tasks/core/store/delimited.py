"""Text files: which encoding they have (marked, proved or guessed), and delimited text (CSV and its like) as rows with
the line on which each begins."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from charset_normalizer import from_bytes

from rubricflow.tasks.core.contracts.errors import InputError

DELIMITERS: dict[str, str] = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""What may part the cells of a row, with its name."""
BLOCK = 1 << 20
"""Bytes that are looked at together."""
SAMPLE = 1 << 18
"""Bytes with letters beyond ASCII that a guess is made from."""
_HEADER = 1 << 16
"""Characters in which the header ends."""
_HEAD = 4096
"""Bytes by which UTF-16 without a mark is seen."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks, the longer ones first."""
_NAMES = {"utf-8": "UTF-8", "utf-8-sig": "UTF-8", "utf-16": "UTF-16", "utf-32": "UTF-32"}
_NAMES |= {"utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "cp1252": "Windows-1252", "mac_roman": "Mac Roman"}
_GUESSED = ("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "mac_roman", "shift_jis", "gb18030", "euc_kr", "big5")
"""What spreadsheets write that know no UTF-8."""
_WESTERN = frozenset("äöüÄÖÜßéèêëàâáãåçîïíñóòôõøæÉÀÇÑÅØÆœŒùûúý–—‘’‚“”„…€§°«»·•²³½¼×±µ¿¡´\u00a0")
"""Letters and signs beyond ASCII that are frequent in Western texts."""
_HINT = "save it as 'CSV UTF-8', or name its encoding in the study: encoding: cp1252"
_QUOTES_HINT = 'a text that holds a quotation mark stands in quotes, and the mark twice: "he said ""yes"""'
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_DECLARED = re.compile(r"sep=(.)\s*", re.IGNORECASE)
"""A first line that names the delimiter to Excel."""
csv.field_size_limit(2**31 - 1)


def encoding_of(path: Path, named: str | None) -> tuple[str, str]:
    """The encoding of a text file, as Python calls it and in words for people: the one named, that of its byte order
    mark, UTF-8 where all of it is, UTF-16 where every other byte is nothing, and otherwise the likeliest of those that
    spreadsheets write.

    InputError for an unknown name, a file that is not in the encoding that is named or marked, and one of which a part
    is UTF-8 and another is not.
    """
    if named is not None:
        try:
            "".encode(named)  # this finds a name that is of no encoding of text, too
        except (LookupError, UnicodeError, ValueError) as error:
            hint = "for example utf-8, utf-16, cp1252 or mac_roman"
            raise InputError(f"'{named}' is no encoding of text", file=path, field="encoding", hint=hint) from error
        codec = codecs.lookup(named).name
        marked: str | None = "utf-8-sig" if codec == "utf-8" else codec
    else:
        with path.open("rb") as file:
            marked = _marked(file.read(_HEAD))
    line = first_undecodable(path, marked or "utf-8")
    if marked is not None and line is not None:
        rule = f"is not {_NAMES.get(marked, marked)}: line {line} holds bytes that stand for no letter"
        raise InputError(rule, file=path, hint=_HINT)
    codec = marked or "utf-8"
    return (codec, _NAMES.get(codec, codec)) if line is None else _guess(path, line)


def decoded(content: bytes) -> str | None:
    """A short text without its byte order mark; None where no encoding of it is likely."""
    for codec in filter(None, (_marked(content), "utf-8")):
        with suppress(UnicodeDecodeError):
            return content.decode(codec)
    unusual = b"".join(line for line in content.splitlines(keepends=True) if not line.isascii())
    likely = _likeliest(unusual[:SAMPLE])
    return None if likely is None else content.decode(likely, errors="replace")


def _marked(content: bytes) -> str | None:
    """The codec of a byte order mark, or UTF-16 without it: of Latin letters every second byte is NUL."""
    for mark, codec in _MARKS:
        if content.startswith(mark):
            return codec
    pairs = len(content[:_HEAD]) // 2
    for codec, start in (("utf-16-le", 1), ("utf-16-be", 0)):
        nothing = content[start : 2 * pairs : 2].count(0)
        letters = content[1 - start : 2 * pairs : 2].count(0)
        if pairs and nothing > 0.6 * pairs and letters < 0.1 * pairs:
            return codec
    return None


def first_undecodable(path: Path, codec: str) -> int | None:
    """The line, from 1, that holds the first bytes which the codec does not know; None where it knows all."""
    decoder, line = codecs.getincrementaldecoder(codec)(), 1
    with path.open("rb") as file:
        while True:
            block = file.read(BLOCK)
            try:
                line += decoder.decode(block, final=not block).count("\n")
            except UnicodeDecodeError as error:
                readable = error.object[: error.start]
                return line + readable.decode(codec, errors="ignore").count("\n")
            if not block:
                return None


def _guess(path: Path, broken: int) -> tuple[str, str]:
    """The likeliest encoding of a file that is no UTF-8 in a line; InputError where a part of it is, or none is
    likely."""
    lines, size = [], 0
    with path.open("rb") as file:
        for line in file:
            if not line.isascii():
                lines.append(line[:BLOCK])
                size += len(line)
            if size > SAMPLE:
                break
    sample = b"".join(lines)
    text = sample.decode("utf-8", errors="surrogateescape")
    single = sum("\udc80" <= letter <= "\udcff" for letter in text)
    if sum(letter > "\x7f" for letter in text) >= 2 * single:
        rule = f"is UTF-8 but for line {broken}, which holds bytes of another encoding"
        raise InputError(rule, file=path, hint="was something pasted there? Write that line anew")
    codec = _likeliest(sample)
    if codec is None or first_undecodable(path, codec) is not None:
        raise InputError(f"is not UTF-8: line {broken}, and no other encoding is likely", file=path, hint=_HINT)
    words = re.split(r"\W+", sample.decode(codec, errors="replace"))
    example = next((word[:30] for word in words if not word.isascii() and word.isprintable()), None)
    shown = f", which reads '{example}'" if example else ""
    guess = f"a guess, since it is no UTF-8{shown}; 'encoding' in the study names another"
    return codec, f"{_NAMES.get(codec, codec)} ({guess})"


def _likeliest(sample: bytes) -> str | None:
    """What Windows or a Mac writes where the letters beyond ASCII are then mostly those of Western languages, among
    which they are not the most; else the likeliest by statistics."""
    for codec in ("cp1252", "mac_roman"):
        with suppress(UnicodeDecodeError):
            text = sample.decode(codec)
            unusual = [letter for letter in text if letter > "\x7f"]
            frequent = sum(letter in _WESTERN for letter in unusual)
            if frequent >= 0.8 * len(unusual) and len(unusual) < 0.6 * sum(map(str.isalpha, text)):
                return codec
    best = from_bytes(sample, cp_isolation=list(_GUESSED)).best()
    return None if best is None else str(best.encoding)


class Line(NamedTuple):
    """A record of the file: the line on which it begins, from 1, and its cells."""

    number: int
    cells: list[str]


def delimiter_of(path: Path, encoding: str) -> str:
    """What parts the cells, by the header line alone: an answer is no evidence of that.

    The header is the first line that is not blank, with all lines that a quoted name of it spans. Quoted names count
    for nothing. A comma or semicolon before a blank belongs to a name ('Name, first name') where there is another
    delimiter. A .tsv file is parted by tabs where its header has one, and a file with a single column by commas.
    """
    with path.open(encoding=encoding, newline="") as file:
        text = file.read(_HEADER).lstrip()
    header = ""
    for line in StringIO(text, newline=None):
        header += line
        if header.count('"') % 2 == 0:
            break
    declared = _DECLARED.fullmatch(header.strip("\n"))
    if declared:
        return declared[1]
    bare = _QUOTED.sub("", header)
    if "\t" in bare:
        return "\t"
    semicolons, commas = bare.count(";"), bare.count(",")
    if semicolons and commas:
        semicolons, commas = semicolons - bare.count("; "), commas - bare.count(", ")
    return ";" if semicolons and semicolons >= commas else ","


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
            reason = str(error)
            if "end of data" in reason:
                reason = "a quotation mark opens a text here and none closes it"
            elif "expected after" in reason:
                reason = "something stands between a closing quotation mark and the end of the cell"
            raise InputError(f"is not well-formed: {reason}", file=path, line=begin, hint=_QUOTES_HINT) from error
