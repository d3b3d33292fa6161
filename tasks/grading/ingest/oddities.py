"""What is odd about responses though nothing is wrong with them: it is reported and stops nothing.

`FirstOccurrences` and `Repeats` find what was given twice among millions that pass by: sixteen bytes of each stay.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rubricflow.tasks.core.contracts.tables.data import INPUT_WARNINGS
from rubricflow.tasks.core.stats.arrays import Ints
from rubricflow.tasks.grading.ingest.canonical import Answers

Keys = npt.NDArray[np.uint64]
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
_WORD_BITS = 26
"""Bits of a key of `Repeats` for the number of the word; the others are the response's place."""


class Oddities:
    """Looks at texts as they pass by; a few words of each response stay."""

    def __init__(self) -> None:
        self._examples: dict[str, list[str]] = defaultdict(list)
        self._counts: dict[str, int] = defaultdict(int)
        self._ids: list[str] = []
        """Of every response, by its number."""
        self._author_keys = array("Q")
        """Of the author of every response, 0 where not known."""
        self._students, self._texts = FirstOccurrences(), FirstOccurrences()
        self._lengths: dict[str, tuple[array[int], array[int]]] = defaultdict(lambda: (array("i"), array("i")))
        """Item → characters of its texts, and the numbers of the responses."""

    def look(self, answers: Answers) -> None:
        """Look at the responses of a chunk."""
        ids, start = self._ids, len(self._ids)
        ids += answers.response_id
        authors = digests([author or "" for author in answers.author_id])
        authors[[author is None for author in answers.author_id]] = 0
        self._author_keys.frombytes(authors.tobytes())
        # A response without an author, or with a short text, has a key of its own: it repeats nothing.
        students, texts = list[str](), list[str]()
        rows = zip(answers.author_id, answers.item_id, answers.text, strict=True)
        for number, (author, item, text) in enumerate(rows, start):
            letters = folded(text)
            students.append(f"\0{number}" if author is None else f"{author}\0{item}")
            texts.append(f"\0{number}" if len(letters) < SHORTEST_SAME else f"{item}\0{letters}")
        same_student = self._students.add(digests(students)).tolist()
        same_text = self._texts.add(digests(texts)).tolist()
        for place, text in enumerate(answers.text):
            number, student, copied = start + place, same_student[place], same_text[place]
            name, essay, author_key = ids[number], answers.handed_in[place], self._author_keys[number]
            if ids[student] != name:
                self._add("same_student", f"{ids[student]} and {name}")
            if ids[copied] != name and (author_key == 0 or author_key != self._author_keys[copied]):
                self._add("same_text", f"{ids[copied]} and {name}")
            if essay:
                for kind, words in (("unread", essay.why), ("joined", essay.joined), ("replaced", essay.replaced)):
                    if words:
                        self._add(kind, f"{name}: {words}")
            for kind in _kinds(text) if not (essay and essay.unread) else ():
                self._add(kind, name)
            if text.strip():
                lengths, numbers = self._lengths[answers.item_id[place]]
                lengths.append(len(text))
                numbers.append(number)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows of `input_warnings`; texts far longer than their item's median are odd, too."""
        for lengths, numbers in self._lengths.values():
            if len(lengths) >= FEW:
                least = max(SHORTEST_LONG, TIMES * float(np.median(lengths)))
                for length, number in zip(lengths, numbers, strict=True):
                    if length >= least:
                        self._add("long", self._ids[number])
        for kind in INPUT_WARNINGS:
            if self._counts[kind]:
                yield {"kind": kind, "responses": self._counts[kind], "examples": self._examples[kind]}

    def _add(self, kind: str, example: str) -> None:
        self._counts[kind] += 1
        if len(self._examples[kind]) < (ALL if kind == "unread" else SHOWN):
            self._examples[kind].append(example)


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


class FirstOccurrences:
    """Numbers keys from 0 as they come, and knows the number under which each came first."""

    def __init__(self) -> None:
        self._runs: list[tuple[Keys, Ints]] = []
        """Keys in order, each with its first number; each run longer than the next, so that there are few."""
        self.count = 0

    def add(self, keys: Keys) -> Ints:
        """The number under which each key came first, its own where it is new. keys: (n,), in their order."""
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        numbers = np.full(len(distinct), -1, np.int64)
        for known, known_numbers in self._runs:
            places = np.minimum(np.searchsorted(known, distinct), len(known) - 1)
            is_known = known[places] == distinct
            numbers[is_known] = known_numbers[places[is_known]]
        is_new = numbers < 0
        numbers[is_new] = self.count + first[is_new]
        self.count += len(keys)
        if is_new.any():
            self._runs.append((distinct[is_new], numbers[is_new]))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= len(self._runs[-1][0]):
            joined, joined_numbers = (np.concatenate(columns) for columns in zip(*self._runs[-2:], strict=True))
            order = np.argsort(joined, kind="stable")
            self._runs[-2:] = [(joined[order], joined_numbers[order])]
        return numbers[inverse]


class Repeats:
    """Words given of responses: a rater's name, a rater and a criterion."""

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        self._firsts = FirstOccurrences()

    def add(self, places: Sequence[int | None], words: Sequence[Hashable]) -> list[bool]:
        """Whether each word was given of its response before, here or in what was added earlier; never where there is
        no response. places: (n,) of the responses, None for one that is not known; words: (n,)."""
        known = [row for row, place in enumerate(places) if place is not None]
        codes = [self._codes.setdefault(words[row], len(self._codes)) for row in known]
        keys = np.array([places[row] for row in known], np.uint64) << np.uint64(_WORD_BITS) | np.array(codes, np.uint64)
        numbers = self._firsts.count + np.arange(len(known))
        is_repeated = np.zeros(len(places), bool)
        is_repeated[known] = self._firsts.add(keys) != numbers
        return cast(list[bool], is_repeated.tolist())


def digests(texts: Sequence[str]) -> Keys:
    """Eight bytes for each text: of a million texts two that differ have the same once in forty million times."""
    digest_of = (hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest() for text in texts)
    return np.frombuffer(bytearray().join(digest_of), np.uint64)
