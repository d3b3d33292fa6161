"""Authored graphs: taken as they are, or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.rewards.graph.subject import Authored, authored


def written(folder: Path, subject: Any, text: str) -> dict[str, Authored]:
    path = folder / "graphs.yaml"
    path.write_text(text, encoding="utf-8")
    return authored(path, {"r": subject})


def one(nodes: str = "[]", edges: str = "[]", rubric_id: str = "r") -> str:
    return f"graphs:\n- {{rubric_id: {rubric_id}, nodes: {nodes}, edges: {edges}}}\n"


def an_edge(parent: str, child: str, relation: str = "weak_prerequisite") -> str:
    return f"{{parent: {parent}, child: {child}, relation: {relation}}}"


def test_a_graph_is_taken_as_it_is_and_the_others_roles_are_by_sign(tmp_path: Path, rubric: Any) -> None:
    text = one("[{criterion_id: c2, role: applicability}]", f"[{an_edge('c2', 'c0', 'activation')}]")
    found = written(tmp_path, rubric(1, -1, 1), text)["r"]
    assert [(node.criterion_id, node.role) for node in found.graph.nodes] == [
        ("c0", "core"),
        ("c1", "penalty"),
        ("c2", "applicability"),
    ]
    assert [(e.parent, e.child, e.relation) for e in found.graph.edges] == [("c2", "c0", "activation")]
    assert found.listed == {"c2"}


def test_nodes_and_edges_may_be_left_out(tmp_path: Path, rubric: Any) -> None:
    found = written(tmp_path, rubric(-1, -2), "graphs:\n- rubric_id: r\n")["r"]
    assert [node.role for node in found.graph.nodes] == ["penalty", "penalty"]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (one(rubric_id="q"), "there is no rubric 'q'"),
        (one() + "- {rubric_id: r}\n", "the graph of rubric 'r' is given twice"),
        (one("[{criterion_id: c9, role: core}]"), "rubric 'r', node 'c9': the rubric has no such criterion"),
        (
            one("[{criterion_id: c0, role: core}, {criterion_id: c0, role: core}]"),
            "rubric 'r', node 'c0': is given twice",
        ),
        (one("[{criterion_id: c0, role: bonus}]"), "graphs.0.nodes.0.role': Input should be 'core', 'additional'"),
        (
            one(edges=f"[{an_edge('c0', 'c1', 'trigger')}]"),
            "graphs.0.edges.0.relation': Input should be 'weak_prerequisite'",
        ),
        (one(edges=f"[{an_edge('c0', 'c9')}]"), "rubric 'r': edge c0 → c9: there is no criterion 'c9'"),
        (one(edges=f"[{an_edge('c1', 'c1')}]"), "rubric 'r': criterion 'c1' cannot license itself"),
        (
            one(edges=f"[{an_edge('c0', 'c1')}, {an_edge('c0', 'c1', 'activation')}]"),
            "rubric 'r': edge c0 → c1 is given twice",
        ),
        (
            one(edges=f"[{an_edge('c0', 'c1')}, {an_edge('c1', 'c2')}, {an_edge('c2', 'c0')}]"),
            "rubric 'r': the edges go in a circle: c0 → c1 → c2 → c0",
        ),
        ("graphs:\n- {rubric_id: r, edge: []}\n", "there is no such key"),
        ("graphs: [", "is not YAML"),
        ("- 1\n", "graphs.yaml"),
    ],
)
def test_a_graph_that_cannot_be_is_refused_by_file_rubric_and_rule(
    text: str, rule: str, tmp_path: Path, rubric: Any
) -> None:
    with pytest.raises(InputError) as error:
        written(tmp_path, rubric(1, 1, 1), text)
    assert rule in str(error.value)
    assert "graphs.yaml" in str(error.value)
