"""A graph's picture: HTML that shows every criterion and dependency, and takes a rubric's text as text."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import networkx as nx
import pytest
from builders.html_scene import Seen
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.rewards.report.picture import GAP, LANE, EarnedCredit, edges_page, graph_page, layout, picture

EVIL = '</title></svg><script>alert(1)</script><img src=x onerror="1"> & ]]> \x00\ud800\u202e\ufffe'
WHOLE, CORNER = re.compile(r"width:(\S+)px;height:(\S+)px"), re.compile(r"left:(\S+)px;top:(\S+)px")
Row = dict[str, Any]


def node(name: str, at: int, role: str = "core", weight: float = 1.0, text: str = "Says so.", rubric: str = "r") -> Row:
    row = {"rubric_id": rubric, "graph_id": "g", "criterion_id": name, "position": at, "text": text}
    return row | {"weight": weight, "role": role, "source": "annotator"}


def edge(parent: str, child: str, relation: str = "weak_prerequisite", dropped: str | None = None, **more: Any) -> Row:
    row = {"rubric_id": "r", "graph_id": "g", "proposal": 0, "parent": parent, "child": child, "relation": relation}
    row |= {"confidence": None, "source": "annotator", "kept": dropped is None, "dropped": dropped, "detail": None}
    return row | more


def drawn(nodes: list[Row], edges: list[Row], shown: EarnedCredit | None = None) -> Seen:
    return Seen(picture(nodes, edges, shown))


@pytest.mark.parametrize(("criteria", "edges"), [(0, 0), (1, 0), (5, 0), (5, 4), (40, 39), (150, 0)])
def test_a_graph_of_any_size_shows_every_criterion_inside_the_picture(criteria: int, edges: int) -> None:
    nodes = [node(f"c{at}", at, text=f"Names fact {at}.") for at in range(criteria)]
    seen = drawn(nodes, [edge(f"c{at // 3}", f"c{at}") for at in range(1, edges + 1)])
    assert sum(f"Names fact {at}." in seen.words for at in range(criteria)) == criteria
    styles = [attrs["style"] for tag, attrs in seen.elements if "style" in attrs]
    wide, high = next((map(float, found.groups()) for s in styles if (found := WHOLE.fullmatch(s))), (0.0, 0.0))
    corners = [tuple(map(float, found.groups())) for style in styles if (found := CORNER.fullmatch(style))]
    assert len(corners) == (edges + 1 if edges else 0)
    assert all(0 <= x < wide and 0 <= y < high for x, y in corners)


def test_a_box_says_id_role_signed_weight_and_the_whole_text() -> None:
    long = "Tells that " + "a very long and winding story " * 20 + "ends."
    assert {"P7", "penalty", "−2.5", long} <= drawn([node("P7", 0, "penalty", -2.5, long)], []).words


def test_every_role_has_a_shape_of_its_own() -> None:
    roles = ["core", "additional", "penalty", "applicability"]
    page = graph_page("r", [node(role, at, role) for at, role in enumerate(roles)], [])
    assert [kind for kind in Seen(page).classes if kind.startswith("box")] == [f"box {role}" for role in roles]
    assert len({re.sub("--role:[^;]*;", "", page.split(f".graph .{role} {{")[1].split("}")[0]) for role in roles}) == 4


@pytest.mark.parametrize(
    ("relation", "line"),
    [("weak_prerequisite", "line weak"), ("strong_prerequisite", "line"), ("activation", "line double")],
)
def test_every_relation_has_a_line_of_its_own_and_a_legend(relation: str, line: str) -> None:
    seen = drawn([node("a", 0), node("b", 1)], [edge("a", "b", relation, confidence=0.8)])
    assert seen.classes.count(line) == 2  # in the graph and in the legend
    assert f"a → b: {relation.replace('_', ' ')}, confidence 0.80" in seen.titles
    assert relation.replace("_", " ") in seen.words


def test_edges_that_were_dropped_are_not_drawn() -> None:
    edges = [edge("a", "b"), edge("b", "a", dropped="cycle"), edge("a", "zz", dropped="unknown_criterion")]
    titles = drawn([node("a", 0), node("b", 1)], edges).titles
    assert titles == ["a → b: weak prerequisite"]


def test_what_a_response_earned_is_a_bar_and_a_number() -> None:
    shown = EarnedCredit({"a": 0.25, "b": 1.0, "c": 0.5}, {"a": 0.25, "b": 0.375}, 0.5)
    seen = drawn([node(name, at) for at, name in enumerate("abcd")], [edge("a", "b")], shown)
    assert {"0.25", "1.00 → 0.38", "0.50 → ?", "unscored"} <= seen.words
    assert seen.widths("own") == [25, 100, 50, 0, 100]  # the last is the legend's
    assert seen.widths("rest") == [25, 37.5, 0, 0, 40]


@pytest.mark.parametrize(
    ("parent", "child", "lost"), [(0.4, 0.6, True), (0.5, 0.6, False), (0.4, 0.4, False), (None, 1.0, False)]
)
def test_a_dependency_that_the_response_breaks_is_marked(parent: float | None, child: float, lost: bool) -> None:
    local = {name: value for name, value in (("a", parent), ("b", child)) if value is not None}
    seen = drawn([node("a", 0), node("b", 1)], [edge("a", "b")], EarnedCredit(local, local, 0.5))
    assert any("without the parent in this response" in title for title in seen.titles) == lost


def test_what_a_rubric_says_is_text() -> None:
    nodes = [node(EVIL, 0, text=EVIL), node("b", 1, text=EVIL)]
    edges = [edge(EVIL, "b")]
    seen = drawn(nodes, edges, EarnedCredit({EVIL: 1.0}, {}, 0.5))
    known = "div svg g title path article header b bdi p span i ul li"
    assert {tag for tag, _ in seen.elements} <= set(known.split())
    assert not [name for _, attrs in seen.elements for name in attrs if name.startswith("on") or name.endswith("href")]
    assert any("⟨U+202E⟩" in title for title in seen.titles)
    assert any("<script>alert(1)</script>" in text and "⟨U+202E⟩" in text for text in seen.words)


def test_an_id_that_is_not_shown_as_it_is_keeps_its_scores() -> None:
    name = "a  b\x00"
    assert "1.00 → 0.36" in drawn([node(name, 0)], [], EarnedCredit({name: 1.0}, {name: 0.36}, 0.5)).words


def test_a_graph_alone_is_a_page_that_needs_no_other_file() -> None:
    page = graph_page("osmosis <1>", [node("a", 0), node("b", 1)], [edge("a", "b")])
    seen = Seen(page.removeprefix("<!doctype html>\n"))
    assert "Rubric graph: \u2068osmosis <1>\u2069" in seen.titles
    assert "2 criteria, 1 dependency" in seen.words
    assert "a → b: weak prerequisite" in seen.titles
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert not re.search(r"<script|<link|url\(|@import|src=|href=", page)
    assert " id=" not in picture([node("a", 0)], [])


def test_every_edge_stands_in_one_page_with_its_reason_and_what_became_of_it() -> None:
    edges = [
        edge("a", "b", detail="b is made of a"),
        edge("b", "c", dropped="one_order", detail=EVIL, relation=None),
        edge("gone", "b", dropped="unknown_criterion"),
    ]
    seen = Seen(edges_page("s", [node("a", 0, text="Says a."), node("b", 1, text=EVIL)], edges).split("\n", 1)[1])
    assert {"Says a.", "b is made of a", "weak prerequisite", "gone"} <= seen.words
    assert any("1 of 3" in words for words in seen.words)
    assert "script" not in {tag for tag, _ in seen.elements}
    assert not any("\u202e" in words or "\x00" in words for words in seen.words)
    assert any("0 of 0" in words for words in Seen(edges_page("s", [], []).split("\n", 1)[1]).words)


# Where a graph's boxes stand: parents before children, nothing on top of anything, few crossings.


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
