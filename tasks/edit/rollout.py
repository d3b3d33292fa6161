"""A grader's reasoning: the sample it grades, the steps of its rollout, and the mark that the rollout ends with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from tasks.contracts.tables.edit import Unmarked

SCAFFOLD = "Final mark: "
"""What stands before the mark: the last line of a rollout, and what the belief probe appends (section 2.1)."""

_STATED = re.compile(r"^[ \t*#>-]*final mark[* \t]*[:：][* \t]*(?P<mark>[^\n]*)$", re.IGNORECASE | re.MULTILINE)
_NUMBER = re.compile(
    r"(?P<mark>-?[0-9]{1,6}(?:\.[0-9]{1,6})?)[* \t]*\(?(?:(?:/|out of)[ \t]*[0-9]{1,6})?\)?(?:[ \t]*marks?)?[ \t.*]*",
    re.IGNORECASE,
)
"""The mark as people dress it: bold, out of the highest, with its unit."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")


@dataclass(frozen=True, slots=True)
class Sample:
    """What is graded: x = {q, ρ, a} with the marks it may get."""

    response_id: str
    item_id: str
    question: str
    """q, with the material that belongs to it."""
    scheme: str
    """ρ, the mark scheme as printed for the grader."""
    answer: str
    """a, the student's text."""
    top: int
    """M_q, the highest mark, ≥ 1; the lowest is 0."""
    gold: int | None = None
    """m*, the human mark; None where there is none."""


class Step(NamedTuple):
    """A step of a rollout: text[start:end], white space around it left out."""

    start: int
    end: int


class Stated(NamedTuple):
    """The mark that a rollout states: a value, or why there is none."""

    mark: int | None
    reason: Unmarked | None


def cut(text: str) -> tuple[Step, ...]:
    """The steps of a rollout in order, without the line that states the mark and what follows it.

    The paper leaves the cut open; ours: a step is a line; reasoning on one line is cut into sentences, also of scripts
    that put no space between them. White space alone is no step, so an empty rollout has none.

    >>> text = "P1 is met.\\nP2 is not.\\nFinal mark: 1"
    >>> [text[step.start : step.end] for step in cut(text)]
    ['P1 is met.', 'P2 is not.']
    """
    stated = _last(text)
    end = stated.start() if stated else len(text)
    lines = list(_pieces(text, 0, end, re.compile(r"\n")))
    return tuple(_pieces(text, *lines[0], _SENTENCE)) if len(lines) == 1 else tuple(lines)


def read_mark(text: str, top: int) -> Stated:
    """The mark that the last 'Final mark: …' line states, an integer in 0…top.

    >>> read_mark("…\\nFinal mark: 3", 4), read_mark("…\\nFinal mark: 5", 4).reason, read_mark("3", 4).reason
    (Stated(mark=3, reason=None), 'off_scale', 'no_mark')
    """
    stated = _last(text)
    number = _NUMBER.fullmatch(stated["mark"].strip()) if stated else None
    if number is None:
        return Stated(None, "no_mark")
    mark = float(number["mark"])
    return Stated(int(mark), None) if mark.is_integer() and 0 <= mark <= top else Stated(None, "off_scale")


def states_mark(text: str) -> bool:
    """Whether a line states a mark, on the scale or off it.

    >>> states_mark("…\\nFinal mark: 30"), states_mark("…\\nFinal mark: N")
    (True, False)
    """
    return read_mark(text, 0).reason != "no_mark"


def up_to_mark(text: str, top: int) -> str:
    """A rollout up to the line that states its mark, without what the policy went on to write; all of it where no line
    does."""
    stated = _last(text)
    return text[: stated.end()] if stated and read_mark(text, top).mark is not None else text


def without_mark(text: str) -> str:
    """A text without a last line that states a mark."""
    stated = _last(text)
    return text[: stated.start()] if stated and stated.end() == len(text) else text


def _last(text: str) -> re.Match[str] | None:
    return next(reversed(list(_STATED.finditer(text))), None)


def _pieces(text: str, start: int, end: int, between: re.Pattern[str]) -> list[Step]:
    """text[start:end] between separators, stripped, the empty ones left out."""
    ends = [match.span() for match in between.finditer(text, start, end)]
    steps, begin = [], start
    for stop, after in [*ends, (end, end)]:
        piece = text[begin:stop]
        if piece.strip():
            lead = len(piece) - len(piece.lstrip())
            steps.append(Step(begin + lead, begin + len(piece.rstrip())))
        begin = after
    return steps
