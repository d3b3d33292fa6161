"""How single responses came by their grade: which are worth looking at, all that is known of each, and that as HTML.

A picture shows, from above: the grade with the probability of every grade; the response, shaded where concepts look,
with the number of the concept behind it; a row for each concept, the weightiest first, whose last column is a waterfall
from the bias to the logit of the grade (REC-CBM, section 5.7).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup
from scipy.special import softmax

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import filled, marked
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.text.highlight import Highlight, excerpt

BIAS = "bias"
"""The criterion id of what is added whatever the response says."""
TEMPLATE, STYLE = (Path(__file__).with_name(name) for name in ("trace.html.j2", "trace.css"))
"""What a picture is made by, and the rules that a page with pictures needs."""
REACH = 80.0
"""Per cent of the waterfall's width that its bars may take up; behind them stand the numbers."""
LABELLED = 16
"""Columns of which each carries its label."""
JOINED = re.compile(r"[\s,;:.'’“”\"()\-–]{0,3}")
"""What may lie between two tokens that are shaded as one."""
SHADES = 3


Traces = Mapping[str, Mapping[str, Row]]
"""Response → criterion → its row of `traces`, the bias among them."""


def exported(models: pa.Table) -> Row | None:
    """The row of `models` of the grader that was exported."""
    rows = models.filter(pc.is_valid(models["head"])).to_pylist()
    return rows[0] if rows else None


def by_response(traces: pa.Table) -> Traces:
    """The rows of `traces`, responses in the order of their ids."""
    found = defaultdict[str, dict[str, Row]](dict)
    for row in traces.sort_by("response_id").to_pylist():
        found[row["response_id"]][row["criterion_id"]] = row
    return found


def choose_responses(traces: Traces, head: Row) -> dict[str, str]:
    """Response → why it is worth looking at: the surest right grade, the surest wrong one, the least decided.

    A response without a human grade is neither right nor wrong. Ties go by response id. head: see `Models.head`.
    """
    firsts = {name: next(iter(rows.values())) for name, rows in traces.items()}

    def margin(name: str) -> float:
        """The grade's probability less that of the next."""
        likely = sorted(grades(traces[name], head).values())
        return likely[-1] - likely[-2] if len(likely) > 1 else 1.0

    sure = sorted(firsts, key=lambda name: -firsts[name]["probability"])
    reasons = defaultdict[str, list[str]](list)
    for is_wanted, which in ((True, "right"), (False, "wrong")):
        for name in [name for name in sure if is_right(firsts[name]) is is_wanted][:1]:
            reasons[name].append(f"the surest of the {which} grades")
    for name in sorted(firsts, key=margin)[:1]:
        reasons[name].append("the least decided grade")
    return {name: ", and ".join(whys) for name, whys in reasons.items()}


def grades(rows: Mapping[str, Row], head: Row) -> dict[float, float]:
    """Score → calibrated probability: softmax of (W·A·s̃ + b)/T (REC-CBM, Eqs. 20 and 22)."""
    shares = np.array([rows[name]["share"] for name in head["criteria"]])
    logits = np.array(head["weights"]) @ (np.array(head["correction"]) @ shares) + np.array(head["bias"])
    likely: list[float] = softmax(logits / head["temperature"]).tolist()
    return dict(zip(head["scores"], likely, strict=True))


def is_right(row: Row) -> bool | None:
    """Whether the grade of a row is people's; None where there is none."""
    return None if row["human"] is None else abs(row["human"] - row["score"]) < 1e-9


class ProbabilityColumn(NamedTuple):
    """The probability of a level or grade."""

    name: str
    """Empty where it would not fit."""
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


def picture(rows: Mapping[str, Row], text: str, names: Mapping[str, str], head: Row) -> Markup:
    """The trace of a response, for a page with `trace.css`. rows: criterion → its row; names: concept → what people
    read, in order; they are numbered from 1."""
    first = next(iter(rows.values()))
    numbers = {name: number for number, name in enumerate(names, 1)}
    concepts = sorted((rows[name] for name in names), key=lambda row: -abs(row["contribution"]))
    offset = rows[BIAS]["contribution"]
    bias, *steps, total = waterfall([offset, *(row["contribution"] for row in concepts)], first["logit"])
    levels = []
    for row in concepts:
        likely = {float(level): share for level, share in enumerate(row["level_probabilities"])}
        levels.append(columns(likely, max(likely, key=lambda level: likely[level])))
    return filled(
        TEMPLATE,
        trace=first,
        names=names,
        numbers=numbers,
        response=shaded(text, {numbers[name]: rows[name]["attention"] for name in names}),
        grades=columns(grades(rows, head), first["score"], first["human"]),
        offset=offset,
        bias=bias,
        rows=list(zip(concepts, levels, steps, strict=True)),
        total=total,
    )


def waterfall(added: Sequence[float], logit: float) -> list[Fall]:
    """A step for each number that is added, and the logit as a last one from 0."""
    ends = [0.0, *accumulate(added)]
    low = min(*ends, logit)
    high = max(*ends, logit)
    scale = REACH / max(high - low, 1e-9)
    falls = []
    for before, after in (*pairwise(ends), (0.0, logit)):
        start = (before - low) * scale
        end = (after - low) * scale
        falls.append(Fall(start, end, min(start, end), abs(end - start)))
    return falls


def columns(likely: Mapping[float, float], most: float, people: float | None = None) -> list[ProbabilityColumn]:
    """The probability of each level or grade; where there are many, only the one chosen and people's carry a label."""
    found = []
    for value, share in likely.items():
        name = say.level(value)
        kind = f"{'most' if value == most else ''} {'people' if value == people else ''}".strip()
        label = name if len(likely) <= LABELLED or kind else ""
        found.append(ProbabilityColumn(label, share, f"{name}: {say.share(share)}", kind))
    return found


class AttendedSpan(NamedTuple):
    """A piece [start, end) of the response that one concept looks at more than any other."""

    start: int
    end: int
    number: int
    """Of the concept, from 1."""
    weight: float
    """Its heaviest token's share of the concept's attention."""


def attended_spans(text: str, attention: Mapping[int, Rows]) -> list[AttendedSpan]:
    """What is looked at, in order and without overlaps: each token goes to the concept that weighs it most; neighbours
    of one concept are joined. attention: number of the concept → its `Attended` rows."""
    tokens = []
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


def shaded(text: str, attention: Mapping[int, Rows]) -> Markup:
    """The response as HTML, a long one cut around what is looked at: marks of the classes w1 to w3, the heaviest."""
    pieces = attended_spans(text, attention)
    most = max((piece.weight for piece in pieces), default=0.0) or 1.0

    def shade(over: Sequence[AttendedSpan]) -> str:
        return f"w{min(1 + int(SHADES * over[0].weight / most), SHADES)}" if over else ""

    highlights = [Highlight(piece.start, piece.end, piece) for piece in pieces]
    return marked(excerpt(text, highlights), shade, lambda piece: piece.number)
