"""Rubric graphs and retention factors: what they refuse, and what names them."""

from __future__ import annotations

from itertools import product
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node
from rubricflow.tasks.core.contracts.settings.reward import Graphs, Retention, Reward

PAPER = {"weak_prerequisite": 0.6, "strong_prerequisite": 0.2, "activation": 0.0}
NODES = tuple(Node(criterion_id=name, role="core") for name in "abcde")


def edge(pair: str, relation: Any = "weak_prerequisite") -> Edge:
    return Edge(parent=pair[0], child=pair[1], relation=relation)


@pytest.mark.parametrize(
    ("pairs", "rule"),
    [
        (["ab", "bc", "ca"], "the edges go in a circle"),
        (["ab", "ba"], "the edges go in a circle"),
        (["ax"], "edge a → x: there is no criterion 'x'"),
        (["xa"], "edge x → a: there is no criterion 'x'"),
        (["ab", "ab"], "edge a → b is given twice"),
        (["aa"], "criterion 'a' cannot license itself"),
    ],
)
def test_edges_that_make_no_graph_are_refused_with_their_rule(pairs: list[str], rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        Graph(nodes=NODES, edges=tuple(map(edge, pairs)))


def test_a_pair_with_two_relations_is_given_twice() -> None:
    with pytest.raises(ValidationError, match="given twice"):
        Graph(nodes=NODES, edges=(edge("ab"), edge("ab", "activation")))


def test_a_criterion_given_twice_is_refused() -> None:
    with pytest.raises(ValidationError, match="criterion 'b' is given twice"):
        Graph(nodes=(*NODES, Node(criterion_id="b", role="penalty")))


@pytest.mark.parametrize(("model", "field"), [(Node, "role"), (Edge, "relation")])
def test_an_unknown_role_or_relation_is_refused(model: type[Node] | type[Edge], field: str) -> None:
    whole = {"criterion_id": "a"} if model is Node else {"parent": "a", "child": "b"}
    with pytest.raises(ValidationError, match=field):
        model.model_validate(whole | {field: "bonus"})


@given(st.sets(st.sampled_from([a + b for a, b in product("abcde", repeat=2) if a != b])))
def test_what_is_taken_is_what_has_no_circle(pairs: set[str]) -> None:
    acyclic = nx.is_directed_acyclic_graph(nx.DiGraph([tuple(pair) for pair in pairs]))
    try:
        Graph(nodes=NODES, edges=tuple(edge(pair) for pair in sorted(pairs)))
    except ValidationError:
        assert not acyclic
    else:
        assert acyclic


def test_a_graphs_id_is_that_of_its_content() -> None:
    one = Graph(nodes=NODES, edges=(edge("ab"),))
    assert one.graph_id == Graph.model_validate_json(one.canonical()).graph_id
    others = (
        Graph(nodes=NODES, edges=(edge("ab", "activation"),)),
        Graph(nodes=NODES, edges=(edge("ba"),)),
        Graph(nodes=NODES),
        Graph(nodes=(Node(criterion_id="a", role="penalty"), *NODES[1:]), edges=(edge("ab"),)),
    )
    assert len({one.graph_id, *(other.graph_id for other in others)}) == 5


def test_retention_at_a_strength_is_its_power_and_0_to_the_0_is_1() -> None:
    given = Retention(**PAPER)
    assert given.at(1) == given
    assert set(given.at(0).model_dump().values()) == {1.0}
    assert given.at(2).model_dump() == pytest.approx({name: value**2 for name, value in PAPER.items()})


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_factor_that_is_no_share_is_refused(value: float) -> None:
    with pytest.raises(ValidationError):
        Retention(**{**PAPER, "activation": value})


def test_a_reward_takes_no_retention_silently() -> None:
    with pytest.raises(ValidationError, match="retention"):
        Reward.model_validate({})
    with pytest.raises(ValidationError, match="activation"):
        Reward.model_validate({"retention": {"weak_prerequisite": 0.6, "strong_prerequisite": 0.2}})


@pytest.mark.parametrize("plan", [{"backend": "vllm"}, {"backend": "openai"}, {"backend": "replay"}])
def test_an_annotator_needs_its_model(plan: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="needs"):
        Graphs.model_validate(plan)
