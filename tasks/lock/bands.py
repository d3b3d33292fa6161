"""Score bands in a rubric's prose: passages that begin with the score which they describe."""

from __future__ import annotations

import re
from typing import NamedTuple

from tasks.contracts.bundle import Scale

_MARK = re.compile(
    r"(?:^[ \t]*(?:[-*•]\s*)?|(?<=[.;!?])\s+)"
    r"(?:(?:score|level|band|grade|mark)\s+(?:of\s+)?(?P<named>\d+(?:\.\d+)?)\s*[:=–—-]"
    r"|(?P<plain>\d+(?:\.\d+)?)(?:\s+points?)?\s*[:=])\s*",
    re.IGNORECASE | re.MULTILINE,
)


class Band(NamedTuple):
    """A passage: text[start:end] says what `score` looks like; what it says begins at `body`."""

    score: float
    start: int
    body: int
    end: int


def bands(text: str, scale: Scale) -> list[Band]:
    """The bands in the order of the text; none unless there are at least two, of different scores on the scale.

    A band ends where the next one begins, the last at a blank line.
    """
    marks = list(_MARK.finditer(text))
    scores = [float(mark["named"] or mark["plain"]) for mark in marks]
    on_scale = all(scale.min <= score <= scale.max for score in scores)
    if len(marks) < 2 or len(set(scores)) < len(scores) or not on_scale:
        return []
    starts = [mark.start() + len(mark[0]) - len(mark[0].lstrip()) for mark in marks]
    blank = re.compile(r"\n\s*\n").search(text, marks[-1].end())
    ends = [*starts[1:], blank.start() if blank else len(text)]
    bodies = [mark.end() for mark in marks]
    return [Band(*columns) for columns in zip(scores, starts, bodies, ends, strict=True)]


def reversed_bands(text: str, scale: Scale) -> str:
    """The text with its bands in the reverse order; white space between them, and all else, stays where it is."""
    score_bands = bands(text, scale)
    if not score_bands:
        return text
    bodies = [text[band.start : band.end].rstrip() for band in score_bands]
    gaps = [text[band.start + len(body) : band.end] for band, body in zip(score_bands, bodies, strict=True)]
    middle = "".join(body + gap for body, gap in zip(reversed(bodies), gaps, strict=True))
    return text[: score_bands[0].start] + middle + text[score_bands[-1].end :]
