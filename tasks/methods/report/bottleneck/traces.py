"""How single responses came by their grade: which are worth looking at, all that is known of each, and that as HTML.

A picture shows, from above: the grade with the probability of every grade; the response, shaded where concepts look,
with the number of the concept behind it; a row for each concept, the weightiest first, whose last column is a waterfall
from the bias to the logit of the grade (REC-CBM, section 5.7).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class ResponseTrace:
    """One response."""

    response_id: str
    text: str
    names: Mapping[str, str]
    """Concept → what people read, in order; they are numbered from 1."""
    rows: tuple[Row, ...]
    """Its rows of `traces`, in the order of the names, without the bias."""
    bias: float
    score: float
    probability: float
    logit: float
    runner_up: float | None
    human: float | None
    """The score that people gave; None where it is not known."""
    grades: Mapping[float, float]
    """Score → calibrated probability; empty where the grader's head is not known."""

    @property
    def numbers(self) -> dict[str, int]:
        """Concept → its number."""
        return {name: number for number, name in enumerate(self.names, 1)}


def exported(models: pa.Table) -> Row | None:
    """The row of `models` of the grader that was exported."""
    rows = models.filter(pc.is_valid(models["head"])).to_pylist()
    return rows[0] if rows else None


def head_of(models: pa.Table) -> Row | None:
    """What lies behind the bottleneck of that grader, see `Models.head`; None where nothing was exported."""
    best = exported(models)
    return json.loads(best["head"]) if best else None


def choose_responses(traces: pa.Table, models: pa.Table) -> dict[str, str]:
    """Response → why it is worth looking at: the surest right grade, the surest wrong one, the least decided.

    A response without a human grade is neither right nor wrong. Ties go by response id.
    """
    head = head_of(models)
    firsts: dict[str, Row] = {}
    shares = defaultdict[str, dict[str, float]](dict)
    for row in traces.drop_columns(["attention"]).sort_by("response_id").to_pylist():
        firsts.setdefault(row["response_id"], row)
        if row["share"] is not None:
            shares[row["response_id"]][row["criterion_id"]] = row["share"]

    def margin(name: str) -> float:
        """The grade's probability less that of the next; alone where that is not known."""
        likely = sorted(grades(shares[name], head).values(), reverse=True)
        return likely[0] - likely[1] if len(likely) > 1 else float(firsts[name]["probability"])

    sure = sorted(firsts, key=lambda name: -firsts[name]["probability"])
    reasons = defaultdict[str, list[str]](list)
    for is_wanted, which in ((True, "right"), (False, "wrong")):
        for name in [name for name in sure if is_right(firsts[name]) is is_wanted][:1]:
            reasons[name].append(f"the surest of the {which} grades")
    for name in sorted(firsts, key=margin)[:1]:
        reasons[name].append("the least decided grade")
    return {name: ", and ".join(whys) for name, whys in reasons.items()}


def read(
    traces: pa.Table,
    response_id: str,
    text: str,
    names: Mapping[str, str],
    head: Row | None = None,
) -> ResponseTrace:
    """One response's rows of `traces` with its text. head: see `head_of`."""
    rows = {row["criterion_id"]: row for row in traces.filter(pc.field("response_id") == response_id).to_pylist()}
    concepts = tuple(rows[name] for name in names if name in rows)
    first = next(iter(rows.values()))
    shares = {row["criterion_id"]: row["share"] for row in concepts if row["share"] is not None}
    return ResponseTrace(
        response_id=response_id,
        text=text,
        names=names,
        rows=concepts,
        bias=rows[BIAS]["contribution"] if BIAS in rows else 0.0,
        score=first["score"],
        probability=first["probability"],
        logit=first["logit"],
        runner_up=first["runner_up"],
        human=first["human"],
        grades=grades(shares, head),
    )


def grades(shares: Mapping[str, float], head: Row | None) -> dict[float, float]:
    """Score → calibrated probability: softmax of (W·A·s̃ + b)/T (REC-CBM, Eqs. 20 and 22); empty where there is no head
    or a concept's share s̃ is missing."""
    if head is None or not set(head["criteria"]) <= shares.keys():
        return {}
    observed = np.array([shares[name] for name in head["criteria"]])
    logits = np.array(head["weights"]) @ (np.array(head["correction"]) @ observed) + np.array(head["bias"])
    likely: Sequence[float] = softmax(logits / head["temperature"]).tolist()
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


def picture(trace: ResponseTrace) -> Markup:
    """The trace, for a page with `trace.css`."""
    rows = sorted(trace.rows, key=lambda row: -abs(row["contribution"]))
    bias, *steps, total = waterfall([trace.bias, *(row["contribution"] for row in rows)], trace.logit)
    probabilities = [level_columns(row["level_probabilities"] or ()) for row in rows]
    attention = {trace.numbers[row["criterion_id"]]: row["attention"] for row in trace.rows}
    return filled(
        TEMPLATE,
        trace=trace,
        response=shaded(trace.text, attention),
        grades=tuple(grade_columns(trace)),
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
        falls.append(Fall(start, end, min(start, end), abs(end - start)))
    return falls


def grade_columns(trace: ResponseTrace) -> Iterator[ProbabilityColumn]:
    """The probability of each grade; where there are many only those that matter carry their label."""
    labelled = {trace.score, trace.runner_up, trace.human}
    for score, share in trace.grades.items():
        name = say.level(score)
        kinds = (("most", score == trace.score), ("people", score == trace.human))
        kind = " ".join(name for name, holds in kinds if holds)
        label = name if len(trace.grades) <= LABELLED or score in labelled else ""
        yield ProbabilityColumn(label, share, f"{name}: {say.share(share)}", kind)


def level_columns(likely: Sequence[float]) -> list[ProbabilityColumn]:
    """The probability of each level."""
    columns = []
    for level, share in enumerate(likely):
        label = str(level) if len(likely) <= LABELLED else ""
        kind = "most" if share == max(likely) else ""
        columns.append(ProbabilityColumn(label, share, f"{level}: {say.share(share)}", kind))
    return columns


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


def shaded(text: str, attention: Mapping[int, Rows]) -> Markup:
    """The response as HTML, a long one cut around what is looked at: marks of the classes w1 to w3, the heaviest."""
    pieces = attended_spans(text, attention)
    most = max((piece.weight for piece in pieces), default=0.0) or 1.0

    def shade(over: Sequence[AttendedSpan]) -> str:
        return f"w{min(1 + int(SHADES * over[0].weight / most), SHADES)}" if over else ""

    highlights = [Highlight(piece.start, piece.end, piece) for piece in pieces]
    return marked(excerpt(text, highlights), shade, lambda piece: piece.number)
