"""One response's decision trace as SVG: what is read where, each concept's levels, their correction, and what adds up.

From above: the grade with the probability of every grade; the response, shaded where concepts look; a row for each
concept, the weightiest first, whose last column is a waterfall from the bias to the logit of the grade (REC-CBM,
section 5.7).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, partial
from itertools import accumulate
from pathlib import Path

from markupsafe import Markup

from tasks.display import say
from tasks.display.draw import place
from tasks.report.bottleneck.shading import answer, looked
from tasks.report.bottleneck.traces import Row, Trace
from tasks.report.reward.boxes import clean, text, wrapped

WIDTH, EDGE, ROW = 980.0, 12.0, 40.0
"""Px: the picture without its edge, the edge around it, and a row of the table."""
LEVELS, EXPECTED, SHARE, CORRECTED, FALL, END = 214.0, 400.0, 460.0, 524.0, 560.0, 920.0
"""Px: where the levels begin, where the figures end, and from where to where the waterfall goes."""
GRADES, GRADES_HIGH, LEVEL_HIGH = 560.0, 46.0, 20.0
"""Px: where the grades begin, and the highest bar of a grade and of a level."""
LABELLED = 16
"""Grades of which each carries its label."""
SMALLEST = 0.75
"""A picture that does not fit shrinks to this share of its size; from there on it is scrolled."""
PALETTE = {
    "paper": ("#fff", "#141618"),
    "ink": ("#1b1d1f", "#e8e8e4"),
    "mute": ("#5a5f64", "#a4aab0"),
    "line": ("#dddcd7", "#353a3f"),
    "track": ("#f0efec", "#24282c"),
    "machine": ("#1a5fb4", "#84b6f4"),
    "human": ("#a84b00", "#f0a45d"),
    "bad": ("#a3123f", "#f58aa8"),
    "pale": ("#e6eef8", "#243040"),
    "middle": ("#cfdff2", "#304258"),
    "deep": ("#b3cdec", "#3f5a7b"),
}
"""Colour → as it is on light, and on dark ground."""


def picture(trace: Trace, alone: bool = False) -> Markup:
    """The trace. alone: as a file of its own; else it needs `style` on its page."""
    marks = [*_head(trace), *_grades(trace)]
    attention = {trace.numbers[row["criterion_id"]]: row["attention"] for row in trace.rows}
    shaded, y = answer(trace.text, looked(trace.text, attention), WIDTH, 92)
    marks += [*shaded, text(0, y + 16, "Shaded: what a concept looks at most, with its number.", "quiet")]
    rows, height = _table(trace, y + 56)
    return _svg(marks + rows, height, _said(trace), alone)


@cache
def style() -> Markup:
    """The rules that a picture needs, once per page: literal colours, since not every viewer of SVG knows variables."""
    rules = (Path(__file__).parent / "trace.css").read_text(encoding="utf-8")
    light, dark = (re.sub("|".join(f"~{name}" for name in PALETTE), partial(_colour, at), rules) for at in (0, 1))
    return Markup(f"{light}@media screen and (prefers-color-scheme: dark) {{\n{dark}}}\n")


def _colour(at: int, found: re.Match[str]) -> str:
    return PALETTE[found[0][1:]][at]


def _head(trace: Trace) -> list[Markup]:
    below = [f"next: {say.level(trace.runner_up)}"] if trace.runner_up is not None else []
    below.append(f"people gave {say.level(trace.human)}" if trace.human is not None else "no human grade")
    return [
        text(0, 18, f"Grade {say.level(trace.score)}, {say.share(trace.probability)} sure", "big"),
        text(0, 42, "; ".join(below), "quiet"),
        text(0, 62, f"Response {clean(trace.response_id)[:90]}", "quiet"),
    ]


def _grades(trace: Trace) -> list[Markup]:
    """The probability of each grade; people's is ringed."""
    if not trace.grades:
        return []
    slot = (WIDTH - GRADES) / len(trace.grades)
    named = {trace.score, trace.runner_up, trace.human}
    marks = []
    for at, (score, likely) in enumerate(trace.grades.items()):
        middle, high = GRADES + slot * (at + 0.5), max(GRADES_HIGH * likely, 0.8)
        wide = min(0.7 * slot, 40.0)
        kind = "full" if score == trace.score else "rest"
        marks.append(_box(kind, middle - wide / 2, 14 + GRADES_HIGH - high, wide, high))
        if len(trace.grades) <= LABELLED or score in named:
            marks.append(text(middle, 78, say.level(score), "chosen" if score == trace.score else "quiet", "middle"))
        if likely >= 0.05 and slot >= 28:
            marks.append(text(middle, 10 + GRADES_HIGH - high, say.share(likely), "tiny", "middle"))
        if score == trace.human:
            marks.append(Markup('<ellipse class="ring" cx="{}" cy="73.5" rx="14" ry="10"/>').format(place(middle)))
    return marks


def _table(trace: Trace, y: float) -> tuple[list[Markup], float]:
    """The rows from there on, and where they end."""
    heads = (
        (0.0, "Concept", "start"),
        (LEVELS, "levels", "start"),
        (EXPECTED, "expected", "end"),
        (SHARE, "share", "end"),
        (CORRECTED, "corrected", "end"),
        (FALL, f"adds to the logit of grade {say.level(trace.score)}", "start"),
    )
    marks = [text(x, y - 8, words, "quiet", anchor) for x, words, anchor in heads]
    order = sorted(trace.rows, key=lambda row: -abs(row["contribution"]))
    steps = [("bias", trace.bias), *((row["criterion_id"], row["contribution"]) for row in order)]
    x = _scale(steps, trace.logit)
    marks.append(_line("zero", x(0), y, x(0), y + ROW * (len(steps) + 1)))
    start = 0.0
    for row, (name, added) in zip((None, *order), steps, strict=True):
        cells = [_line("rule", 0, y, WIDTH, y), *_fall(x, start, added, y)]
        cells += _concept(row, str(trace.numbers[name]), trace.names[name], y) if row else [text(0, y + 24, "bias", "")]
        told = _told(row, trace.names[name]) if row else f"bias: {say.signed(added)}"
        marks.append(Markup("<g><title>{}</title>{}</g>").format(told, Markup("").join(cells)))
        start, y = start + added, y + ROW
    marks += [_line("rule", 0, y, WIDTH, y), text(0, y + 24, f"logit of grade {say.level(trace.score)}", "strong")]
    left, right = sorted((x(0), x(trace.logit)))
    marks.append(_box("total", left, y + 14, max(right - left, 1), 12))
    marks.append(text(right + 6, y + 24, say.number(trace.logit), "value strong"))
    return marks, y + ROW


def _scale(steps: Sequence[tuple[str, float]], logit: float) -> partial[float]:
    """From logits to px: all that the waterfall reaches lies between `FALL` and `END`."""
    reached = [0.0, *accumulate(added for _, added in steps), logit]
    low, high = min(reached), max(reached)
    return partial(_placed, low, max(high - low, 1e-9))


def _placed(low: float, span: float, value: float) -> float:
    return FALL + (value - low) / span * (END - FALL)


def _concept(row: Row, number: str, name: str, y: float) -> list[Markup]:
    """A concept's number, name, levels and figures."""
    lines = wrapped(name, 172, 2)
    marks = [text(0, y + 24, number, "strong")]
    marks += [text(22, y + (24 if len(lines) == 1 else 17 + 15 * at), line, "") for at, line in enumerate(lines)]
    marks += _levels(row["level_probabilities"] or [], y)
    for x, value in ((EXPECTED, row["expected"]), (SHARE, row["share"]), (CORRECTED, row["corrected"])):
        marks.append(text(x, y + 24, "–" if value is None else say.number(value), "", "end"))
    return marks


def _levels(likely: Sequence[float], y: float) -> list[Markup]:
    """The probability of each level as a column, its level below."""
    slot = min(26.0, 130.0 / max(len(likely), 1))
    most = max(likely, default=0.0)
    marks = []
    for level, share in enumerate(likely):
        x, high = LEVELS + slot * level, max(LEVEL_HIGH * share, 0.8)
        marks.append(_box("track", x, y + 5, 0.85 * slot, LEVEL_HIGH))
        marks.append(_box("full" if share == most else "rest", x, y + 5 + LEVEL_HIGH - high, 0.85 * slot, high))
        if len(likely) <= 10:
            style = "tiny chosen" if share == most else "tiny"
            marks.append(text(x + 0.425 * slot, y + 36, str(level), style, "middle"))
    return marks


def _fall(x: partial[float], start: float, added: float, y: float) -> list[Markup]:
    """One step: filled where it adds, hollow and dashed where it takes away."""
    left, right = sorted((x(start), x(start + added)))
    bar = _box("full" if added >= 0 else "down", left, y + 14, max(right - left, 1), 12)
    after = _line("step", x(start + added), y + 26, x(start + added), y + ROW + 14)
    return [bar, after, text(right + 6, y + 24, say.signed(added), "value")]


def _told(row: Row, name: str) -> str:
    likely = ", ".join(f"{at}: {say.share(share)}" for at, share in enumerate(row["level_probabilities"] or []))
    return f"{clean(name)}: levels {likely or say.NOT_KNOWN}; adds {say.signed(row['contribution'])}"


def _said(trace: Trace) -> str:
    """The trace in words."""
    added = [f"bias {say.signed(trace.bias)}"]
    added += [f"{clean(trace.names[row['criterion_id']])} {say.signed(row['contribution'])}" for row in trace.rows]
    told = f"Decision trace: grade {say.level(trace.score)} with probability {say.share(trace.probability)}"
    return f"{told}. {', '.join(added)} make the logit {say.number(trace.logit)}"


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    made = '<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>'
    return Markup(made).format(kind, *map(place, (x1, y1, x2, y2)))


def _box(kind: str, x: float, y: float, wide: float, high: float) -> Markup:
    made = '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>'
    return Markup(made).format(kind, *map(place, (x, y, wide, high)))


def _svg(marks: Sequence[Markup], height: float, said: str, alone: bool) -> Markup:
    """The document; alone, it has its own ground and style."""
    sizes = [place(value) for value in (-EDGE, -EDGE, WIDTH + 2 * EDGE, height + 2 * EDGE)]
    ground = Markup("")
    if alone:
        ground = Markup('<style>{}</style><rect class="paper" x="{}" y="{}" width="{}" height="{}"/>')
        ground = ground.format(style(), *sizes)
        size = Markup('xmlns="http://www.w3.org/2000/svg" width="{}" height="{}"').format(*sizes[2:])
    else:
        size = Markup('style="min-width:{}px;max-width:{}px"').format(place(SMALLEST * WIDTH), sizes[2])
    opened = Markup('<svg class="trace" {} viewBox="{}" role="img" aria-label="{}">')
    return opened.format(size, " ".join(sizes), said) + ground + Markup("").join(marks) + Markup("</svg>")
