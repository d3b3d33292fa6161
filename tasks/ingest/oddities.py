"""What is odd about responses though nothing is wrong with them: people are told, and nothing is stopped."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from tasks.contracts.tables.data import INPUT_WARNINGS
from tasks.ingest.canonical import Answers

SHOWN = 5
"""Responses that are named."""
TIMES = 10
"""Times the usual length from which a text is long."""
FEW = 5
"""Fewer responses have no usual length."""
SHORTEST_LONG = 400
"""Characters below which no text is long."""
SHORTEST_SAME = 60
"""Letters and digits below which two students may well write the same."""
CELL = 32_767
"""Characters that a spreadsheet's cell holds."""
_TAGS = "a|b|br|div|em|h[1-6]|i|img|li|ol|p|pre|span|strong|sub|sup|table|tbody|td|th|tr|u|ul"
_MARKUP = re.compile(rf"</?(?:{_TAGS})(?:\s[^<>]*)?/?>|&(?:nbsp|amp|lt|gt|quot|#\d+);", re.IGNORECASE)
_GARBLED = re.compile("\ufffd|â€|Ã[\u0080-\u00bf\u0152-\u0178\u0192\u2013-\u203a]")
"""U+FFFD, and what UTF-8 looks like that is read as Windows-1252."""
_SIGNS = re.compile(r"[\W_]+")


class Oddities:
    """Looks at texts as they pass by; a few words of each response stay."""

    def __init__(self) -> None:
        self._examples: dict[str, list[str]] = defaultdict(list)
        self._counts: dict[str, int] = defaultdict(int)
        self._of_students: dict[bytes, str] = {}
        self._texts: dict[bytes, tuple[str, str | None]] = {}
        self._lengths: dict[str, array[int]] = defaultdict(lambda: array("q"))
        self._ids: dict[str, list[str]] = defaultdict(list)

    def look(self, answers: Answers) -> None:
        """Look at the responses of a chunk."""
        rows = zip(answers.response_id, answers.item_id, answers.author_id, answers.text, strict=True)
        for response_id, item_id, author_id, text in rows:
            self._look_at_student(response_id, item_id, author_id)
            self._look_at_copies(response_id, item_id, author_id, text)
            for kind in _kinds(text):
                self._add(kind, response_id)
            if text.strip():
                self._lengths[item_id].append(len(text))
                self._ids[item_id].append(response_id)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows of `input_warnings`."""
        for item_id, lengths in self._lengths.items():
            for response_id in _long(lengths, self._ids[item_id]):
                self._add("long", response_id)
        for kind in INPUT_WARNINGS:
            if self._counts[kind]:
                yield {"kind": kind, "responses": self._counts[kind], "examples": self._examples[kind]}

    def _add(self, kind: str, example: str) -> None:
        self._counts[kind] += 1
        if len(self._examples[kind]) < SHOWN:
            self._examples[kind].append(example)

    def _look_at_student(self, response_id: str, item_id: str, author_id: str | None) -> None:
        if author_id is None:
            return
        earlier = self._of_students.setdefault(_digest(author_id, item_id), response_id)
        if earlier != response_id:
            self._add("same_student", f"{earlier} and {response_id}")

    def _look_at_copies(self, response_id: str, item_id: str, author_id: str | None, text: str) -> None:
        letters = folded(text)
        if len(letters) < SHORTEST_SAME:
            return
        earlier, author = self._texts.setdefault(_digest(item_id, letters), (response_id, author_id))
        is_other_student = author_id is None or author_id != author
        if earlier != response_id and is_other_student:
            self._add("same_text", f"{earlier} and {response_id}")


def sentence(kind: str, responses: int, examples: list[str]) -> str:
    """A warning in words: what it is, how many responses it is about, and which."""
    shown = ", ".join(examples) + (", …" if responses > len(examples) else "")
    return f"{INPUT_WARNINGS[kind]}: {responses:,} ({shown})"


def folded(text: str) -> str:
    """The letters and digits of a text, by which texts are the same that differ in case, blanks and signs alone."""
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return _SIGNS.sub("", plain).casefold()


def _kinds(text: str) -> Iterator[str]:
    if not text.strip():
        yield "empty"
    if ("<" in text or "&" in text) and _MARKUP.search(text):
        yield "markup"
    if not text.isascii() and _GARBLED.search(text):
        yield "garbled"
    if len(text) == CELL:
        yield "cut"


def _long(lengths: array[int], ids: list[str]) -> Iterator[str]:
    """The responses to an item that are far longer than its median."""
    if len(lengths) < FEW:
        return
    least = max(SHORTEST_LONG, TIMES * float(np.median(lengths)))
    for length, response_id in zip(lengths, ids, strict=True):
        if length >= least:
            yield response_id


def _digest(*parts: str) -> bytes:
    """16 bytes in place of texts."""
    words = "\0".join(parts).encode(errors="surrogatepass")
    return hashlib.blake2b(words, digest_size=16).digest()
