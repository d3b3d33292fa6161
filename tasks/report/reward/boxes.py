"""A criterion as a box: id, role, weight, its text in a few lines and, for one response, what it earned."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from tasks.contracts.graph import Role
from tasks.display import say
from tasks.display.draw import place

Row = Mapping[str, Any]
WIDTH, INSET, LINE, TOP, BAR = 240.0, 14.0, 15.0, 22.0, 20.0
"""Size in px: a box's width, the room left of its text, a line of text, where the first stands, and a bar's height."""
ID_LENGTH = 12
_NARROW = frozenset("iljtfr.,:;'|!()[]- ")
_NOT_IN_XML = str.maketrans({"\ufffe": "⟨U+FFFE⟩", "\uffff": "⟨U+FFFF⟩"})


class Shown(NamedTuple):
    """What one response earned, by criterion; a criterion that is absent is not known."""

    local: Mapping[str, float]
    """Its own score, in [0, 1]."""
    marginal: Mapping[str, float]
    """What is left of it after the dependencies."""
    threshold: float
    """From this score on a criterion counts as supported."""


class Box(NamedTuple):
    """A criterion with its text cut to lines."""

    row: Row
    lines: tuple[str, ...]
    height: float


def box(row: Row, shown: Shown | None, most: int = 3) -> Box:
    """A row of `graph_nodes`, its text in at most so many lines."""
    lines = wrapped(row["text"], WIDTH - 2 * INSET, most)
    return Box(row, lines, TOP + LINE * len(lines) + 10 + (BAR if shown else 0))


def drawn(found: Box, x: float, y: float, shown: Shown | None) -> Markup:
    """The box with its upper left corner there; the whole text is its tooltip."""
    row, weight = found.row, signed(found.row["weight"])
    name = clean(row["criterion_id"])
    told = f"{name}, {row['role']}, weight {weight}: {clean(row['text'])}"
    marks = [
        Markup("<title>{}</title>").format(told + (f" ({_earned(row['criterion_id'], shown)})" if shown else "")),
        _shape(row["role"], found.height),
        text(INSET, TOP - 3, say.cut(name, ID_LENGTH), "id"),
        text(INSET + width(say.cut(name, ID_LENGTH)) * 1.12 + 8, TOP - 3, row["role"], "role"),
        text(WIDTH - INSET, TOP - 3, weight, "weight", "end"),
        *(text(INSET, TOP + 14 + LINE * at, line, "") for at, line in enumerate(found.lines)),
    ]
    if shown:
        marks.append(_bar(row["criterion_id"], shown, found.height - 14))
    return Markup('<g class="{}" transform="translate({} {})">{}</g>').format(
        row["role"], place(x), place(y), Markup("").join(marks)
    )


def text(x: float, y: float, words: str, style: str, anchor: str = "start") -> Markup:
    """Words at a place in px."""
    kind = Markup(' class="{}"').format(style) if style else ""
    end = Markup(' text-anchor="{}"').format(anchor) if anchor != "start" else ""
    return Markup('<text x="{}" y="{}"{}{}>{}</text>').format(place(x), place(y), kind, end, words)


def clean(words: str) -> str:
    """A text on one line with nothing in it that XML or a reader's eye does not take."""
    return say.visible(" ".join(words.split())).translate(_NOT_IN_XML)


def signed(weight: float) -> str:
    """+5, −2.5, 0."""
    return ("+" if weight > 0 else "") + say.level(weight)


def width(words: str) -> float:
    """About how wide a text is in px, rather too wide than too narrow."""
    return sum(map(_advance, words))


def wrapped(words: str, room: float, most: int) -> tuple[str, ...]:
    """The text in at most so many lines of that width in px, an ellipsis in place of what is left out; a word that is
    wider than a line is cut."""
    lines = [""]
    for word in (piece for whole in clean(words[: 400 * most]).split(" ") for piece in _pieces(whole, room)):
        longer = f"{lines[-1]} {word}".strip()
        if width(longer) <= room:
            lines[-1] = longer
        elif len(lines) < most:
            lines.append(word)
        else:
            return (*lines[:-1], next(_pieces(lines[-1], room - _advance("…"))) + "…")
    return tuple(lines)


def _pieces(word: str, room: float) -> Iterator[str]:
    """The word in pieces that are no wider than the room."""
    start, used = 0, 0.0
    for at, character in enumerate(word):
        used += _advance(character)
        if used > room and at > start:
            yield word[start:at]
            start, used = at, _advance(character)
    yield word[start:]


def _advance(character: str) -> float:
    if unicodedata.combining(character):
        return 0.0
    if unicodedata.east_asian_width(character) in "WF":
        return 13.0
    if character in _NARROW:
        return 4.0
    return 9.0 if character.isupper() or character in "mw%@—…" else 7.0


def _shape(role: Role, height: float) -> Markup:
    """The outline of a role: core a thick frame, additional round, penalty with its corners cut, applicability with
    pointed sides."""
    if role in ("core", "additional"):
        shape = '<rect class="box" width="{}" height="{}" rx="{}"/>'
        return Markup(shape).format(place(WIDTH), place(height), 2 if role == "core" else 16)
    cut, point = (10.0, 10.0) if role == "penalty" else (9.0, height / 2)
    corners = [(cut, 0.0), (WIDTH - cut, 0.0), (WIDTH, point), (WIDTH, height - point)]
    corners += [(WIDTH - cut, height), (cut, height), (0.0, height - point), (0.0, point)]
    return Markup('<path class="box" d="M{}Z"/>').format("L".join(f"{place(x)} {place(y)}" for x, y in corners))


def _bar(name: str, shown: Shown, y: float) -> Markup:
    """Hollow: the criterion's own score; filled: what is left of it."""
    room = WIDTH - 2 * INSET - 82
    own, left = shown.local.get(name), shown.marginal.get(name)
    rect = '<rect class="{}" x="{}" y="{}" width="{}" height="8"/>'
    marks = [Markup(rect).format("track", place(INSET), place(y - 4), place(room))]
    for style, value in (("own", own), ("left", left)):
        if value:
            marks.append(Markup(rect).format(style, place(INSET), place(y - 4), place(room * value)))
    marks.append(text(WIDTH - INSET, y + 4, _earned(name, shown), "quiet", "end"))
    return Markup("").join(marks)


def _earned(name: str, shown: Shown) -> str:
    own, left = shown.local.get(name), shown.marginal.get(name)
    if own is None:
        return "unscored"
    if left is None:
        return f"{say.number(own)} → ?"
    return say.number(own) if abs(own - left) < 0.005 else f"{say.number(own)} → {say.number(left)}"
