"""Where a graph's boxes stand: parents before children, nothing on top of anything, few crossings."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.report.reward.layout import layout

GAP, LANE = 18.0, 14.0


@st.composite
def graphs(draw: st.DrawFn) -> tuple[dict[str, float], list[tuple[str, str]]]:
    """Boxes with their heights and acyclic edges between them, in no particular order."""
    names = [f"c{at}" for at in range(draw(st.integers(1, 12)))]
    heights = {name: draw(st.floats(30, 120)) for name in names}
    pairs = [(a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    return heights, draw(st.permutations(edges))


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_every_box_is_in_the_layer_of_the_longest_path_to_it(given: tuple[dict[str, float], list]) -> None:
    heights, edges = given
    directed = nx.DiGraph(edges)
    directed.add_nodes_from(heights)
    longest = dict.fromkeys(heights, 0)
    for name in nx.topological_sort(directed):
        for child in directed[name]:
            longest[child] = max(longest[child], longest[name] + 1)
    found = layout(heights, edges)
    assert {stop[0]: at for at, layer in enumerate(found.layers) for stop in layer if len(stop) == 1} == longest


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_nothing_stands_on_anything_and_all_stands_in_the_picture(given: tuple[dict[str, float], list]) -> None:
    heights, edges = given
    found = layout(heights, edges, GAP, LANE)
    size = {stop: heights[stop[0]] if len(stop) == 1 else LANE for stop in found.y}
    for layer in found.layers:
        for above, below in pairwise(layer):
            room = found.y[below] - size[below] / 2 - found.y[above] - size[above] / 2
            assert room >= GAP - 1e-6
    assert min(found.y[stop] - size[stop] / 2 for stop in size) == pytest.approx(0, abs=1e-6)
    assert max(found.y[stop] + size[stop] / 2 for stop in size) == pytest.approx(found.height)


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_a_line_passes_every_layer_between_its_ends(given: tuple[dict[str, float], list]) -> None:
    heights, edges = given
    found = layout(heights, edges)
    for parent, child in edges:
        stops = found.route(parent, child)
        assert [layer for layer, _ in stops] == list(range(stops[0][0], stops[-1][0] + 1))
        assert (stops[0][1], stops[-1][1]) == (found.y[(parent,)], found.y[(child,)])


def test_lines_that_need_not_cross_do_not() -> None:
    edges = [("a", "z"), ("b", "y"), ("c", "x"), ("c", "w")]
    found = layout(dict.fromkeys("abcwxyz", 40.0), edges)
    left, right = ([stop[0] for stop in layer] for layer in found.layers)
    ends = [(left.index(parent), right.index(child)) for parent, child in edges]
    assert not [1 for a, b in ends for c, d in ends if a < c and b > d]


def test_an_only_child_stands_beside_its_parent() -> None:
    found = layout({"a": 40.0, "b": 90.0, "c": 40.0}, [("a", "b"), ("b", "c")])
    assert len(set(found.y.values())) == 1


def test_no_boxes_take_no_room() -> None:
    assert layout({}, []).height == 0
