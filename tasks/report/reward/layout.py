"""Where the boxes and lines of a graph stand: layers by longest path, few crossings, boxes near what they hang on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import networkx as nx
import numpy as np
from scipy.optimize import isotonic_regression

Pair: TypeAlias = tuple[str, str]
Stop: TypeAlias = tuple[str, ...]
"""What takes up room in a layer: a box (name,), or a line that passes through (parent, child, layer)."""
SWEEPS = 8
"""Passes over the layers, there and back, that order them and then move them."""


class Layout(NamedTuple):
    """Layers from left to right, and in each what stands where."""

    layers: tuple[tuple[Stop, ...], ...]
    """Top to bottom."""
    y: Mapping[Stop, float]
    """Centre of each in px; the uppermost box begins at 0."""
    height: float
    """Of the tallest layer, in px."""

    def route(self, parent: str, child: str) -> list[tuple[int, float]]:
        """(layer, centre) of the parent, of every layer that the line passes through, and of the child."""
        at = {stop: index for index, layer in enumerate(self.layers) for stop in layer}
        first, last = at[(parent,)], at[(child,)]
        between = [(index, self.y[_passing(parent, child, index)]) for index in range(first + 1, last)]
        return [(first, self.y[(parent,)]), *between, (last, self.y[(child,)])]


def layout(heights: Mapping[str, float], edges: Iterable[Pair], gap: float = 18.0, lane: float = 14.0) -> Layout:
    """The boxes of an acyclic graph.

    heights: box → its height in px, in the order that ties are broken by. edges: (parent, child), each once. gap:
    between neighbours in px; lane: height of a line that passes through a layer. Parents always stand in an earlier
    layer than their children: a box's layer is the longest path that leads to it.
    """
    order = {name: at for at, name in enumerate(heights)}
    directed: nx.DiGraph[str] = nx.DiGraph()
    directed.add_nodes_from(heights)
    directed.add_edges_from(edges)
    generations = [sorted(layer, key=order.__getitem__) for layer in nx.topological_generations(directed)]
    layers: list[list[Stop]] = [[(name,) for name in layer] for layer in generations]
    at = {name: index for index, layer in enumerate(generations) for name in layer}
    links: list[tuple[Stop, Stop]] = []
    for parent, child in directed.edges:
        passing = [_passing(parent, child, index) for index in range(at[parent] + 1, at[child])]
        for index, stop in enumerate(passing, at[parent] + 1):
            layers[index].append(stop)
        links += pairwise([(parent,), *passing, (child,)])
    around = _neighbours(links)
    layers = _ordered(layers, around)
    size = {stop: heights[stop[0]] if len(stop) == 1 else lane for layer in layers for stop in layer}
    y = _placed(layers, around, size, gap)
    top = min((y[stop] - size[stop] / 2 for stop in y), default=0.0)
    end = max((y[stop] + size[stop] / 2 for stop in y), default=0.0)
    return Layout(tuple(map(tuple, layers)), {stop: middle - top for stop, middle in y.items()}, end - top)


class _Around(NamedTuple):
    """What each stop is linked with, in the layer before and in the one after."""

    before: Mapping[Stop, list[Stop]]
    after: Mapping[Stop, list[Stop]]


def _passing(parent: str, child: str, layer: int) -> Stop:
    return parent, child, str(layer)


def _neighbours(links: Sequence[tuple[Stop, Stop]]) -> _Around:
    before: dict[Stop, list[Stop]] = {}
    after: dict[Stop, list[Stop]] = {}
    for parent, child in links:
        after.setdefault(parent, []).append(child)
        before.setdefault(child, []).append(parent)
    return _Around(before, after)


def _ordered(layers: list[list[Stop]], around: _Around) -> list[list[Stop]]:
    """The layers sorted by the mean place of what each stop is linked with, there and back; the best order seen."""
    best, fewest = layers, _crossings(layers, around)
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        indices = range(1, len(layers)) if forth else range(len(layers) - 2, -1, -1)
        layers = list(layers)
        for index in indices:
            fixed = {stop: place for place, stop in enumerate(layers[index - 1 if forth else index + 1])}
            linked = around.before if forth else around.after
            own = {stop: float(place) for place, stop in enumerate(layers[index])}
            means = {
                stop: float(np.mean([fixed[other] for other in linked[stop]])) if stop in linked else own[stop]
                for stop in own
            }
            layers[index] = sorted(layers[index], key=lambda stop: (means[stop], own[stop]))
        crossings = _crossings(layers, around)
        if crossings < fewest:
            best, fewest = layers, crossings
    return best


def _crossings(layers: Sequence[Sequence[Stop]], around: _Around) -> int:
    """Pairs of lines that cross."""
    found = 0
    for left, right in pairwise(layers):
        place = {stop: at for at, stop in enumerate(right)}
        ends = [(at, place[child]) for at, stop in enumerate(left) for child in around.after.get(stop, ())]
        start, end = np.array(ends, dtype=np.int64).reshape(-1, 2).T
        found += int(np.sum((start[:, None] < start) & (end[:, None] > end)))
    return found


def _placed(
    layers: Sequence[Sequence[Stop]], around: _Around, size: Mapping[Stop, float], gap: float
) -> dict[Stop, float]:
    """Centres: each stop as near as its layer's order allows to the mean of what it is linked with.

    In a layer that is the isotonic regression of the wanted centres less the room that those above need.
    """
    room: dict[Stop, float] = {}
    for layer in layers:
        tops = np.cumsum([0.0, *((size[a] + size[b]) / 2 + gap for a, b in pairwise(layer))])
        room |= dict(zip(layer, tops, strict=True))
    y = dict(room)
    for sweep in range(SWEEPS):
        linked = (around.before, around.after)[sweep % 2]
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = [float(np.mean([y[o] for o in linked[stop]])) if stop in linked else y[stop] for stop in layer]
            above = np.array([room[stop] for stop in layer])
            y |= dict(zip(layer, (isotonic_regression(np.array(wanted) - above).x + above).tolist(), strict=True))
    return y
