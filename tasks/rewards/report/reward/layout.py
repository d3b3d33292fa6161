"""Where the boxes and lines of a graph stand: layers by longest path, few crossings, boxes near what they hang on.

A criterion as a box: id, role, weight, its text and, for one response, what it earned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

import networkx as nx
import numpy as np
from scipy.optimize import isotonic_regression

from rubricflow.tasks.core.contracts.graph import Role
from rubricflow.tasks.core.display import say

Pair: TypeAlias = tuple[str, str]
Stop: TypeAlias = tuple[str, ...]
"""What takes up room in a layer: a box (name,), or a line that passes through (parent, child, layer)."""
Layers: TypeAlias = list[list[Stop]]
"""From left to right; in each, top to bottom."""
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


def layout(
    names: Sequence[str], edges: Iterable[Pair], box_height: float, gap: float = 16.0, lane_height: float = 14.0
) -> Layout:
    """The boxes of an acyclic graph.

    names: the boxes, in the order that ties are broken by. edges: (parent, child), each once. box_height; gap: between
    neighbours; lane_height: of a line that passes through a layer, all in px. Parents always stand in an earlier layer
    than their children: a box's layer is the longest path that leads to it.
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
    size = {stop: box_height if len(stop) == 1 else lane_height for stop in stops}
    y = _placed(layers, stops, size, gap)
    top = min((y[stop] - size[stop] / 2 for stop in y), default=0.0)
    end = max((y[stop] + size[stop] / 2 for stop in y), default=0.0)
    places: dict[Stop, tuple[int, float]] = {}
    for index, stops_of_layer in enumerate(layers):
        places |= {stop: (index, y[stop] - top) for stop in stops_of_layer}
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


def _placed(layers: Layers, stops: nx.DiGraph[Stop], size: Mapping[Stop, float], gap: float) -> dict[Stop, float]:
    """Centres: each stop as near as its layer's order allows to the mean of what it is linked with.

    In a layer that is the isotonic regression of the wanted centres less the room that those above need.
    """
    room: dict[Stop, float] = {}
    for layer in layers:
        tops = np.cumsum([0.0, *((size[a] + size[b]) / 2 + gap for a, b in pairwise(layer))])
        room |= dict(zip(layer, tops.tolist(), strict=True))
    y = dict(room)
    for sweep in range(SWEEPS):
        linked = (stops.pred, stops.succ)[sweep % 2]
        for layer in layers[:: 1 - 2 * (sweep % 2)]:
            centres = np.array([_mean_height(y, linked[stop], y[stop]) for stop in layer])
            above = np.array([room[stop] for stop in layer])
            y |= dict(zip(layer, (isotonic_regression(centres - above).x + above).tolist(), strict=True))
    return y


def _mean_height(y: Mapping[Stop, float], stops: Iterable[Stop], alone: float) -> float:
    """The mean height of the stops; `alone` where there are none."""
    return fmean([y[stop] for stop in stops] or [alone])


Row = Mapping[str, Any]


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
