"""SVG marks for the charts: x in per cent of the width, y in px; and labels placed where nothing else stands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from markupsafe import Markup, escape

NARROW, CHARACTER, LINE = 340, 6.4, 15
"""Width in px that labels are placed for, and the size of their type: what fits a phone fits elsewhere."""
Box = tuple[float, float, float, float]
Points = Sequence[tuple[float, float]]


class Label(NamedTuple):
    """A text with the places it may stand in, best first: (x in per cent, y in px, anchor)."""

    text: str
    style: str
    places: tuple[tuple[float, float, str], ...]


def place_labels(labels: Sequence[Label], points: Points) -> list[Markup]:
    """Each label where it covers neither points nor lines through them nor another label, if there is such a place."""
    spots = list(points)
    for (x1, y1), (x2, y2) in pairwise(points):
        if x2 >= x1:  # quarter points of the lines that lead to the right
            spots += [(x1 + (x2 - x1) * part / 4, y1 + (y2 - y1) * part / 4) for part in range(4)]
    occupied = [(x * NARROW / 100 - 5, y - 5, x * NARROW / 100 + 5, y + 5) for x, y in spots]
    drawn = []
    for label in labels:
        width = len(label.text) * CHARACTER
        boxes = []
        for x, y, anchor in label.places:
            left = x * NARROW / 100 - {"start": 0, "middle": width / 2, "end": width}[anchor]
            boxes.append((left, y - LINE + 3, left + width, y + 3))
        if boxes:
            best = min(range(len(boxes)), key=lambda i: (_covered(boxes[i], occupied), i))
            occupied.append(boxes[best])
            x, y, anchor = label.places[best]
            drawn.append(text(x, y, label.text, f"{label.style} halo".strip(), anchor))
    return drawn


def _covered(box: Box, occupied: Sequence[Box]) -> float:
    """Area in px² that is covered already or lies outside the chart."""
    over = 0.0
    for other in occupied:
        wide = min(box[2], other[2]) - max(box[0], other[0])
        high = min(box[3], other[3]) - max(box[1], other[1])
        over += max(wide, 0) * max(high, 0)
    outside = max(0.0, -box[0]) + max(0.0, box[2] - NARROW)
    return over + outside * LINE * 4


def svg(height: float, marks: Sequence[Markup], label: str = "") -> Markup:
    accessible = Markup('role="img" aria-label="{}"').format(label) if label else Markup('aria-hidden="true"')
    return Markup('<svg height="{}" {}>{}</svg>').format(place(height), accessible, Markup("").join(marks))


def place(value: float) -> str:
    """A coordinate; ValueError for one that is not finite."""
    if not math.isfinite(value):
        raise ValueError(f"a chart has no place for {value}")
    return f"{value:.1f}".removesuffix(".0")


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> Markup:
    template = '<line class="{}" x1="{}%" y1="{}" x2="{}%" y2="{}"/>'
    return Markup(template).format(style, place(x1), place(y1), place(x2), place(y2))


def circle(x: float, y: float, radius: float, style: str) -> Markup:
    return Markup('<circle class="{}" cx="{}%" cy="{}" r="{}"/>').format(style, place(x), place(y), place(radius))


def box(x: float, y: float, wide: float, high: float, style: str) -> Markup:
    template = '<rect class="{}" x="{}%" y="{}" width="{}%" height="{}"/>'
    return Markup(template).format(style, *map(place, (x, y, wide, high)))


def square(x: float, y: float) -> Markup:
    return Markup('<rect class="sq" x="{}%" y="{}" width="8" height="8" transform="translate(-4 -4)"/>').format(
        place(x), place(y)
    )


def polyline(points: Points, style: str) -> list[Markup]:
    """Lines between neighbours: a path knows no per cent."""
    return [line(*a, *b, style) for a, b in pairwise(points)]


def text(x: float, y: float, text: str, style: str, anchor: str = "middle") -> Markup:
    kind = Markup(' class="{}"').format(style) if style else ""
    return Markup('<text{} x="{}%" y="{}" text-anchor="{}">{}</text>').format(
        kind, place(x), place(y), anchor, escape(text)
    )
