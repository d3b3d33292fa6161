"""What is odd about responses though nothing is wrong with them: people are told, and nothing is stopped."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from rubricflow.tasks.core.contracts.tables.data import INPUT_WARNINGS
from rubricflow.tasks.core.store.cells import EssayCell
from rubricflow.tasks.grading.ingest.canonical import Answers
from rubricflow.tasks.grading.ingest.firsts import Firsts, Keys, digests

SHOWN = 5
"""Responses that are named."""
ALL = 1_000
"""Of those that could not be read, which people have to look at themselves."""
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
        self._ids: list[str] = []
        """Of every response, by its number."""
        self._author_keys = array("Q")
        """Of the author of every response, 0 where not known."""
        self._students, self._texts = Firsts(), Firsts()
        self._lengths: dict[str, tuple[array[int], array[int]]] = defaultdict(lambda: (array("i"), array("i")))
        """Item → characters of its texts, and the numbers of the responses."""

    def look(self, answers: Answers) -> None:
        """Look at the responses of a chunk."""
        start = len(self._ids)
        self._ids += answers.response_id
        authors = digests([author or "" for author in answers.author_id])
        authors[[author is None for author in answers.author_id]] = 0
        self._author_keys.frombytes(authors.tobytes())
        students, texts = _keys(answers, start)
        same_student, same_text = self._students.add(students), self._texts.add(texts)
        for place, text in enumerate(answers.text):
            number = start + place
            self._look_at_student(number, int(same_student[place]))
            self._look_at_copies(number, int(same_text[place]))
            essay = answers.handed_in[place]
            for kind, words in _of_files(essay) if essay else ():
                self._add(kind, f"{self._ids[number]}: {words}")
            for kind in _kinds(text) if not (essay and essay.unread) else ():
                self._add(kind, self._ids[number])
            if text.strip():
                lengths, numbers = self._lengths[answers.item_id[place]]
                lengths.append(len(text))
                numbers.append(number)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows of `input_warnings`."""
        for lengths, numbers in self._lengths.values():
            for number in _long(lengths, numbers):
                self._add("long", self._ids[number])
        for kind in INPUT_WARNINGS:
            if self._counts[kind]:
                yield {"kind": kind, "responses": self._counts[kind], "examples": self._examples[kind]}

    def _add(self, kind: str, example: str) -> None:
        self._counts[kind] += 1
        if len(self._examples[kind]) < (ALL if kind == "unread" else SHOWN):
            self._examples[kind].append(example)

    def _look_at_student(self, number: int, earlier: int) -> None:
        if self._ids[earlier] != self._ids[number]:
            self._add("same_student", f"{self._ids[earlier]} and {self._ids[number]}")

    def _look_at_copies(self, number: int, earlier: int) -> None:
        author, other = self._author_keys[number], self._author_keys[earlier]
        is_other_student = author == 0 or author != other
        if self._ids[earlier] != self._ids[number] and is_other_student:
            self._add("same_text", f"{self._ids[earlier]} and {self._ids[number]}")


def sentence(kind: str, responses: int, examples: list[str]) -> str:
    """A warning in words: what it is, how many responses it is about, and which."""
    shown = ", ".join(examples) + (", …" if responses > len(examples) else "")
    return f"{INPUT_WARNINGS[kind]}: {responses:,} ({shown})"


def _keys(answers: Answers, start: int) -> tuple[Keys, Keys]:
    """By which a student and a text are the same in an item; start: the first response's number. A response without an
    author, or with a short text, has a key of its own: it repeats nothing."""
    singles = [f"\0{number}" for number in range(start, start + len(answers.text))]
    letters = [folded(text) for text in answers.text]
    students = [
        single if author is None else f"{author}\0{item}"
        for single, author, item in zip(singles, answers.author_id, answers.item_id, strict=True)
    ]
    texts = [
        single if len(of_text) < SHORTEST_SAME else f"{item}\0{of_text}"
        for single, of_text, item in zip(singles, letters, answers.item_id, strict=True)
    ]
    return digests(students), digests(texts)


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


def _of_files(essay: EssayCell) -> Iterator[tuple[str, str]]:
    """What is odd about the files of an answer, and which they are."""
    said = {"unread": essay.why, "joined": essay.joined, "replaced": essay.replaced}
    yield from ((kind, words) for kind, words in said.items() if words)


def _long(lengths: array[int], numbers: array[int]) -> Iterator[int]:
    """The numbers of the responses to an item that are far longer than its median."""
    if len(lengths) < FEW:
        return
    least = max(SHORTEST_LONG, TIMES * float(np.median(lengths)))
    for length, number in zip(lengths, numbers, strict=True):
        if length >= least:
            yield number
