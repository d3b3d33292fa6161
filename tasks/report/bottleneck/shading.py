"""A response as lines of a picture: what the concepts look at is shaded and carries the number of the concept.

The lines are drawn twice: first the shading, thick lines through the same glyphs, then the words. So it lies where the
words are, in any font and any direction of writing.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from tasks.display.draw import place
from tasks.report.grading.highlight import Span, pieces
from tasks.report.reward.boxes import clean, width

LINE, SIZE = 26.0, 1.2
"""Px of a line; width of a character over that of the type that `width` measures."""
JOINED = re.compile(r"[\s,;:.'’“”\"()\-–]{0,3}")
"""What may lie between two tokens that are shaded as one."""
_WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
PART = re.compile(rf"\s+|[{_WIDE}]|[^\s{_WIDE}]+")
"""What is not parted at the end of a line: white space, a word, or a character of a script without blanks."""
_RIGHT_TO_LEFT = ("R", "AL")


class Looked(NamedTuple):
    """A piece [start, end) of the response that one concept looks at more than any other."""

    start: int
    end: int
    number: int
    """Of the concept, from 1."""
    weight: float
    """Its heaviest token's share of the concept's attention."""


class Run(NamedTuple):
    """Words in one manner; `number` where a shaded piece ends."""

    words: str
    shade: int
    """0 for none, 3 for the heaviest."""
    number: int | None = None


def looked(text: str, attention: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[Looked]:
    """What is looked at, in order and without overlaps: each token goes to the concept that weighs it most; neighbours
    of one concept are joined. attention: number of the concept → its `Attended` rows."""
    tokens = [Looked(at["start"], at["end"], number, at["weight"]) for number, of in attention.items() for at in of]
    kept: list[Looked] = []
    for token in sorted(tokens, key=lambda token: (-token.weight, token)):
        if token.start < token.end and all(token.end <= one.start or one.end <= token.start for one in kept):
            kept.append(token)
    joined: list[Looked] = []
    for token in sorted(kept):
        last = joined[-1] if joined else None
        if last and last.number == token.number and JOINED.fullmatch(text[last.end : token.start]):
            joined[-1] = Looked(last.start, token.end, token.number, max(last.weight, token.weight))
        else:
            joined.append(token)
    return joined


def answer(text: str, found: Sequence[Looked], room: float, top: float) -> tuple[list[Markup], float]:
    """The response from there on in lines of that width, and where it ends. Long texts are cut around what is looked
    at; ¶ stands for a line break."""
    lines = _wrapped(list(_runs(text, found)), room)
    right_to_left = _is_right_to_left(text)
    marks = []
    for layer in ("shades", "words"):
        drawn = [_line(line, room, top + LINE * (at + 0.7), right_to_left, layer) for at, line in enumerate(lines)]
        marks.append(Markup('<g class="{}"{}>{}</g>').format(layer, _unseen(layer), Markup("").join(drawn)))
    return marks, top + LINE * len(lines)


def _unseen(layer: str) -> Markup:
    return Markup(' aria-hidden="true"') if layer == "shades" else Markup("")


def _runs(text: str, found: Sequence[Looked]) -> Iterator[Run]:
    most = max((one.weight for one in found), default=1.0) or 1.0
    spans = [Span(one.start, one.end, str(at), "machine") for at, one in enumerate(found)]
    for piece in pieces(text, spans):
        words = _tidy(re.sub(r"\n+", " ¶ ", piece.text)) if not piece.hidden else " … "
        if not piece.machine:
            yield Run(words, 0)
            continue
        one = found[int(piece.machine[0])]
        yield Run(words, 1 + int(min(2.999 * one.weight / most, 2)), one.number if piece.ends else None)


def _tidy(words: str) -> str:
    """As `clean`, with a blank where the words begin or end with one."""
    before, after = (" " if words[at : at + 1 or None].isspace() else "" for at in (0, -1))
    return f"{before}{clean(words)}{after}" if words.strip() else words[:1]


def _wrapped(runs: Sequence[Run], room: float) -> list[list[Run]]:
    """Lines no wider than the room; a word that is wider than a line is cut."""
    lines: list[list[Run]] = [[]]
    used = 0.0
    for run in runs:
        parts = [part for part in PART.findall(run.words) for part in _cut(part, room)]
        for at, part in enumerate(parts):
            number = run.number if at == len(parts) - 1 else None
            wide = SIZE * width(part) + (10.0 if number else 0.0)
            if used + wide > room and not part.isspace():
                lines.append([])
                used = 0.0
            if not (part.isspace() and not lines[-1]):
                lines[-1].append(Run(part, run.shade, number))
                used += wide
    return [line for line in (_merged(line) for line in lines) if line]


def _cut(word: str, room: float) -> Iterator[str]:
    start, used = 0, 0.0
    for at, character in enumerate(word):
        wide = SIZE * width(character)
        if used + wide > room - 10 and at > start:
            yield word[start:at]
            start, used = at, 0.0
        used += wide
    yield word[start:]


def _merged(line: Sequence[Run]) -> list[Run]:
    """The line with neighbours of one manner joined."""
    made: list[Run] = []
    for run in line:
        if made and made[-1].shade == run.shade and made[-1].number is None:
            made[-1] = Run(made[-1].words + run.words, run.shade, run.number)
        else:
            made.append(run)
    return made


def _line(runs: Sequence[Run], room: float, y: float, right_to_left: bool, layer: str) -> Markup:
    spans = []
    for run in runs:
        kind = f"w{run.shade}" if run.shade else ""
        spans.append(Markup('<tspan class="{}">{}</tspan>').format(kind, run.words) if kind else run.words)
        if run.number is not None:
            spans.append(Markup('<tspan class="no"> {}</tspan>').format(run.number))
    made = '<text x="{}" y="{}" xml:space="preserve"{}>{}</text>'
    turned = Markup(' direction="rtl"') if right_to_left else Markup("")
    return Markup(made).format(place(room if right_to_left else 0), place(y), turned, Markup("").join(spans))


def _is_right_to_left(text: str) -> bool:
    """Whether the first letter with a direction is of a script that runs from right to left."""
    kinds = (unicodedata.bidirectional(character) for character in text[:2000])
    return next((kind in _RIGHT_TO_LEFT for kind in kinds if kind in ("L", *_RIGHT_TO_LEFT)), False)
