"""What is odd about responses though nothing is wrong with them: it is reported and stops nothing."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rubricflow.tasks.core.contracts.tables.data import INPUT_WARNINGS
from rubricflow.tasks.grading.ingest.canonical import Answers

Keys = npt.NDArray[np.uint64]
NOTHING = np.uint64(0)
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
    """Looks at texts as they pass by; of each response stay its id, its item, its length and three keys."""

    def __init__(self) -> None:
        self._examples: dict[str, list[str]] = defaultdict(list)
        self._counts: dict[str, int] = defaultdict(int)
        self._seen: list[pd.DataFrame] = []

    def look(self, answers: Answers) -> None:
        """Look at the responses of a chunk."""
        students = []
        texts = []
        for author, item, text in zip(answers.author_id, answers.item_id, answers.text, strict=True):
            letters = folded(text)
            students.append("" if author is None else f"{author}\0{item}")
            texts.append("" if len(letters) < SHORTEST_SAME else f"{item}\0{letters}")
        columns = {"response": answers.response_id, "item": answers.item_id}
        keys = {"author": [author or "" for author in answers.author_id], "student": students, "text": texts}
        lengths = [len(text) if text.strip() else 0 for text in answers.text]
        self._seen.append(
            pd.DataFrame(columns | {name: digests(of) for name, of in keys.items()} | {"length": lengths})
        )
        for name, essay, text in zip(answers.response_id, answers.handed_in, answers.text, strict=True):
            if essay:
                for kind, words in (("unread", essay.why), ("joined", essay.joined), ("replaced", essay.replaced)):
                    if words:
                        self._add(kind, f"{name}: {words}")
            if not (essay and essay.unread):
                for kind in _kinds(text):
                    self._add(kind, name)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows of `input_warnings`. An answer is repeated where its student has another to the question, or another
        student the same text; it is long by the median of its item."""
        seen = pd.concat(self._seen, ignore_index=True) if self._seen else pd.DataFrame()
        for kind, key in (("same_student", "student"), ("same_text", "text")) if len(seen) else ():
            repeated = seen[(seen[key] != NOTHING) & seen.duplicated(key)]
            firsts = seen.drop_duplicates(key).set_index(key).loc[repeated[key]]
            rows = zip(firsts["response"], firsts["author"], repeated["response"], repeated["author"], strict=True)
            for first, first_author, name, author in rows:
                is_own_text = kind == "same_text" and author == first_author != NOTHING
                if first != name and not is_own_text:
                    self._add(kind, f"{first} and {name}")
        for _, of_item in seen[seen["length"] > 0].groupby("item", sort=False) if len(seen) else ():
            if len(of_item) >= FEW:
                least = max(SHORTEST_LONG, TIMES * float(of_item["length"].median()))
                for name in of_item["response"][of_item["length"] >= least]:
                    self._add("long", name)
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


def digests(texts: Sequence[str]) -> Keys:
    """Eight bytes for each text, 0 for an empty one: of a million texts two that differ have the same once in forty
    million times."""
    digest_of = (hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest() for text in texts)
    keys = np.frombuffer(bytearray().join(digest_of), np.uint64)
    return np.where([not text for text in texts], NOTHING, keys)
