"""The rubric checklist: every marking point with a verdict and a quote, written by the policy with the gold mark at
hand (section 2.2). It is shown to nobody but the reviser.

The paper has the points listed verbatim; ours go by their ids, since their words stand in the scheme beside them.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from rubricflow.tasks.core.text.quotes import find, unquoted

Unusable = Literal["checklist_empty", "checklist_unreadable", "checklist_contradictory"]
"""Why a reply is no checklist: it decides no point of the scheme, a line with bars breaks the form, or it decides a
point both ways."""

LINE = 40
"""Tokens in which a line with a quote lies."""
_POINT = re.compile(r"^(?P<id>[^:\n]+): .*\((?:[^()]* marks?|counts)\)$", re.MULTILINE)
_LEVEL = re.compile(r"Level \d+")
_VERDICTS = {"covered": True, "not covered": False}
_DRESS = " \t\r*`•-"
_NOTHING = frozenset({"–", "—", "none", "nothing", "n/a"})


class Point(NamedTuple):
    """One line of a checklist."""

    id: str
    covered: bool
    quote: str
    """Words of the answer; '' where there are none."""

    @property
    def text(self) -> str:
        """The line as the reviser reads it."""
        return f"{self.id} | {'covered' if self.covered else 'not covered'} | {self.quote or 'none'}"


class Checklist(NamedTuple):
    """A checklist that keeps the form."""

    points: tuple[Point, ...]
    """In the order given; only points that the scheme has."""
    missing: tuple[str, ...]
    """Points of the scheme without a line."""
    unknown: tuple[str, ...]
    """Lines on points that the scheme does not have; they are left out."""
    unproven: tuple[str, ...]
    """Points whose quote does not stand in the answer: nothing supports them, so they are not covered."""

    @property
    def text(self) -> str:
        """As the reviser reads it."""
        return "\n".join(point.text for point in self.points)


def point_ids(scheme: str) -> tuple[str, ...]:
    """The points that a printed scheme names; none for levels, whose checklist lists what the answer may say.

    >>> point_ids("P1: roots absorb water (1 mark)\\nP2: leaves release it (0.5 marks)")
    ('P1', 'P2')
    """
    return tuple(name for name in line_ids(scheme) if not _LEVEL.fullmatch(name))


def line_ids(scheme: str) -> tuple[str, ...]:
    """What a checklist of a printed scheme has a line for: its points, or its levels, as the scheme calls them.

    >>> line_ids("Level 0: nothing (0 marks)\\nLevel 1: a reason (1-2 marks)")
    ('Level 0', 'Level 1')
    """
    return tuple(match["id"] for match in _POINT.finditer(scheme))


def room(scheme: str, least: int) -> int:
    """Tokens that a checklist may take: what rollouts may, or more where the scheme has more lines than that holds."""
    return max(least, LINE * len(line_ids(scheme)))


def is_line(line: str) -> bool:
    """Whether a line has a checklist's form."""
    return _parts(line) is not None


def read(reply: str, scheme: str, answer: str) -> Checklist | Unusable:
    """The checklist that a reply holds, one line for each point: `P1 | covered | "quote"`, or why it holds none.

    Verdicts are `covered` and `not covered` in any case; the quote and its marks are optional. Lines without a bar say
    nothing. A point decided twice in the same way counts once. Where the scheme names no points, any are taken.
    """
    ids = {name.casefold(): name for name in point_ids(scheme)}
    points: dict[str, Point] = {}
    unknown, unproven = [], []
    for line in reply.split("\n"):
        if "|" not in line:
            continue
        parts = _parts(line)
        if parts is None:
            return "checklist_unreadable"
        name = ids.get(parts.id.casefold()) if ids else parts.id
        if name is None:
            unknown.append(parts.id)
            continue
        point = parts._replace(id=name)
        if point.quote and find(point.quote, answer) is None:
            unproven.append(name)
            point = point._replace(covered=False, quote="")
        if points.setdefault(name, point).covered != point.covered:
            return "checklist_contradictory"
    if not points:
        return "checklist_empty"
    missing = tuple(name for name in ids.values() if name not in points)
    return Checklist(tuple(points.values()), missing, tuple(unknown), tuple(dict.fromkeys(unproven)))


def _parts(line: str) -> Point | None:
    """A line's point as written, without bullets, bold and quotation marks; None where it has another form."""
    parts = [part.strip(_DRESS) for part in line.strip().strip("|").split("|", 2)]
    verdict = " ".join(parts[1].casefold().split()) if len(parts) > 1 else ""
    if not parts[0] or verdict not in _VERDICTS:
        return None
    quote = unquoted(parts[2]) if len(parts) > 2 else ""
    return Point(parts[0], _VERDICTS[verdict], "" if quote.casefold() in _NOTHING else quote)
