"""One response's decision trace as HTML: what is read where, each concept's levels, their correction, and what adds up.

From above: the grade with the probability of every grade; the response, shaded where concepts look; a row for each
concept, the weightiest first, whose last column is a waterfall from the bias to the logit of the grade (REC-CBM,
section 5.7).

A response with what concepts look at shaded, and the number of the concept behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.marked import marked
from rubricflow.tasks.core.display.page import filled
from rubricflow.tasks.core.text.highlight import Highlight, excerpt
from rubricflow.tasks.methods.report.bottleneck.traces import ResponseTrace

HERE = Path(__file__).parent
REACH = 80.0
"""Per cent of the waterfall's width that its bars may take up; behind them stand the numbers."""
LABELLED = 16
"""Columns of which each carries its label."""


class ProbabilityColumn(NamedTuple):
    """The probability of a level or grade."""

    name: str
    """Empty where there is no room for it."""
    share: float
    tooltip: str
    kind: str
    """`most` for what was chosen; `people` for what people gave."""


class Fall(NamedTuple):
    """One step of the waterfall, in per cent of its width: from where to where, and the bar's left edge and width."""

    start: float
    end: float
    bar_start: float
    bar_width: float


def picture(trace: ResponseTrace) -> Markup:
    """The trace, for a page with `trace.css`."""
    rows = sorted(trace.rows, key=lambda row: -abs(row["contribution"]))
    bias, *steps, total = waterfall([trace.bias, *(row["contribution"] for row in rows)], trace.logit)
    probabilities = [levels(row["level_probabilities"] or ()) for row in rows]
    attention = {trace.numbers[row["criterion_id"]]: row["attention"] for row in trace.rows}
    return filled(
        HERE / "trace.html.j2",
        trace=trace,
        response=shaded(trace.text, attention),
        grades=tuple(grades(trace)),
        bias=bias,
        rows=list(zip(rows, probabilities, steps, strict=True)),
        total=total,
    )


def waterfall(added: Sequence[float], logit: float) -> list[Fall]:
    """A step for each number that is added, and the logit as a last one from 0."""
    ends = [0.0, *accumulate(added)]
    low, high = min(*ends, logit), max(*ends, logit)
    scale = REACH / max(high - low, 1e-9)
    falls = []
    for before, after in (*pairwise(ends), (0.0, logit)):
        start, end = (before - low) * scale, (after - low) * scale
        falls.append(Fall(start, end, min(start, end), max(start, end) - min(start, end)))
    return falls


def grades(trace: ResponseTrace) -> Iterator[ProbabilityColumn]:
    """The probability of each grade; where there are many only those that matter carry their label."""
    labelled = {trace.score, trace.runner_up, trace.human}
    for score, share in trace.grades.items():
        name = say.level(score)
        kinds = (("most", score == trace.score), ("people", score == trace.human))
        kind = " ".join(name for name, holds in kinds if holds)
        label = name if len(trace.grades) <= LABELLED or score in labelled else ""
        yield ProbabilityColumn(label, share, f"{name}: {say.share(share)}", kind)


def levels(likely: Sequence[float]) -> list[ProbabilityColumn]:
    """The probability of each level."""
    most = max(likely, default=0.0)
    columns = []
    for level, share in enumerate(likely):
        label = str(level) if len(likely) <= LABELLED else ""
        kind = "most" if share == most else ""
        columns.append(ProbabilityColumn(label, share, f"{level}: {say.share(share)}", kind))
    return columns


@cache
def style() -> Markup:
    """The rules that a picture needs, once per page."""
    return Markup((HERE / "trace.css").read_text(encoding="utf-8"))


JOINED = re.compile(r"[\s,;:.'’“”\"()\-–]{0,3}")
"""What may lie between two tokens that are shaded as one."""
SHADES = 3


class AttendedSpan(NamedTuple):
    """A piece [start, end) of the response that one concept looks at more than any other."""

    start: int
    end: int
    number: int
    """Of the concept, from 1."""
    weight: float
    """Its heaviest token's share of the concept's attention."""


def attended_spans(text: str, attention: Mapping[int, Sequence[Mapping[str, Any]]]) -> list[AttendedSpan]:
    """What is looked at, in order and without overlaps: each token goes to the concept that weighs it most; neighbours
    of one concept are joined. attention: number of the concept → its `Attended` rows."""
    tokens: list[AttendedSpan] = []
    for number, attended in attention.items():
        tokens += [AttendedSpan(token["start"], token["end"], number, token["weight"]) for token in attended]
    chosen: list[AttendedSpan] = []
    for token in sorted(tokens, key=lambda token: (-token.weight, token)):
        if token.start < token.end and all(token.end <= other.start or other.end <= token.start for other in chosen):
            chosen.append(token)
    joined: list[AttendedSpan] = []
    for token in sorted(chosen):
        last = joined[-1] if joined else None
        if last and last.number == token.number and JOINED.fullmatch(text[last.end : token.start]):
            joined[-1] = AttendedSpan(last.start, token.end, token.number, max(last.weight, token.weight))
        else:
            joined.append(token)
    return joined


def shaded(text: str, attention: Mapping[int, Sequence[Mapping[str, Any]]]) -> Markup:
    """The response as HTML, a long one cut around what is looked at: marks of the classes w1 to w3, the heaviest."""
    pieces = attended_spans(text, attention)
    most = max((piece.weight for piece in pieces), default=0.0) or 1.0

    def shade(over: Sequence[AttendedSpan]) -> str:
        return f"w{min(1 + int(SHADES * over[0].weight / most), SHADES)}" if over else ""

    highlights = [Highlight(piece.start, piece.end, piece) for piece in pieces]
    return marked(excerpt(text, highlights), shade, lambda piece: piece.number)
