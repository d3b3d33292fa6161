"""What Edit does to rollouts, as SVG: the belief at every step, how many rollouts each phase lets through, and what
steps rest on. x in per cent of the width, y in px, as in the run report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from tasks.display import draw, say
from tasks.display.axis import axis
from tasks.display.bars import HEAD, LABELS, ROW, VALUES

TOP, BASE, LEFT, RIGHT = 14, 190, 9.0, 97.0
"""Px of the upper and lower edge of a belief chart, and its edges in per cent of the width."""
MOST_TICKS = 12


class Belief(NamedTuple):
    """The expected mark at boundaries 0…T of a rollout."""

    label: str
    expected: tuple[float, ...]


class Box(NamedTuple):
    """Where the middle of a set of values lies: its quantiles at 10, 25, 50, 75 and 90 per cent."""

    label: str
    quantiles: tuple[float, float, float, float, float]


def beliefs(title: str, of: Belief, mended: Belief | None, gold: int, top: int, chosen: Sequence[int]) -> Markup:
    """Expected mark by boundary, of a rollout and of what it was mended to, with the gold mark as a dashed line.

    chosen: boundaries after the steps chosen for revision, which are ringed.
    """
    steps = max(len(one.expected) for one in (of, mended) if one is not None) - 1
    high = axis([0.0, float(top)], most=5)

    def x(at: float) -> float:
        return LEFT + at / max(steps, 1) * (RIGHT - LEFT)

    def y(mark: float) -> float:
        return BASE - (mark - high.low) / (high.high - high.low) * (BASE - TOP)

    marks = [draw.line(LEFT, y(tick), RIGHT, y(tick), "grid") for tick in high.ticks]
    marks += [draw.text(LEFT - 1.5, y(tick) + 4, f"{tick:g}", "", "end") for tick in high.ticks]
    every = -(-(steps + 1) // MOST_TICKS)
    marks += [draw.text(x(at), BASE + 18, str(at), "") for at in range(0, steps + 1, every)]
    marks.append(draw.line(LEFT, y(gold), RIGHT, y(gold), "hl"))
    points = [(x(at), y(mark)) for at, mark in enumerate(of.expected)]
    labels = [draw.Label(say.cut(of.label, 40), "mt", _ends(points))]
    if mended is not None:
        after = [(x(at), y(mark)) for at, mark in enumerate(mended.expected)]
        marks += draw.polyline(after, "al dash")
        labels.append(draw.Label(say.cut(mended.label, 40), "at", _ends(after)))
        points = [*points, *after]
    mine = points[: len(of.expected)]
    marks += draw.polyline(mine, "ml") + [draw.circle(*mine[at], 7, "sq") for at in chosen]
    marks += [draw.circle(*point, 3.5, "mf") for point in mine]
    labels.append(
        draw.Label(f"gold {gold}", "ht", ((LEFT + 1, y(gold) - 6, "start"), (LEFT + 1, y(gold) + 16, "start")))
    )
    marks += draw.placed(labels, points)
    marks.append(draw.text(RIGHT, BASE + 36, "steps read; upwards: expected mark; ringed: chosen", "", "end"))
    told = "; ".join(
        f"{one.label}: {', '.join(say.number(mark) for mark in one.expected)}"
        for one in (of, mended)
        if one is not None
    )
    return draw.svg(BASE + 42, marks, f"{title}, gold mark {gold}. Expected mark by step: {told}")


def funnel(title: str, counts: Mapping[str, float]) -> Markup:
    """What is left after each phase, in order. counts: phase → how many."""
    most = max([*counts.values(), 1.0])
    marks = list[Markup]()
    for at, (label, value) in enumerate(counts.items()):
        middle = ROW * (at + 0.5)
        box = Markup('<rect class="mf" x="{}%" y="{}" width="{}%" height="12" opacity=".55"/>')
        sizes = LABELS, middle - 6, value / most * (VALUES - LABELS)
        marks.append(box.format(*map(draw.place, sizes)))
        marks.append(draw.text(LABELS - 1.5, middle + 4, say.cut(label, 34), "it", "end"))
        marks.append(draw.text(100, middle + 4, say.count(round(value)), "", "end"))
    said = "; ".join(f"{label} {say.count(round(value))}" for label, value in counts.items())
    return draw.svg(ROW * len(counts), marks, f"{title}: {said}")


def boxes(title: str, of: Sequence[Box], limit: float | None) -> Markup:
    """The middle half of each set as a bar with its median, the middle four fifths as a line; a limit as a dashed
    upright. At least one set."""
    ends = [end for one in of for end in one.quantiles]
    on = axis([*ends, 0.0, *([] if limit is None else [limit])], most=4, left=LABELS, right=VALUES)
    height = HEAD + ROW * len(of)
    marks = [
        draw.line(on.x(tick), HEAD - 4, on.x(tick), height, "grid zero" if tick == 0 else "grid") for tick in on.ticks
    ]
    marks += [draw.text(on.x(tick), 11, f"{tick:g}".replace("-", "−"), "") for tick in on.ticks]
    for at, one in enumerate(of):
        middle = HEAD + ROW * (at + 0.5)
        least, low, half, high, most = map(on.x, one.quantiles)
        box = Markup('<rect class="mf" x="{}%" y="{}" width="{}%" height="10" opacity=".55"/>')
        marks.append(draw.line(least, middle, most, middle, "cl thin"))
        marks.append(box.format(*map(draw.place, (low, middle - 5, high - low))))
        marks.append(draw.line(half, middle - 7, half, middle + 7, "cl"))
        marks.append(draw.text(LABELS - 1.5, middle + 4, say.cut(one.label, 34), "it", "end"))
        marks.append(draw.text(100, middle + 4, say.number(one.quantiles[2], 3), "", "end"))
    if limit is not None:
        marks.append(draw.line(on.x(limit), HEAD - 4, on.x(limit), height, "al dash"))
    said = "; ".join(f"{one.label}: {', '.join(map(say.number, one.quantiles))}" for one in of)
    return draw.svg(height, marks, f"{title}, quantiles at 10, 25, 50, 75 and 90 per cent. {said}")


def _ends(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float, str], ...]:
    """Places for a label: beside the last points."""
    return tuple((x, y + dy, "end") for x, y in reversed(points[-4:]) for dy in (-10, 18, -24, 32))
