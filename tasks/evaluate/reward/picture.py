"""A rubric's graph as SVG: who licenses stands left of whom; what one response earned may be laid over it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from tasks.contracts.graph import Relation
from tasks.evaluate.page import say
from tasks.evaluate.page.draw import place
from tasks.evaluate.reward.boxes import WIDTH, Box, Row, Shown, box, clean, drawn, text, width
from tasks.evaluate.reward.layout import Layout, layout

GUTTER, GAP, EDGE, HEAD, ROW = 92.0, 16.0, 8.0, 9.0, 22.0
"""Px between layers, between boxes, around the picture; length of an arrowhead; height of a row of the legend."""
ASIDE = 3
"""Columns of the criteria without dependencies, or as many as the graph is wide."""
SMALLEST = 0.75
"""A picture that does not fit shrinks to this share of its size; from there on it is scrolled."""
RELATIONS: Mapping[Relation, str] = {
    "weak_prerequisite": "weak prerequisite",
    "strong_prerequisite": "strong prerequisite",
    "activation": "activation",
}
DROPPED = {
    "unknown_criterion": "names a criterion that there is not",
    "itself": "a criterion cannot license itself",
    "roles": "the roles allow no such dependency",
    "duplicate": "proposed twice",
    "cycle": "it would close a circle",
    "voted_out": "people voted against it",
    "failed": "the annotator gave nothing usable",
}
"""Why a proposed edge is not in the graph."""
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
    marks = [_dropped(row, scene) for row in dropped] + _lines(kept, scene, shown)
    marks += [drawn(one, *scene.corners[name], shown) for name, one in scene.boxes.items()]
    if scene.caption:
        marks.append(text(0, scene.caption[0], scene.caption[1], "quiet"))
    keys, height = _in_rows(_legend(kept, dropped, shown), scene.width, scene.height + 28)
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
    linked = {name for row in kept for name in _ends(row)}
    boxes = {row["criterion_id"]: box(row, shown, 3 if row["criterion_id"] in linked else 2) for row in nodes}
    found = layout({name: boxes[name].height for name in boxes if name in linked}, map(_ends, kept), GAP)
    corners = {
        stop[0]: (_left(at), found.y[stop] - boxes[stop[0]].height / 2)
        for at, layer in enumerate(found.layers)
        for stop in layer
        if len(stop) == 1
    }
    aside = [name for name in boxes if name not in linked]
    across = max(_left(len(found.layers)) - GUTTER, min(len(aside), ASIDE) * (WIDTH + GAP) - GAP, WIDTH)
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


def _ends(row: Row) -> tuple[str, str]:
    return row["parent"], row["child"]


def _left(layer: int) -> float:
    return layer * (WIDTH + GUTTER)


def _lines(kept: Sequence[Row], scene: _Scene, shown: Shown | None) -> list[Markup]:
    """The dependencies, each from its parent's right side to its child's left, side by side where they meet."""
    routes = {_ends(row): scene.layout.route(*_ends(row)) for row in kept}
    leaving, arriving = (_ports(routes, scene, end) for end in (0, 1))
    marks = []
    for row in kept:
        stops = routes[_ends(row)]
        stops[0] = (stops[0][0], leaving[_ends(row)])
        stops[-1] = (stops[-1][0], arriving[_ends(row)])
        marks.append(_line(row, stops, _is_lost(row, shown)))
    return marks


def _ports(
    routes: Mapping[tuple[str, str], Sequence[tuple[int, float]]], scene: _Scene, end: int
) -> dict[tuple[str, str], float]:
    """Edge → the height at which it leaves its parent (end 0) or reaches its child (end 1): spread over the box's side
    in the order of where the lines come from."""
    of: dict[str, list[tuple[str, str]]] = {}
    for pair in routes:
        of.setdefault(pair[end], []).append(pair)
    heights = {}
    for name, pairs in of.items():
        pairs.sort(key=lambda pair: routes[pair][1 if end == 0 else -2][1])
        step = min(12.0, (scene.boxes[name].height - 24) / max(len(pairs) - 1, 1))
        for at, pair in enumerate(pairs):
            heights[pair] = scene.layout.y[(name,)] + step * (at - (len(pairs) - 1) / 2)
    return heights


def _is_lost(row: Row, shown: Shown | None) -> bool:
    """Whether the response has the child without the parent."""
    if shown is None or not set(_ends(row)) <= shown.local.keys():
        return False
    return shown.local[row["parent"]] < shown.threshold <= shown.local[row["child"]]


def _line(row: Row, stops: Sequence[tuple[int, float]], lost: bool) -> Markup:
    (first, start), (last, end) = stops[0], stops[-1]
    path = [f"M{place(_left(first) + WIDTH)} {place(start)}"]
    for (_, before), (layer, y) in pairwise(stops):
        stop = _left(layer) - (HEAD if layer == last else 0)
        middle = place(_left(layer) - GUTTER / 2)
        path.append(f"C{middle} {place(before)} {middle} {place(y)} {place(stop)} {place(y)}")
        if layer != last:
            path.append(f"H{place(_left(layer) + WIDTH)}")
    tip = _tip(_left(last), end, row["relation"])
    marks = [_stroke("".join(path), row["relation"]), tip]
    if lost:
        marks.append(_cross(_left(last) - HEAD - 12, end))  # near the head, where no other line is
    told = f"{clean(row['parent'])} → {clean(row['child'])}: {RELATIONS[row['relation']]}"
    if row["confidence"] is not None:
        told += f", confidence {say.number(row['confidence'])}"
    told += "; without the parent in this response" if lost else ""
    return _group("lost" if lost else "", [Markup("<title>{}</title>").format(told), *marks])


def _stroke(path: str, relation: Relation) -> Markup:
    """A line in the manner of its relation: dashed, solid or double."""
    made = Markup('<path class="{}" d="{}"/>')
    if relation == "activation":
        return made.format("line double", path) + made.format("between", path)
    return made.format("line weak" if relation == "weak_prerequisite" else "line", path)


def _tip(x: float, y: float, relation: Relation) -> Markup:
    """An arrowhead whose point is there: hollow for an activation."""
    made = '<path class="{}" d="M{} {}L{} {}V{}Z"/>'
    ends = place(x), place(y), place(x - HEAD), place(y - 5), place(y + 5)
    return Markup(made).format("hollow" if relation == "activation" else "head", *ends)


def _cross(x: float, y: float) -> Markup:
    return Markup('<path class="cross" d="M{} {}l8 8m0 -8l-8 8"/>').format(place(x - 4), place(y - 4))


def _dropped(row: Row, scene: _Scene) -> Markup:
    """A dotted line for an edge that is not in the graph; the reason is its tooltip."""
    (x1, y1), (x2, y2) = (scene.corners[name] for name in _ends(row))
    y1, y2 = (y + scene.boxes[name].height / 2 for y, name in ((y1, row["parent"]), (y2, row["child"])))
    leave = x1 + WIDTH if x2 >= x1 else x1
    reach = x2 if x2 > x1 else x2 + WIDTH
    bend = GUTTER / 2 if x2 >= x1 else -GUTTER / 2
    back = bend if x1 == x2 else -bend
    points = [(leave, y1), (leave + bend, y1), (reach + back, y2), (reach, y2)]
    path = "M{} {}C{} {} {} {} {} {}".format(*(place(value) for point in points for value in point))
    told = f"{clean(row['parent'])} → {clean(row['child'])} is not kept: {DROPPED[row['dropped']]}"
    if row["detail"]:
        told += f" ({clean(row['detail'])})"
    return _group("", [Markup("<title>{}</title>").format(told), _stroke_dropped(path)])


def _stroke_dropped(path: str) -> Markup:
    return Markup('<path class="line dropped" d="{}"/>').format(path)


def _legend(kept: Sequence[Row], dropped: Sequence[Row], shown: Shown | None) -> list[tuple[Markup, str]]:
    """A sample, 34 px wide around height 0, and what it means, of all that the picture has."""
    found: list[tuple[Markup, str]] = []
    for relation, words in RELATIONS.items():
        if any(row["relation"] == relation for row in kept):
            found.append((_stroke(f"M0 0H{place(34 - HEAD)}", relation) + _tip(34, 0, relation), words))
    if any(_is_lost(row, shown) for row in kept):
        found.append(
            (
                _group(
                    "lost",
                    [
                        _stroke(f"M0 0H{place(34 - HEAD)}", "strong_prerequisite"),
                        _tip(34, 0, "strong_prerequisite"),
                        _cross(13, 0),
                    ],
                ),
                "parent missing here",
            )
        )
    if dropped:
        found.append((_stroke_dropped("M0 0H34"), "proposed and not kept"))
    if shown:
        bars = '<rect class="own" y="-4" width="34" height="8"/><rect class="left" y="-4" width="14" height="8"/>'
        found.append((Markup(bars), "own score, and filled what is left of it"))
    return found


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


def _group(kind: str, marks: Iterable[Markup]) -> Markup:
    opened = Markup('<g class="{}">').format(kind) if kind else Markup("<g>")
    return opened + Markup("").join(marks) + Markup("</g>")


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
