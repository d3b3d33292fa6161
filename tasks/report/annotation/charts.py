"""Agreement as SVG: a row for each concept with its interval; before people were asked a square, afterwards a disc."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from markupsafe import Markup

from tasks.display import draw, say
from tasks.display.axis import axis
from tasks.display.bars import HEAD, LABELS, ROW
from tasks.report.annotation.figures import Phase
from tasks.stats.estimate import Estimate

RIGHT = 90.0
"""Per cent of the width where the axis ends; figures stand right of it."""


def spans(title: str, phase: Phase, concepts: Mapping[str, Estimate], within: Iterable[float]) -> Markup:
    """One row for each concept, at least one. within: values that the axis holds, so that charts can be compared."""
    on = axis(within, most=4, left=LABELS, right=RIGHT)
    height = HEAD + ROW * len(concepts)
    marks = []
    for tick in on.ticks:
        marks.append(draw.line(on.x(tick), HEAD - 4, on.x(tick), height, "grid zero" if tick == 0 else "grid"))
        marks.append(draw.text(on.x(tick), 11, f"{tick:g}".replace("-", "−"), ""))
    for at, (concept, one) in enumerate(concepts.items()):
        y = HEAD + ROW * (at + 0.5)
        marks.append(draw.text(LABELS - 1.5, y + 4, say.cut(concept, 34), "it", "end"))
        if one.low is not None and one.high is not None:
            marks.append(draw.line(on.x(one.low), y, on.x(one.high), y, "gl" if phase == "before" else "ml"))
        if one.value is not None:
            x = on.x(one.value)
            marks.append(draw.square(x, y) if phase == "before" else draw.circle(x, y, 4.5, "mf"))
            marks.append(draw.text(100, y + 4, say.number(one.value), "", "end"))
    said = "; ".join(f"{concept} {say.number(one.value)}" for concept, one in concepts.items() if one.value is not None)
    return draw.svg(height, marks, f"{title}: {said}")
