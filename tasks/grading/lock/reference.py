"""A reference answer as the points that it holds: its list, if it has one, the points that it gives in brackets, and as
many of a list as the question asks for.

What cannot be told stays whole: a sentence is cut where a second statement with a verb of its own begins, and a list is
counted only where its heading or the question says how many of it are asked for. Numbers are read in digits of any
language, words that ask for a number in English.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from rubricflow.tasks.core.text.clauses import has_verb, statements
from rubricflow.tasks.core.text.units import units

_WRAPPED = re.compile(r"(?<=[\w,;)])[ \t]*\n[ \t]*(?!\(?\w{1,4}[.)])(?=[a-z(])")
_MARKER = re.compile(
    r"[ \t]*(?:(?P<bullet>[●○•▪◦‣∙*→]|[-–—](?![\d\s]*\d))|"
    r"\(?(?:(?P<number>\d{1,2})|(?P<roman>[ivx]{1,4})|(?P<letter>[a-h]))[.)](?!\d|\w\.))[ \t]*(?=\S)"
)
_CREDIT = re.compile(
    r" ?\((?:(?:je|each) )?(?P<points>\d+(?:[.,]\d+)?(?= ?[pm])|\d?[.,](?:25|50?|75)(?=\)))"
    r" ?(?:pts?|p|points?|punkte?|marks?)?\.?\)",
    re.I,
)
"""Bare numbers are points by halves and quarters alone: others are figures that the answer gives."""
_NEXT = re.compile(r"[,;] ?(?:(?:and|or|und|oder) )?| (?:and|or|und|oder) ")
_AGAIN = re.compile(r"(?:alternatively|alternativ|in other words|mit anderen Worten|that is)\b[\s,:]*", re.I)
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
_ASKED = re.compile(
    rf"(?<![\w.,-])(?P<number>{'|'.join(_NUMBERS)}|[2-9])\s+(?P<of>of\s+the\s+)?"
    r"(?=(?P<things>(?:[^\W\d]+[ \t]+){0,2}[^\W\d]+))",
    re.I,
)
_NO_THING = re.compile(r"\b(?:sentences?|words?|lines?|paragraphs?|pages?|minutes?|points?|marks?)\b", re.I)
_ASIDE = re.compile(r"(?:note|hint|remark|hinweis|anmerkung)\s*:", re.I)
_NAME = r"([^\s,;:()]+(?: [^\s,;:()]+)?(?: \([^()]*\))?)"
_TWO_NAMES = re.compile(rf"{_NAME} (?:and|und|&) {_NAME}\.?")
_LABEL = 60
"""Characters of a heading that go before what stands below it."""
OTHER = "Another one that the question asks for, and that is right."


class ReferencePoint(NamedTuple):
    """One thing that a reference answer says."""

    text: str
    weight: float = 1.0
    of: int | None = None
    """Place of the choice that it belongs to."""


class ReferenceChoice(NamedTuple):
    """Points of which a number is asked for, whichever these are."""

    text: str
    most: int
    is_open: bool
    """Whether others may be right, too."""


@dataclass
class _Block:
    """What stands below one heading: a list, whose marker is named, or prose."""

    heading: str = ""
    marker: str | None = None
    lines: list[str] = field(default_factory=list)


def reference_points(answer: str, question: str) -> tuple[list[ReferencePoint], list[ReferenceChoice]]:
    """The points of a reference answer in its order, and the choices that some of them belong to.

    A reference that gives points in brackets, `(0.25 P)`, is cut behind each, and what it says without any earns none.
    A heading that asks for `one of the following` makes a choice of its list. One that names what the question asks for
    so many of makes a choice of all that follows, up to the next one; where no heading does, all lists together are it.
    Such a choice, which others may know more of, ends in a point for what else is right.
    """
    answer = _WRAPPED.sub(" ", answer)
    if len(credited := list(_credited(answer))) > 1:
        return credited, []
    blocks = _blocks(answer)
    asked = {one["things"]: _number(one["number"]) for one in _ASKED.finditer(question) if _number(one["number"]) > 1}
    asked = {things: number for things, number in asked.items() if not _NO_THING.search(things)}
    named = [[number for things, number in asked.items() if _shares_word(things, block.heading)] for block in blocks]
    listed = sum(len(block.lines) for block in blocks if block.marker)
    whole = [number for number in asked.values() if len(asked) == 1 and not any(named) and listed > number]
    points = []
    choices = list[ReferenceChoice]()
    current = None
    for block, by_heading in zip(blocks, named, strict=True):
        heading = _line(block.heading)
        closed = [_number(one["number"]) for one in _ASKED.finditer(heading) if one["of"]]
        new = closed or by_heading or (whole if block.marker and not choices else [])
        if new and block.lines:
            current = len(choices)
            choices.append(ReferenceChoice(heading or f"What the question asks for {new[0]} of.", new[0], not closed))
        elif whole:
            current = 0 if block.marker else None
        label = f"{heading}: " if current is None and 0 < len(heading) <= _LABEL else ""
        is_prose = not block.marker and current is None
        texts = [text for line in block.lines for text in (_statements(line) if is_prose else [line])]
        points += [ReferencePoint(label + _line(text), of=current) for text in texts if _line(text)]
        current = None if closed else current
    sizes = Counter(point.of for point in points)
    choices = [choice._replace(most=min(choice.most, sizes[place])) for place, choice in enumerate(choices)]
    points += [ReferencePoint(OTHER, of=place) for place, choice in enumerate(choices) if choice.is_open]
    return points or [ReferencePoint(text) for text in [_line(answer)] if text], choices


def _number(word: str) -> int:
    return _NUMBERS.get(word.lower()) or int(word)


def _line(text: str) -> str:
    return " ".join(text.split()).strip(" ,;.")


def _shares_word(things: str, heading: str) -> bool:
    """Whether a heading has one of the words, in whatever ending."""
    stems = tuple(word[: max(4, len(word) - 2)] for word in things.lower().split() if len(word) > 3)
    return bool(stems) and any(word.startswith(stems) for word in re.findall(r"\w+", heading.lower()))


def _sentences(text: str) -> list[str]:
    return [text[unit.start : unit.end] for unit in units(text) if unit.kind == "sentence"]


def _credited(answer: str) -> Iterator[ReferencePoint]:
    """What each number of points in brackets is for: the words before it, and those behind it up to the next `and`."""
    for sentence in map(" ".join, map(str.split, _sentences(answer))):
        credits, start = list(_CREDIT.finditer(sentence)), 0
        for credit, later in zip_longest(credits, credits[1:]):
            more = _NEXT.search(sentence, credit.end(), later.start()) if later else None
            end = more.start() if more else credit.end() if later else len(sentence)
            text = _line(sentence[start : credit.start()] + sentence[credit.end() : end])
            start = more.end() if more else end
            if text:
                yield ReferencePoint(text, float(credit["points"].replace(",", ".")))


def _blocks(answer: str) -> list[_Block]:
    blocks = [_Block()]
    for line in answer.splitlines():
        marker = None
        while found := _MARKER.match(line):
            marker, line = marker or found["bullet"] or found.lastgroup, line[found.end() :]
        block, line = blocks[-1], line.strip()
        if not line or _ASIDE.match(line):
            continue
        if marker is None and line.endswith(":"):
            *before, last = _sentences(line)
            block.lines += before
            blocks.append(_Block(last.rstrip(" :")))
        elif marker and block.marker and (marker != block.marker or block.lines[-1].endswith(":")):
            block.lines[-1] += f" {line}"  # a list within the list tells more of what stands above it
        elif block.lines and marker != block.marker:
            blocks.append(_Block(marker=marker, lines=[line]))
        else:
            block.marker = marker
            block.lines.append(line)
    return blocks


def _statements(line: str) -> Iterator[str]:
    """The statements of a line of prose; of one that is two names and no sentence, both."""
    if (names := _TWO_NAMES.fullmatch(line)) and not has_verb(line):
        yield from names.groups()
        return
    told = list[str]()
    for sentence in _sentences(line):
        if told and (again := _AGAIN.match(sentence)):
            told[-1] += f" — or: {sentence[again.end() :].strip(' .')}"
        else:
            told += statements(sentence)
    yield from told
