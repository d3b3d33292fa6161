"""Where a graph's boxes stand: parents before children, nothing on top of anything, few crossings."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.rewards.report.picture import GAP, LANE, layout

HIGH = 80.0


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]]]:
    """Boxes and acyclic edges between them, in no particular order."""
    names = [f"c{at}" for at in range(draw(st.integers(1, 12)))]
    pairs = [(a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    return names, draw(st.permutations(edges))


@settings(max_examples=20)
@given(graphs())
def test_every_box_is_in_the_layer_of_the_longest_path_to_it(graph: tuple[list[str], list]) -> None:
    names, edges = graph
    directed = nx.DiGraph(edges)
    directed.add_nodes_from(names)
    longest = dict.fromkeys(names, 0)
    for name in nx.topological_sort(directed):
        for child in directed[name]:
            longest[child] = max(longest[child], longest[name] + 1)
    placed = layout(names, edges, HIGH)
    assert {stop[0]: layer for stop, (layer, _) in placed.places.items() if len(stop) == 1} == longest


@settings(max_examples=20)
@given(graphs())
def test_nothing_stands_on_anything_and_all_stands_in_the_picture(graph: tuple[list[str], list]) -> None:
    placed = layout(*graph, HIGH)
    edges = [(layer, y, (HIGH if len(stop) == 1 else LANE) / 2) for stop, (layer, y) in placed.places.items()]
    for (layer, above, half), (next_layer, below, next_half) in pairwise(edges):
        assert next_layer > layer or (below - next_half) - (above + half) >= GAP - 1e-6
    assert min(y - half for _, y, half in edges) == pytest.approx(0, abs=1e-6)
    assert max(y + half for _, y, half in edges) == pytest.approx(placed.height)


@settings(max_examples=20)
@given(graphs())
def test_a_line_passes_every_layer_between_its_ends(graph: tuple[list[str], list]) -> None:
    placed = layout(*graph, HIGH)
    assert set(placed.routes) == set(graph[1])
    for (parent, child), route in placed.routes.items():
        layers = [placed.places[stop][0] for stop in route]
        assert layers == list(range(layers[0], layers[-1] + 1))
        assert (route[0], route[-1]) == ((parent,), (child,))


def test_lines_that_need_not_cross_do_not() -> None:
    edges = [("a", "z"), ("b", "y"), ("c", "x"), ("c", "w")]
    placed = layout(list("abcwxyz"), edges, HIGH)
    ends = [(placed.places[(parent,)][1], placed.places[(child,)][1]) for parent, child in edges]
    assert not [1 for a, b in ends for c, d in ends if a < c and b > d]


def test_an_only_child_stands_beside_its_parent() -> None:
    placed = layout(["a", "b", "c"], [("a", "b"), ("b", "c")], HIGH)
    assert len({y for _, y in placed.places.values()}) == 1


def test_no_boxes_take_no_room() -> None:
    assert layout([], [], HIGH).height == 0
