"""Texts in files that a spreadsheet opens: none of them runs as a formula, and each can be read back as it was.

A program may take another separator than the file's, lose count of its quotes or pass over blanks and unseen
characters, so that a formula can begin at a text's start and behind each separator in it (OWASP, CSV injection). There
an apostrophe goes before what would begin one. A text that is a number or a list of some is none: -1.5 stays -1.5. A
number that more text follows may be the beginning of one: -1,5*HYPERLINK(…) where a comma is a decimal point.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

import regex

_SIGNS = r"=+\-@＝＋－＠﹦﹢﹣﹫"
_NUMBER = r"[+\-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+\-]?[0-9]+)?"
_NUMBERS = regex.compile(rf"[\[{{ ]*+{_NUMBER}(?:[,;] *+{_NUMBER})*+[\]}} ]*+")
_STARTS = regex.compile(rf"((?:\A|[,;\t\r\n])[\p{{Z}}\p{{C}}\"',;]*+)([{_SIGNS}])?")
"""Where a cell begins, and the sign there that makes a formula of it. It consumes all it looks at, so that hostile
texts cost no more than others."""
_BREAKS = regex.compile(r"[ ']*[\t\r\n]")
LONGEST = 32_000
"""Characters of a text: a spreadsheet's cell holds little more, and spills the rest over the rows below."""


def guarded(text: str) -> str:
    """A text that no spreadsheet takes for a formula, however it splits the file: an apostrophe goes before what would
    make one, and before a leading tab or line break."""
    if _NUMBERS.fullmatch(text):
        return text
    safe = _STARTS.sub(lambda start: f"{start[1]}'{start[2]}" if start[2] else start[0], text)
    return "'" + safe if _BREAKS.match(safe) else safe


def unguarded(text: str) -> str:
    """What `guarded` was given."""
    plain = text[1:] if text.startswith("'") and _BREAKS.match(text) else text
    return _STARTS.sub(lambda start: start[1].removesuffix("'") + start[2] if start[2] else start[0], plain)


def readable(text: str) -> str:
    """A guarded text as a spreadsheet's cell shows it: in lines of one kind, cut where a cell ends."""
    safe = guarded(text.replace("\r\n", "\n").replace("\r", "\n"))
    return safe if len(safe) <= LONGEST else f"{safe[:LONGEST]}\n[… cut here]"


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """A CSV file of these cells, as they are."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def cell(value: object) -> object:
    """A value as a cell of a CSV file: numbers and what is missing as they are, all else as guarded text."""
    return value if value is None or isinstance(value, int | float) else guarded(str(value))
