"""A rubric's graph as SVG: who licenses stands left of whom; what one response earned may be laid over it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from tasks.display import say
from tasks.display.draw import place
from tasks.report.reward.boxes import WIDTH, Box, Row, Shown, box, clean, drawn, text, width
from tasks.report.reward.layout import Layout, layout
from tasks.report.reward.lines import GUTTER, RELATIONS, dotted, ends, left, legend, lines

GAP, EDGE, ROW = 16.0, 8.0, 22.0
"""Px between boxes, around the picture; height of a row of the legend."""
ASIDE = 3
"""Columns of the criteria without dependencies, or as many as the graph is wide."""
SMALLEST = 0.75
"""A picture that does not fit shrinks to this share of its size; from there on it is scrolled."""
DRAWN = ("cycle", "voted_out")
"""Dropped for a reason that a person may want to look at: the others break a rule."""
PALETTE = {
    "paper": ("#fff", "#141618"),
    "ink": ("#1b1d1f", "#e8e8e4"),
    "mute": ("#5a5f64", "#a4aab0"),
    "track": ("#e9e8e4", "#2b2f33"),
    "core": ("#1a5fb4", "#84b6f4"),
    "additional": ("#0b6b5f", "#5cc8b5"),
    "penalty": ("#a3123f", "#f58aa8"),
    "applicability": ("#7a5200", "#e3b556"),
}
"""Colour → as it is on light, and on dark ground."""


def pictures(nodes: pa.Table, edges: pa.Table, rubrics: Iterable[str] | None = None) -> dict[str, str]:
    """Rubric → its graph as an SVG file. nodes, edges: tables `graph_nodes` and `graph_edges`; all rubrics of the nodes
    where none are named."""
    names = nodes["rubric_id"].unique().to_pylist() if rubrics is None else list(rubrics)
    return {name: str(picture(rows_of(nodes, name), rows_of(edges, name), alone=True)) for name in names}


def rows_of(table: pa.Table, rubric_id: str) -> list[Row]:
    """A rubric's rows."""
    rows: list[Row] = table.filter(pc.field("rubric_id") == rubric_id).to_pylist()
    return rows


def picture(nodes: Sequence[Row], edges: Sequence[Row], shown: Shown | None = None, alone: bool = False) -> Markup:
    """One rubric's graph.

    nodes, edges: its rows of `graph_nodes` and `graph_edges`; of the edges that were dropped those that closed a circle
    or were voted out are drawn as well. shown: what a response earned. alone: as a file of its own; else it needs
    `style` on its page.
    """
    nodes = sorted(nodes, key=lambda row: row["position"])
    names = {row["criterion_id"] for row in nodes}
    kept = [row for row in edges if row["kept"]]
    dropped = [row for row in edges if row["dropped"] in DRAWN and {row["parent"], row["child"]} <= names]
    scene = _scene(nodes, kept, shown)
    marks = [_dotted(row, scene) for row in dropped]
    marks += lines(kept, scene.layout, {name: one.height for name, one in scene.boxes.items()}, shown)
    marks += [drawn(one, *scene.corners[name], shown) for name, one in scene.boxes.items()]
    if scene.caption:
        marks.append(text(0, scene.caption[0], scene.caption[1], "quiet"))
    keys, height = _in_rows(legend(kept, bool(dropped), shown), scene.width, scene.height + 28)
    return _svg(marks + keys, scene.width, height, _said(nodes, kept), alone)


@cache
def style() -> Markup:
    """The rules that a picture needs, once per page: literal colours, since not every viewer of SVG knows variables."""
    rules = (Path(__file__).parent / "picture.css").read_text(encoding="utf-8")
    light, dark = (re.sub("|".join(f"~{name}" for name in PALETTE), partial(_colour, at), rules) for at in (0, 1))
    return Markup(f"{light}@media screen and (prefers-color-scheme: dark) {{\n{dark}}}\n")


def _colour(at: int, found: re.Match[str]) -> str:
    return PALETTE[found[0][1:]][at]


class _Scene(NamedTuple):
    """Where everything stands, in px."""

    boxes: Mapping[str, Box]
    layout: Layout
    corners: Mapping[str, tuple[float, float]]
    """Upper left corner of each box."""
    caption: tuple[float, str] | None
    """Baseline and words above the criteria without dependencies."""
    width: float
    height: float


def _scene(nodes: Sequence[Row], kept: Sequence[Row], shown: Shown | None) -> _Scene:
    linked = {name for row in kept for name in ends(row)}
    boxes = {row["criterion_id"]: box(row, shown, 3 if row["criterion_id"] in linked else 2) for row in nodes}
    found = layout({name: boxes[name].height for name in boxes if name in linked}, map(ends, kept), GAP)
    corners = {
        stop[0]: (left(at), found.y[stop] - boxes[stop[0]].height / 2)
        for at, layer in enumerate(found.layers)
        for stop in layer
        if len(stop) == 1
    }
    aside = [name for name in boxes if name not in linked]
    across = max(left(len(found.layers)) - GUTTER, min(len(aside), ASIDE) * (WIDTH + GAP) - GAP, WIDTH)
    if not aside:
        caption = None if nodes else (12.0, "The rubric has no criteria.")
        return _Scene(boxes, found, corners, caption, across, found.height or 16.0)
    y = found.height + (48.0 if found.layers else 22.0)
    caption = y - 10, "Without dependencies" if found.layers else "No criterion depends on another."
    columns = int((across + GAP) // (WIDTH + GAP))
    for start in range(0, len(aside), columns):
        row = aside[start : start + columns]
        corners |= {name: (at * (WIDTH + GAP), y) for at, name in enumerate(row)}
        y += max(boxes[name].height for name in row) + GAP
    return _Scene(boxes, found, corners, caption, across, y - GAP)


def _dotted(row: Row, scene: _Scene) -> Markup:
    """The line of a dropped edge, which may be between any two boxes."""
    (x1, y1), (x2, y2) = (
        (scene.corners[name][0], scene.corners[name][1] + scene.boxes[name].height / 2) for name in ends(row)
    )
    return dotted(row, (x1, y1), (x2, y2))


def _in_rows(samples: Sequence[tuple[Markup, str]], room: float, y: float) -> tuple[list[Markup], float]:
    """The legend in rows of that width from there on, and where it ends."""
    marks, x = list[Markup](), 0.0
    for sample, words in samples:
        taken = 42 + width(words)
        if x and x + taken > room:
            x, y = 0.0, y + ROW
        moved = Markup(' transform="translate({} {})"').format(place(x), place(y))
        marks.append(Markup("<g{}>{}{}</g>").format(moved, sample, text(42, 4, words, "quiet")))
        x += taken + 20
    return marks, y + 8 if samples else y - 24


def _said(nodes: Sequence[Row], kept: Sequence[Row]) -> str:
    """The graph in words."""
    told = f"Graph of {say.plural(len(nodes), 'criterion', 'criteria')}"
    each = [f"{clean(row['parent'])} → {clean(row['child'])}, {RELATIONS[row['relation']]}" for row in kept]
    return "; ".join([told, *each])


def _svg(marks: Sequence[Markup], across: float, height: float, said: str, alone: bool) -> Markup:
    """The document: it shrinks a little where there is less room; alone, it has its own ground and style."""
    x, y, wide, high = -EDGE, -EDGE, across + 2 * EDGE, height + 2 * EDGE
    sizes = [place(value) for value in (x, y, wide, high)]
    ground = Markup("")
    if alone:
        ground = Markup('<style>{}</style><rect class="paper" x="{}" y="{}" width="{}" height="{}"/>')
        ground = ground.format(style(), *sizes)
        size = Markup('xmlns="http://www.w3.org/2000/svg" width="{}" height="{}"').format(*sizes[2:])
    else:
        size = Markup('style="min-width:{}px;max-width:{}px"').format(place(SMALLEST * wide), sizes[2])
    opened = Markup('<svg class="graph" {} viewBox="{}" role="img" aria-label="{}">')
    return opened.format(size, " ".join(sizes), said) + ground + Markup("").join(marks) + Markup("</svg>")
