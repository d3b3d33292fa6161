"""Agreement as SVG: a row for each concept with its interval; before people were asked a square, afterwards a disc."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from markupsafe import Markup

from tasks.contracts.tables.people import Phase
from tasks.display import draw, say
from tasks.display.axis import axis
from tasks.display.bars import LABELS, middle, rows
from tasks.stats.estimate import Estimate

RIGHT = 90.0
"""Per cent of the width where the axis ends; figures stand right of it."""


def spans(title: str, phase: Phase, concepts: Mapping[str, Estimate], within: Iterable[float]) -> Markup:
    """One row for each concept, at least one. within: values that the axis holds, so that charts can be compared."""
    on = axis(within, most=4, left=LABELS, right=RIGHT)
    height, marks = rows(on, [(concept, _number(estimate)) for concept, estimate in concepts.items()])
    for index, estimate in enumerate(concepts.values()):
        y = middle(index)
        if estimate.low is not None and estimate.high is not None:
            marks.append(draw.line(on.x(estimate.low), y, on.x(estimate.high), y, "gl" if phase == "before" else "ml"))
        if estimate.value is not None:
            x = on.x(estimate.value)
            marks.append(draw.square(x, y) if phase == "before" else draw.circle(x, y, 4.5, "mf"))
    words = "; ".join(f"{concept} {_number(estimate)}" for concept, estimate in concepts.items())
    return draw.svg(height, marks, f"{title}: {words}")


def _number(estimate: Estimate) -> str:
    return say.NOT_KNOWN if estimate.value is None else say.number(estimate.value)
