"""A graph's picture: valid XML that shows every criterion and dependency, and takes a rubric's text as text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.contracts.schema import conform
from tasks.contracts.tables.graph import GraphEdges, GraphNodes
from tasks.report.reward.boxes import INSET, WIDTH, Shown, width, wrapped
from tasks.report.reward.picture import PALETTE, picture, pictures, style

SVG = "{http://www.w3.org/2000/svg}"
EVIL = '</title></svg><script>alert(1)</script><img src=x onerror="1"> & ]]> \x00\ud800\u202e\ufffe'
Row = dict[str, Any]


def node(name: str, at: int, role: str = "core", weight: float = 1.0, text: str = "Says so.", rubric: str = "r") -> Row:
    row = {"rubric_id": rubric, "graph_id": "g", "criterion_id": name, "position": at, "text": text}
    return row | {"weight": weight, "role": role, "source": "annotator"}


def edge(parent: str, child: str, relation: str = "weak_prerequisite", dropped: str | None = None, **more: Any) -> Row:
    row = {"rubric_id": "r", "graph_id": "g", "proposal": 0, "parent": parent, "child": child, "relation": relation}
    row |= {"confidence": None, "source": "annotator", "kept": dropped is None, "dropped": dropped, "detail": None}
    return row | more


def drawn(nodes: list[Row], edges: list[Row], shown: Shown | None = None) -> ET.Element:
    return ET.fromstring(picture(nodes, edges, shown, alone=True))


def titles(root: ET.Element) -> list[str]:
    return [title.text or "" for title in root.iter(f"{SVG}title")]


def words(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def classes(root: ET.Element) -> list[str]:
    return [mark.get("class", "") for mark in root.iter()]


@pytest.mark.parametrize(("criteria", "edges"), [(0, 0), (1, 0), (5, 0), (5, 4), (40, 39), (500, 0)])
def test_a_graph_of_any_size_shows_every_criterion_inside_the_picture(criteria: int, edges: int) -> None:
    nodes = [node(f"c{at}", at, text=f"Names fact {at}.") for at in range(criteria)]
    root = drawn(nodes, [edge(f"c{at // 3}", f"c{at}") for at in range(1, edges + 1)])
    assert sum(f"Names fact {at}." in words(root) for at in range(criteria)) == criteria
    x, y, wide, high = map(float, root.get("viewBox", "").split())
    for box in root.iter(f"{SVG}g"):
        if found := re.fullmatch(r"translate\((\S+) (\S+)\)", box.get("transform", "")):
            assert x <= float(found[1]) < x + wide
            assert y <= float(found[2]) < y + high


def test_a_box_says_id_role_and_signed_weight_and_its_tooltip_the_whole_text() -> None:
    long = "Tells that " + "a very long and winding story " * 20 + "ends."
    root = drawn([node("P7", 0, "penalty", -2.5, long)], [])
    assert {"P7", "penalty", "−2.5"} <= set(words(root))
    assert f"P7, penalty, weight −2.5: {long}" in titles(root)
    assert any(text.endswith("…") for text in words(root))


def test_every_role_has_a_shape_of_its_own() -> None:
    roles = ["core", "additional", "penalty", "applicability"]
    root = drawn([node(role, at, role) for at, role in enumerate(roles)], [])
    shapes = [mark for mark in root.iter() if mark.get("class") == "box"]
    assert len({(mark.tag, mark.get("rx"), mark.get("d")) for mark in shapes}) == len(roles)


@pytest.mark.parametrize(
    ("relation", "line", "head"),
    [
        ("weak_prerequisite", "line weak", "head"),
        ("strong_prerequisite", "line", "head"),
        ("activation", "line double", "hollow"),
    ],
)
def test_every_relation_has_a_line_of_its_own_and_a_legend(relation: str, line: str, head: str) -> None:
    root = drawn([node("a", 0), node("b", 1)], [edge("a", "b", relation, confidence=0.8)])
    assert [classes(root).count(kind) for kind in (line, head)] == [2, 2]  # in the graph and in the legend
    assert f"a → b: {relation.replace('_', ' ')}, confidence 0.80" in titles(root)
    assert relation.replace("_", " ") in words(root)


def test_dropped_edges_are_drawn_where_a_person_may_want_them_back() -> None:
    nodes = [node("a", 0), node("b", 1), node("c", 2)]
    given = [
        edge("a", "b"),
        edge("b", "a", dropped="cycle", detail="b → a → b"),
        edge("c", "a", dropped="voted_out"),
        edge("a", "c", dropped="roles"),
        edge("a", "zz", dropped="unknown_criterion"),
        edge("a", "c", relation=None, dropped="failed"),
    ]
    told = titles(drawn(nodes, given))
    assert "b → a is not kept: it would close a circle (b → a → b)" in told
    assert "c → a is not kept: people voted against it" in told
    assert sum("is not kept" in title for title in told) == 2


def test_what_a_response_earned_is_a_bar_and_a_number() -> None:
    shown = Shown({"a": 0.2, "b": 1.0, "c": 0.5}, {"a": 0.2, "b": 0.36}, 0.5)
    root = drawn([node(name, at) for at, name in enumerate("abcd")], [edge("a", "b")], shown)
    assert {"0.20", "1.00 → 0.36", "0.50 → ?", "unscored"} <= set(words(root))
    room = [float(mark.get("width", 0)) for mark in root.iter() if mark.get("class") == "track"]
    own, left = (
        [float(m.get("width", 0)) for m in root.iter() if m.get("class") == kind and m.get("x")]
        for kind in ("own", "left")
    )
    assert own == pytest.approx([room[0] * share for share in (0.2, 1.0, 0.5)], abs=0.06)
    assert left == pytest.approx([room[0] * share for share in (0.2, 0.36)], abs=0.06)


@pytest.mark.parametrize(
    ("parent", "child", "lost"), [(0.4, 0.6, True), (0.5, 0.6, False), (0.4, 0.4, False), (None, 1.0, False)]
)
def test_a_dependency_that_the_response_breaks_is_marked(parent: float | None, child: float, lost: bool) -> None:
    local = {name: value for name, value in (("a", parent), ("b", child)) if value is not None}
    root = drawn([node("a", 0), node("b", 1)], [edge("a", "b")], Shown(local, local, 0.5))
    assert any("without the parent in this response" in title for title in titles(root)) == lost
    assert ("parent missing here" in words(root)) == lost


def test_what_a_rubric_says_is_text() -> None:
    nodes = [node(EVIL, 0, text=EVIL), node("b", 1, text=EVIL)]
    root = drawn(nodes, [edge(EVIL, "b"), edge("b", EVIL, dropped="cycle", detail=EVIL)], Shown({EVIL: 1.0}, {}, 0.5))
    known = {"svg", "style", "rect", "g", "title", "text", "path"}
    assert {mark.tag.removeprefix(SVG) for mark in root.iter()} <= known
    assert not [name for mark in root.iter() for name in mark.attrib if name.startswith("on") or name.endswith("href")]
    assert any("⟨U+202E⟩" in title for title in titles(root))


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=400), st.integers(1, 3))
def test_lines_fit_their_box_and_lose_nothing_but_what_the_ellipsis_stands_for(text: str, most: int) -> None:
    lines = wrapped(text, WIDTH - 2 * INSET, most)
    assert 1 <= len(lines) <= most
    assert all(width(line) <= WIDTH - 2 * INSET for line in lines)
    ET.fromstring(picture([node("c", 0, text=text)], [], alone=True))


def test_an_id_that_is_not_shown_as_it_is_keeps_its_scores() -> None:
    name = "a  b\x00"
    assert "1.00 → 0.36" in words(drawn([node(name, 0)], [], Shown({name: 1.0}, {name: 0.36}, 0.5)))


def test_a_short_text_is_whole() -> None:
    assert " ".join(wrapped("Names the time window in which treatment helps.", 200, 3)) == (
        "Names the time window in which treatment helps."
    )


def test_a_picture_in_a_page_has_no_style_and_no_ids() -> None:
    svg = picture([node("a", 0)], [])
    assert "<style" not in svg
    assert " id=" not in svg


def test_the_style_has_every_colour_on_light_and_on_dark() -> None:
    light, dark = style().split("@media screen and (prefers-color-scheme: dark)")
    for on_light, on_dark in PALETTE.values():
        assert on_light in light
        assert on_dark in dark
    assert "~" not in style()


def test_pictures_are_made_of_the_rubrics_that_are_asked_for() -> None:
    nodes = conform(GraphNodes, [node("a", 0), node("b", 1), node("x", 0, rubric="other")])
    edges = conform(GraphEdges, [edge("a", "b")])
    assert list(pictures(nodes, edges)) == ["r", "other"]
    assert list(pictures(nodes, edges, ["other"])) == ["other"]
    roots = {name: ET.fromstring(svg) for name, svg in pictures(nodes, edges).items()}
    assert "x" in words(roots["other"])
    assert "a → b: weak prerequisite" in titles(roots["r"])
