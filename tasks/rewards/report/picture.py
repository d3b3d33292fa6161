"""A rubric's graph as HTML: who licenses stands left of whom; what one response earned may be laid over it.

The browser sets the text of the boxes; only the lines between them, whose heights are therefore fixed, are drawn: one
manner for each relation, and a mark where a response lacks the parent. Boxes stand in layers by longest path, with few
crossings, near what they hang on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations, pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, TypeAlias

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup
from scipy.optimize import isotonic_regression

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.graph import RELATIONS, Relation
from rubricflow.tasks.core.contracts.tables.rubrics import DROPPED
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import Drawing, Grid, Page, Section, filled, rendered
from rubricflow.tasks.core.display.table import Row, Rows

TEMPLATE, STYLE = (Path(__file__).with_name(name) for name in ("graph.html.j2", "graph.css"))
"""What a picture is made by, and the rules that a page with pictures needs."""
LOOK = "Who licenses stands left of whom. Point at a box or a line for all that is known of it."
WIDTH, HIGH, BAR, GUTTER = 208.0, 104.0, 18.0, 64.0
"""Px: a box's width and height, the height of the bar in it, and the gap between layers."""
GAP, LANE = 16.0, 14.0
"""Px between neighbours in a layer, and the height of a line that passes through one."""
HEAD, SAMPLE = 9.0, 34.0
"""Px: length of an arrowhead; width of a sample in the legend."""
SWEEPS = 8
"""Passes over the layers, there and back, that order them and then move them."""
Pair: TypeAlias = tuple[str, str]
Stop: TypeAlias = tuple[str, ...]
"""What takes up space in a layer: a box (name,), or a line that passes through (parent, child, layer)."""
Layers: TypeAlias = list[list[Stop]]
"""From left to right; in each, top to bottom."""
Places: TypeAlias = Mapping[Stop, tuple[int, float]]
"""Stop → its layer, and its centre in px."""


class EarnedCredit(NamedTuple):
    """What one response earned, by criterion; a criterion that is absent is not known."""

    local: Mapping[str, float]
    """Its own score, in [0, 1]."""
    marginal: Mapping[str, float]
    """What is left of it after the dependencies."""
    threshold: float
    """From this score on a criterion counts as supported."""

    def words(self, name: str) -> str:
        """A criterion's own score, and what is left of it where that is less."""
        local = self.local.get(name)
        marginal = self.marginal.get(name)
        if local is None:
            return "unscored"
        if marginal is None:
            return f"{say.number(local)} → ?"
        return say.number(local) if abs(local - marginal) < 0.005 else f"{say.number(local)} → {say.number(marginal)}"

    def lacks(self, row: Row) -> bool:
        """Whether the response has an edge's child without its parent."""
        parent = self.local.get(row["parent"])
        child = self.local.get(row["child"])
        return parent is not None and child is not None and parent < self.threshold <= child


class Layout(NamedTuple):
    """What stands where."""

    places: Places
    """By layer and top to bottom; the uppermost box begins at 0."""
    routes: Mapping[Pair, Sequence[Stop]]
    """(parent, child) → the parent, what passes through the layers between, and the child."""
    height: float
    """Of the tallest layer, in px."""


def layout(names: Sequence[str], edges: Iterable[Pair], box_height: float) -> Layout:
    """The boxes of an acyclic graph.

    names: the boxes, in the order that ties are broken by. edges: (parent, child), each once. box_height: in px.
    Parents always stand in an earlier layer than their children: a box's layer is the longest path that leads to it.
    """
    boxes: nx.DiGraph[str] = nx.DiGraph()
    boxes.add_edges_from(edges)
    boxes.add_nodes_from(names)
    layer_of: dict[str, int] = {}
    for layer, generation in enumerate(nx.topological_generations(boxes)):
        layer_of |= dict.fromkeys(generation, layer)
    stops: nx.DiGraph[Stop] = nx.DiGraph()
    stops.add_nodes_from((name,) for name in names)
    routes: dict[Pair, list[Stop]] = {}
    for parent, child in boxes.edges:
        between = [(parent, child, str(layer)) for layer in range(layer_of[parent] + 1, layer_of[child])]
        routes[parent, child] = [(parent,), *between, (child,)]
        nx.add_path(stops, routes[parent, child])
    order = {stop: index for index, stop in enumerate(stops)}
    layers = [sorted(generation, key=order.__getitem__) for generation in nx.topological_generations(stops)]
    tried = [layers]
    for _ in range(SWEEPS // 2):
        tried.append(_sorted(tried[-1], stops.pred))
        tried.append(_sorted(tried[-1][::-1], stops.succ)[::-1])
    layers = min(tried, key=lambda layers: _crossings(layers, stops))
    size = {stop: box_height if len(stop) == 1 else LANE for stop in stops}
    y = _centres(layers, stops, size)
    top = min((y[stop] - size[stop] / 2 for stop in y), default=0.0)
    end = max((y[stop] + size[stop] / 2 for stop in y), default=0.0)
    places = {stop: (index, y[stop] - top) for index, of_layer in enumerate(layers) for stop in of_layer}
    return Layout(places, routes, end - top)


def _sorted(layers: Layers, linked: Mapping[Stop, Iterable[Stop]]) -> Layers:
    """Each layer sorted by the mean place of what its stops are linked with in the layer before."""
    found = layers[:1]
    for layer in layers[1:]:
        place = {stop: index for index, stop in enumerate(found[-1])}
        means = {stop: fmean([place[other] for other in linked[stop]] or [at]) for at, stop in enumerate(layer)}
        found.append(sorted(layer, key=means.__getitem__))
    return found


def _crossings(layers: Layers, stops: nx.DiGraph[Stop]) -> int:
    """Pairs of lines that cross."""
    place = {stop: at for layer in layers for at, stop in enumerate(layer)}
    crossings = 0
    for layer in layers:
        ends = [(place[stop], place[child]) for stop in layer for child in stops.succ[stop]]
        crossings += sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(ends, 2))
    return crossings


def _centres(layers: Layers, stops: nx.DiGraph[Stop], size: Mapping[Stop, float]) -> dict[Stop, float]:
    """Centres: each stop as near as its layer's order allows to the mean of what it is linked with.

    In a layer that is the isotonic regression of the wanted centres less the space that those above need.
    """
    offset: dict[Stop, float] = {}
    for layer in layers:
        tops = np.cumsum([0.0, *((size[a] + size[b]) / 2 + GAP for a, b in pairwise(layer))])
        offset |= dict(zip(layer, tops.tolist(), strict=True))
    y = dict(offset)
    for sweep in range(SWEEPS):
        linked = (stops.pred, stops.succ)[sweep % 2]
        for layer in layers[:: 1 - 2 * (sweep % 2)]:
            centres = np.array([fmean([y[other] for other in linked[stop]] or [y[stop]]) for stop in layer])
            above = np.array([offset[stop] for stop in layer])
            y |= dict(zip(layer, (isotonic_regression(centres - above).x + above).tolist(), strict=True))
    return y


def signed(weight: float) -> str:
    """+5, −2.5, 0."""
    return ("+" if weight > 0 else "") + say.level(weight)


def rows_of(table: pa.Table, rubric_id: str) -> list[Row]:
    """A rubric's rows."""
    rows: list[Row] = table.filter(pc.field("rubric_id") == rubric_id).to_pylist()
    return rows


def picture(nodes: Rows, edges: Rows, earned: EarnedCredit | None = None) -> Markup:
    """One rubric's graph, for a page with `graph.css`.

    nodes, edges: its rows of `graph_nodes` and `graph_edges`, of which those that were kept are drawn. earned: by a
    response.
    """
    rows = {row["criterion_id"]: row for row in sorted(nodes, key=lambda row: row["position"])}
    kept = {(row["parent"], row["child"]): row for row in edges if row["kept"]}
    linked = set(chain.from_iterable(kept))
    box_height = HIGH + (BAR if earned else 0)
    placed = layout([name for name in rows if name in linked], kept, box_height)
    boxes = []
    for stop, (layer, y) in placed.places.items():
        if len(stop) == 1:
            boxes.append(_box(rows[stop[0]], earned) | {"x": _left(layer), "y": y - box_height / 2})
    words = [f"Graph of {say.plural(len(rows), 'criterion', 'criteria')}", *map(_in_words, kept.values())]
    return filled(
        TEMPLATE,
        boxes=boxes,
        aside=[_box(row, earned) for name, row in rows.items() if name not in linked],
        lines=_lines(kept, placed, box_height, earned),
        legend=_legend(earned is not None) if kept else [],
        earned=earned is not None,
        width=WIDTH,
        high=box_height,
        length=SAMPLE,
        across=max((box["x"] + WIDTH for box in boxes), default=0.0),
        down=placed.height,
        label="; ".join(words),
    )


def graph_page(rubric_id: str, nodes: Rows, edges: Rows) -> str:
    """One rubric's graph as a document of its own. nodes, edges: its rows of `graph_nodes` and `graph_edges`."""
    criteria = say.plural(len(nodes), "criterion", "criteria")
    dependencies = sum(row["kept"] for row in edges)
    title = f"{criteria}, {say.plural(dependencies, 'dependency', 'dependencies')}"
    drawn = (Drawing("", picture(nodes, edges)),)
    section = Section("graph", "Graph: which criterion licenses which?", title, LOOK, pictures=drawn)
    name = say.name(rubric_id)
    return rendered(Page(kind="Rubric graph", study=name, title=name, sections=(section,)), STYLE)


def edges_page(study: str, nodes: Rows, edges: Rows) -> str:
    """All edges that were proposed for a run's rubrics, kept or not, with their reasons, as a document of its own.
    nodes, edges: all rows of `graph_nodes` and `graph_edges`."""
    texts = {(row["rubric_id"], row["criterion_id"]): say.cut(row["text"], 300) for row in nodes}
    lines = [
        (
            row["rubric_id"],
            *(texts.get((row["rubric_id"], row[end]), row[end]) for end in ("child", "parent")),
            DROPPED[row["dropped"]] if row["dropped"] else RELATIONS[row["relation"]],
            row["detail"] or "–",
        )
        for row in edges
    ]
    title = f"{sum(row['kept'] for row in edges):,} of {len(edges):,} proposed dependencies are in a graph"
    heads = ("Rubric", "Criterion", "depends on", "how, or why not", "Reason")
    table = Grid(heads, [tuple(map(say.visible, line)) for line in lines], "stack edges")
    section = Section("edges", "Edges", "What depends on what, and why", parts=[table])
    return rendered(Page("Edges", say.name(study), title, [section] if edges else []))


def _box(row: Row, earned: EarnedCredit | None) -> Record:
    """What a box says of a row of `graph_nodes`."""
    name = row["criterion_id"]
    return {
        "name": say.visible(name),
        "role": row["role"],
        "weight": signed(row["weight"]),
        "text": say.visible(row["text"]),
        "earned": earned.words(name) if earned else "",
        "local": earned.local.get(name, 0.0) if earned else 0.0,
        "marginal": earned.marginal.get(name, 0.0) if earned else 0.0,
    }


def _left(layer: int) -> float:
    """Where a layer's boxes begin, in px."""
    return layer * (WIDTH + GUTTER)


def _lines(edges: Mapping[Pair, Row], placed: Layout, box_height: float, earned: EarnedCredit | None) -> list[Markup]:
    """The dependencies, each from its parent's right side to its child's left, side by side where they meet."""
    routes = {pair: [placed.places[stop] for stop in route] for pair, route in placed.routes.items()}
    leaving, arriving = (_ports(routes, box_height, end) for end in (0, 1))
    marks = []
    for pair, row in edges.items():
        (first, _), *between, (last, _) = routes[pair]
        start = leaving[pair]
        end = arriving[pair]
        path = f"M{_left(first) + WIDTH:.1f} {start:.1f}"
        for (_, before), (layer, y) in pairwise([(first, start), *between, (last, end)]):
            middle = _left(layer) - GUTTER / 2
            stop = _left(layer) - (HEAD if layer == last else 0)
            path += f"C{middle:.1f} {before:.1f} {middle:.1f} {y:.1f} {stop:.1f} {y:.1f}"
            path += "" if layer == last else f"H{_left(layer) + WIDTH:.1f}"
        tooltip = _in_words(row)
        if row["confidence"] is not None:
            tooltip += f", confidence {say.number(row['confidence'])}"
        is_lost = earned is not None and earned.lacks(row)
        if is_lost:
            tooltip += "; without the parent in this response"
        title = Markup("<title>{}</title>").format(tooltip)
        marks.append(_arrow(path, _left(last), end, row["relation"], is_lost, title))
    return marks


def _ports(routes: Mapping[Pair, Sequence[tuple[int, float]]], box_height: float, end: int) -> dict[Pair, float]:
    """Edge → the height at which it leaves its parent (end 0) or reaches its child (end 1): spread over the box's side
    in the order of where the lines come from."""
    pairs_of_box = defaultdict[str, list[Pair]](list)
    for pair in routes:
        pairs_of_box[pair[end]].append(pair)
    ports = {}
    for pairs in pairs_of_box.values():
        pairs.sort(key=lambda pair: routes[pair][1 if end == 0 else -2][1])
        step = min(12.0, (box_height - 24) / max(len(pairs) - 1, 1))
        for index, pair in enumerate(pairs):
            ports[pair] = routes[pair][-end][1] + step * (index - (len(pairs) - 1) / 2)
    return ports


def _legend(with_earned: bool) -> list[tuple[Markup, str]]:
    """A sample, SAMPLE px wide around height 0, and what it means, of all lines that a picture may have."""
    path = f"M0 0H{SAMPLE - HEAD}"
    samples = [(_arrow(path, SAMPLE, 0, relation), words) for relation, words in RELATIONS.items()]
    if with_earned:
        samples.append((_arrow(path, SAMPLE, 0, "strong_prerequisite", is_lost=True), "parent missing here"))
    return samples


def _in_words(row: Row) -> str:
    return f"{say.visible(row['parent'])} → {say.visible(row['child'])}: {RELATIONS[row['relation']]}"


def _arrow(path: str, x: float, y: float, relation: Relation, is_lost: bool = False, title: str = "") -> Markup:
    """A line in the manner of its relation, dashed, solid or double, with an arrowhead that ends at (x, y), hollow for
    an activation; crossed out near the head where it is lost."""
    tip = f"M{x:.1f} {y:.1f}l-{HEAD} -5v10Z"
    if relation == "activation":
        marks = [("line double", path), ("between", path), ("hollow", tip)]
    else:
        marks = [("line weak" if relation == "weak_prerequisite" else "line", path), ("head", tip)]
    if is_lost:
        marks.append(("cross", f"M{x - HEAD - 16:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"))
    drawn = Markup("").join(Markup('<path class="{}" d="{}"/>').format(*mark) for mark in marks)
    return Markup('<g class="{}">{}{}</g>').format("lost" if is_lost else "", title, drawn)
