"""Sentences and paragraphs of a text, with exact spans; and whole sentences of a text that was cut short."""

from __future__ import annotations

import re
from itertools import chain
from typing import NamedTuple

from rubricflow.tasks.core.text.fold import BREAK, DIVIDED

_BLANK_LINE = re.compile(rf"{BREAK}[^\S\n\r\x0b\x0c\x85\u2028\u2029]*{BREAK}\s*|\u2029\s*")
_LINE = re.compile(r"[\n\r\x0b\x0c\x85\u2028\u2029]+")
# Possessive, and never begun inside a run: a row of a million full stops costs a million steps, not their square. All
# that can come first stands first, so that the search skips to it.
_SENTENCE_END = re.compile(
    r"""[.!?…。！？](?:(?<=[.!?…])(?<![.!?…][.!?…])[.!?…]*+["'”’)\]]*+(?=\s)|(?<=[。！？])[。！？]*[”’」』）]*)"""
)
_LONGEST = 40
_ABBREVIATIONS = frozenset(
    {"e.g.", "i.e.", "cf.", "vs.", "viz.", "approx.", "ca.", "mr.", "mrs.", "ms.", "dr.", "prof.", "st.", "jr.", "sr."}
    | {"no.", "nr.", "fig.", "eq.", "vol.", "ed.", "eds.", "p.", "pp.", "inc.", "ltd.", "co.", "u.s.", "u.k."}
    | {"a.m.", "p.m.", "z.b.", "d.h.", "u.a.", "bzw."}
)
_INITIAL = re.compile(r"\W*[A-Z]\.")
_NUMBER = re.compile(r"\W*\d{1,3}\.")


class Unit(NamedTuple):
    """A piece of a text: `text[start:end]`, without surrounding white space."""

    unit_id: str
    kind: str
    start: int
    end: int


def units(text: str) -> list[Unit]:
    """The sentences (s1, s2, …) and then the paragraphs (p1, p2, …) of a text.

    Paragraphs are separated by blank lines, or by line breaks in a text that has no blank line. A sentence ends at
    terminal punctuation before white space, and at every line break that divides no word; abbreviations, initials and
    the number that opens a line do not end one. Spans count code points; together the units of a kind cover every
    character that is not white space. An empty text has none.
    """
    lines = _lines(text, 0, len(text))
    # A blank line holds two breaks: one after the other, or with white space between.
    breaks = [match.span() for match in _BLANK_LINE.finditer(text)] if lines else []
    paragraphs = _trimmed(text, _pieces(0, len(text), breaks or lines))
    sentences = chain.from_iterable(_sentences(text, start, end) for start, end in paragraphs)
    sentence_units = [Unit(f"s{number}", "sentence", *span) for number, span in enumerate(sentences, 1)]
    return sentence_units + [Unit(f"p{number}", "paragraph", *span) for number, span in enumerate(paragraphs, 1)]


def _lines(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The line breaks, less those that divide a word."""
    within = {place for word in DIVIDED.finditer(text, start, end) for place in range(*word.span())}
    return [line.span() for line in _LINE.finditer(text, start, end) if line.start() not in within]


def _sentences(text: str, start: int, end: int) -> list[tuple[int, int]]:
    lines = _trimmed(text, _pieces(start, end, _lines(text, start, end)))
    sentences = []
    for low, high in lines:
        ends = [match for match in _SENTENCE_END.finditer(text, low, high) if not _goes_on(text, low, match)]
        sentences += _pieces(low, high, [(match.end(), match.end()) for match in ends])
    return _trimmed(text, sentences)


def _goes_on(text: str, low: int, end: re.Match[str]) -> bool:
    """Whether a full stop belongs to an abbreviation, an initial, or the list number that opens the line at `low`."""
    if end.group() != ".":
        return False
    word = text[max(low, end.end() - _LONGEST) : end.end()].rsplit(maxsplit=1)[-1]
    if end.end() - len(word) == low and _NUMBER.fullmatch(word):
        return True
    return word.lower().lstrip("(\"'“") in _ABBREVIATIONS or _INITIAL.fullmatch(word) is not None


def _pieces(start: int, end: int, separators: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What is left of [start, end) between the separators."""
    edges = [start, *chain.from_iterable(separators), end]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _trimmed(text: str, spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    trimmed = []
    for start, end in spans:
        piece = text[start:end]
        if piece.strip():
            trimmed.append((start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())))
    return trimmed


# Prose that was cut short, made fit for people.

MARK = "[…]"
"""Stands where words were cut."""
_ENDS = (".", "!", "?", "…", "。", "！", "？", ".)", '."', ".”", "!”", "?”")


def whole_sentences(text: str, longest: int) -> str:
    """A text without blanks around it or, where it was cut, its whole sentences and `MARK`; where not even one is
    whole, its whole words.

    longest: characters at which it is cut, or was by the contract that its writer was held to; a text that fills them
    and ends a sentence there was not. What is returned is left as it is when it is put in again.
    """
    text = text.strip()
    if len(text) < longest or (len(text) == longest and text.endswith(_ENDS)):
        return text
    head = text[: max(0, longest - len(MARK) - 2)]
    sentences = [unit for unit in units(head) if unit.kind == "sentence"]
    ends = [unit.end for unit in sentences if head[: unit.end].endswith(_ENDS)]
    whole = head[: ends[-1]] if ends else head.rpartition(" ")[0] or head
    return f"{whole.rstrip()} {MARK}"
