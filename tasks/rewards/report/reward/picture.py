"""A rubric's graph as HTML: who licenses stands left of whom; what one response earned may be laid over it.

The browser sets the text of the boxes; only the lines between them, whose heights are therefore fixed, are drawn: one
manner for each relation, and a mark where a response lacks the parent. Boxes stand in layers by longest path, with few
crossings, near what they hang on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, TypeAlias

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup
from scipy.optimize import isotonic_regression

from rubricflow.tasks.core.contracts.graph import RELATIONS, Relation, Role
from rubricflow.tasks.core.contracts.tables.rubrics import DROPPED
from rubricflow.tasks.core.display import draw, say
from rubricflow.tasks.core.display.page import filled, rendered
from rubricflow.tasks.core.display.section import Drawing, Page, Section
from rubricflow.tasks.core.display.table import Row, Rows

Pair: TypeAlias = tuple[str, str]
Stop: TypeAlias = tuple[str, ...]
"""What takes up space in a layer: a box (name,), or a line that passes through (parent, child, layer)."""
Layers: TypeAlias = list[list[Stop]]
"""From left to right; in each, top to bottom."""
GAP, LANE = 16.0, 14.0
"""Px between neighbours in a layer, and the height of a line that passes through one."""
SWEEPS = 8
"""Passes over the layers, there and back, that order them and then move them."""


class Layout(NamedTuple):
    """What stands where."""

    places: Mapping[Stop, tuple[int, float]]
    """Layer, and centre in px, by layer and top to bottom; the uppermost box begins at 0."""
    routes: Mapping[Pair, Sequence[Stop]]
    """(parent, child) → the parent, what passes through the layers between, and the child."""
    height: float
    """Of the tallest layer, in px."""


def layout(names: Sequence[str], edges: Iterable[Pair], box_height: float) -> Layout:
    """The boxes of an acyclic graph.

    names: the boxes, in the order that ties are broken by. edges: (parent, child), each once. box_height: in px.
    Parents always stand in an earlier layer than their children: a box's layer is the longest path that leads to it.
    """
    boxes: nx.DiGraph[str] = nx.DiGraph(edges)
    boxes.add_nodes_from(names)
    layer_of: dict[str, int] = {}
    for layer, generation in enumerate(nx.topological_generations(boxes)):
        layer_of |= dict.fromkeys(generation, layer)
    routes = {(parent, child): _route(parent, child, layer_of) for parent, child in boxes.edges}
    stops: nx.DiGraph[Stop] = nx.DiGraph()
    stops.add_nodes_from((name,) for name in names)
    for route in routes.values():
        nx.add_path(stops, route)
    order = {stop: index for index, stop in enumerate(stops)}
    start = [sorted(generation, key=order.__getitem__) for generation in nx.topological_generations(stops)]
    layers = min(_orders(start, stops), key=lambda layers: _crossings(layers, stops))
    size = {stop: box_height if len(stop) == 1 else LANE for stop in stops}
    y = _centres(layers, stops, size)
    top = min((y[stop] - size[stop] / 2 for stop in y), default=0.0)
    end = max((y[stop] + size[stop] / 2 for stop in y), default=0.0)
    places = {stop: (index, y[stop] - top) for index, of_layer in enumerate(layers) for stop in of_layer}
    return Layout(places, routes, end - top)


def _route(parent: str, child: str, layer_of: Mapping[str, int]) -> list[Stop]:
    """The parent, a stop in each layer between, and the child."""
    between = [(parent, child, str(layer)) for layer in range(layer_of[parent] + 1, layer_of[child])]
    return [(parent,), *between, (child,)]


def _orders(layers: Layers, stops: nx.DiGraph[Stop]) -> Iterator[Layers]:
    """The layers as they are, and sorted by the mean place of what each stop is linked with, there and back."""
    yield layers
    for _ in range(SWEEPS // 2):
        layers = _swept(layers, stops.pred)
        yield layers
        layers = _swept(layers[::-1], stops.succ)[::-1]
        yield layers


def _swept(layers: Layers, linked: Mapping[Stop, Iterable[Stop]]) -> Layers:
    """Each layer sorted by what its stops are linked with in the layer before."""
    swept = layers[:1]
    for layer in layers[1:]:
        before = {stop: place for place, stop in enumerate(swept[-1])}
        mean_places = {}
        for place, stop in enumerate(layer):
            mean_places[stop] = fmean([before[neighbour] for neighbour in linked[stop]] or [place])
        swept.append(sorted(layer, key=mean_places.__getitem__))
    return swept


def _crossings(layers: Layers, stops: nx.DiGraph[Stop]) -> int:
    """Pairs of lines that cross."""
    crossings = 0
    for layer, next_layer in pairwise(layers):
        child_place = {stop: place for place, stop in enumerate(next_layer)}
        ends: list[tuple[int, int]] = []
        for place, stop in enumerate(layer):
            ends += [(place, child_place[child]) for child in stops.succ[stop]]
        start, end = np.array(ends, dtype=np.int64).reshape(-1, 2).T
        crossings += int(np.sum((start[:, None] < start) & (end[:, None] > end)))
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


class EarnedCredit(NamedTuple):
    """What one response earned, by criterion; a criterion that is absent is not known."""

    local: Mapping[str, float]
    """Its own score, in [0, 1]."""
    marginal: Mapping[str, float]
    """What is left of it after the dependencies."""
    threshold: float
    """From this score on a criterion counts as supported."""


class Box(NamedTuple):
    """What a box says."""

    name: str
    role: Role
    weight: str
    text: str
    earned: str
    """In words; empty where no response is shown."""
    local: float
    """The criterion's own score, in [0, 1]; 0 where it is not known."""
    marginal: float
    """What is left of it."""
    x: float
    """Upper left corner, in px."""
    y: float


def box(row: Row, earned: EarnedCredit | None, x: float = 0.0, y: float = 0.0) -> Box:
    """A row of `graph_nodes`."""
    name = row["criterion_id"]
    local = earned.local.get(name) if earned else None
    marginal = earned.marginal.get(name) if earned else None
    return Box(
        name=say.visible(name),
        role=row["role"],
        weight=signed(row["weight"]),
        text=say.visible(row["text"]),
        earned=_earned(local, marginal) if earned else "",
        local=local or 0.0,
        marginal=marginal or 0.0,
        x=x,
        y=y,
    )


def signed(weight: float) -> str:
    """+5, −2.5, 0."""
    return ("+" if weight > 0 else "") + say.level(weight)


def _earned(local: float | None, marginal: float | None) -> str:
    if local is None:
        return "unscored"
    if marginal is None:
        return f"{say.number(local)} → ?"
    return say.number(local) if abs(local - marginal) < 0.005 else f"{say.number(local)} → {say.number(marginal)}"


WIDTH, GUTTER, HEAD, SAMPLE = 208.0, 64.0, 9.0, 34.0
"""Px: a box, the gap between layers; length of an arrowhead; width of a sample in the legend."""


def ends(row: Row) -> Pair:
    """Parent and child of an edge."""
    return row["parent"], row["child"]


def left_edge(layer: int) -> float:
    """Where a layer's boxes begin, in px."""
    return layer * (WIDTH + GUTTER)


def lines(edges: Rows, layout: Layout, box_height: float, earned: EarnedCredit | None) -> list[Markup]:
    """The dependencies, each from its parent's right side to its child's left, side by side where they meet.
    box_height: in px."""
    routes = {pair: [layout.places[stop] for stop in route] for pair, route in layout.routes.items()}
    leaving, arriving = (_ports(routes, box_height, end) for end in (0, 1))
    marks = []
    for row in edges:
        pair = ends(row)
        (first, _), *between, (last, _) = routes[pair]
        stops = [(first, leaving[pair]), *between, (last, arriving[pair])]
        marks.append(_line(row, stops, _is_lost(row, earned)))
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


def dotted(row: Row, parent: tuple[int, float], child: tuple[int, float]) -> Markup:
    """The line of an edge that is not in the graph, from box to box; the reason is its tooltip. parent, child: layer,
    and centre in px."""
    x1, y1 = left_edge(parent[0]), parent[1]
    x2, y2 = left_edge(child[0]), child[1]
    leave = x1 + WIDTH if x2 >= x1 else x1
    reach = x2 if x2 > x1 else x2 + WIDTH
    bend = GUTTER / 2 if x2 >= x1 else -GUTTER / 2
    back = bend if x1 == x2 else -bend
    path = _path("M{} {}C{} {} {} {} {} {}", leave, y1, leave + bend, y1, reach + back, y2, reach, y2)
    tooltip = f"{_pair(row)} is not kept: {DROPPED[row['dropped']]}"
    if row["detail"]:
        tooltip += f" ({say.visible(row['detail'])})"
    return _group("", [Markup("<title>{}</title>").format(tooltip), _dots(path)])


def legend(edges: Rows, with_dropped: bool, earned: EarnedCredit | None) -> list[tuple[Markup, str]]:
    """A sample, SAMPLE px wide around height 0, and what it means, of all lines that the picture has."""
    relations = {row["relation"] for row in edges}
    samples = [(_arrow(relation), words) for relation, words in RELATIONS.items() if relation in relations]
    if any(_is_lost(row, earned) for row in edges):
        lost = [_arrow("strong_prerequisite"), _cross(SAMPLE - HEAD - 12, 0)]
        samples.append((_group("lost", lost), "parent missing here"))
    if with_dropped:
        samples.append((_dots(_path("M0 0H{}", SAMPLE)), "proposed and not kept"))
    return samples


def in_words(row: Row) -> str:
    """A dependency in words."""
    return f"{_pair(row)}: {RELATIONS[row['relation']]}"


def _pair(row: Row) -> str:
    return f"{say.visible(row['parent'])} → {say.visible(row['child'])}"


def _arrow(relation: Relation) -> Markup:
    return _stroke(_path("M0 0H{}", SAMPLE - HEAD), relation) + _tip(SAMPLE, 0, relation)


def _is_lost(row: Row, earned: EarnedCredit | None) -> bool:
    """Whether the response has the child without the parent."""
    if earned is None or not set(ends(row)) <= earned.local.keys():
        return False
    return earned.local[row["parent"]] < earned.threshold <= earned.local[row["child"]]


def _line(row: Row, stops: Sequence[tuple[int, float]], lost: bool) -> Markup:
    (first, start), (last, end) = stops[0], stops[-1]
    path = [_path("M{} {}", left_edge(first) + WIDTH, start)]
    for (_, before), (layer, y) in pairwise(stops):
        stop = left_edge(layer) - (HEAD if layer == last else 0)
        middle = left_edge(layer) - GUTTER / 2
        path.append(_path("C{} {} {} {} {} {}", middle, before, middle, y, stop, y))
        if layer != last:
            path.append(_path("H{}", left_edge(layer) + WIDTH))
    tooltip = in_words(row)
    if row["confidence"] is not None:
        tooltip += f", confidence {say.number(row['confidence'])}"
    marks = [_stroke("".join(path), row["relation"]), _tip(left_edge(last), end, row["relation"])]
    if lost:
        tooltip += "; without the parent in this response"
        marks.append(_cross(left_edge(last) - HEAD - 12, end))  # near the head, where no other line is
    return _group("lost" if lost else "", [Markup("<title>{}</title>").format(tooltip), *marks])


def _path(template: str, *places: float) -> str:
    """A part of a path, with these places in px."""
    return template.format(*map(draw.place, places))


def _stroke(path: str, relation: Relation) -> Markup:
    """A line in the manner of its relation: dashed, solid or double."""
    if relation == "activation":
        return _drawn("line double", path) + _drawn("between", path)
    return _drawn("line weak" if relation == "weak_prerequisite" else "line", path)


def _tip(x: float, y: float, relation: Relation) -> Markup:
    """An arrowhead whose point is there: hollow for an activation."""
    return _drawn(
        "hollow" if relation == "activation" else "head", _path("M{} {}L{} {}V{}Z", x, y, x - HEAD, y - 5, y + 5)
    )


def _cross(x: float, y: float) -> Markup:
    return _drawn("cross", _path("M{} {}l8 8m0 -8l-8 8", x - 4, y - 4))


def _dots(path: str) -> Markup:
    return _drawn("line dropped", path)


def _drawn(style: str, path: str) -> Markup:
    return Markup('<path class="{}" d="{}"/>').format(style, path)


def _group(kind: str, marks: Iterable[Markup]) -> Markup:
    return Markup('<g class="{}">{}</g>').format(kind, Markup("").join(marks))


TEMPLATE, STYLE = (Path(__file__).with_name(name) for name in ("graph.html.j2", "graph.css"))
"""What a picture is made by, and the rules that a page with pictures needs."""
LOOK = "Who licenses stands left of whom. Point at a box or a line for all that is known of it."
HIGH, BAR = 104.0, 18.0
"""Px: the height of a box, and of the bar in it."""
DRAWN = ("cycle", "voted_out")
"""Dropped for a reason that a person may want to look at: the others break a rule."""


def rows_of(table: pa.Table, rubric_id: str) -> list[Row]:
    """A rubric's rows."""
    rows: list[Row] = table.filter(pc.field("rubric_id") == rubric_id).to_pylist()
    return rows


def picture(nodes: Rows, edges: Rows, earned: EarnedCredit | None = None) -> Markup:
    """One rubric's graph, for a page with `graph.css`.

    nodes, edges: its rows of `graph_nodes` and `graph_edges`; of the edges that were dropped those that closed a circle
    or were voted out are drawn as well. earned: by a response.
    """
    rows = {row["criterion_id"]: row for row in sorted(nodes, key=lambda row: row["position"])}
    kept_edges = [row for row in edges if row["kept"]]
    dropped = [row for row in edges if row["dropped"] in DRAWN and set(ends(row)) <= rows.keys()]
    linked = set(chain.from_iterable(ends(row) for row in (*kept_edges, *dropped)))
    box_height = HIGH + (BAR if earned else 0)
    placed = layout([name for name in rows if name in linked], map(ends, kept_edges), box_height)
    places = {stop[0]: place for stop, place in placed.places.items() if len(stop) == 1}
    boxes = [box(rows[name], earned, left_edge(layer), y - box_height / 2) for name, (layer, y) in places.items()]
    dotted_lines = [dotted(row, places[row["parent"]], places[row["child"]]) for row in dropped]
    last_layer = max((layer for layer, _ in places.values()), default=0)
    words = [f"Graph of {say.plural(len(rows), 'criterion', 'criteria')}", *map(in_words, kept_edges)]
    return filled(
        TEMPLATE,
        boxes=boxes,
        aside=[box(row, earned) for name, row in rows.items() if name not in linked],
        lines=dotted_lines + lines(kept_edges, placed, box_height, earned),
        legend=legend(kept_edges, bool(dropped), earned),
        earned=earned is not None,
        width=WIDTH,
        high=box_height,
        length=SAMPLE,
        across=left_edge(last_layer + 1) - GUTTER,
        down=placed.height,
        label="; ".join(words),
    )


def graph_page(rubric_id: str, nodes: Rows, edges: Rows) -> str:
    """One rubric's graph as a document of its own. nodes, edges: its rows of `graph_nodes` and `graph_edges`."""
    criteria, dependencies = say.plural(len(nodes), "criterion", "criteria"), sum(row["kept"] for row in edges)
    title = f"{criteria}, {say.plural(dependencies, 'dependency', 'dependencies')}"
    drawn = (Drawing("", picture(nodes, edges)),)
    section = Section("graph", "Graph: which criterion licenses which?", title, LOOK, pictures=drawn)
    name = say.name(rubric_id)
    return rendered(Page(kind="Rubric graph", study=name, title=name, sections=(section,)), STYLE)
