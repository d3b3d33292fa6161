"""From rubrics to graphs, with scripted annotators."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from builders.bundles import bundle
from graph_scene import annotating

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.rubrics import GraphEdges
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.rewards.graph.annotator import worked_examples
from rubricflow.tasks.rewards.graph.build import Built, build, edge_rows, graph_row, node_rows
from rubricflow.tasks.rewards.graph.project import Vote
from rubricflow.tasks.rewards.graph.subject import Authored, subjects

VOTED = ((("c0", "c1"), "none"), (("c1", "c2"), "weak_prerequisite"))
WHEN = datetime(2026, 1, 1, tzinfo=UTC)


def built(subject: Any, annotator: Any = None, votes: tuple[Vote, ...] = (), **written: Authored) -> Built:
    (found,) = build({subject.rubric_id: subject}, written, votes, annotator)
    return found


def edges(one: Built) -> dict[tuple[str, str], str]:
    return {(edge.parent, edge.child): edge.relation for edge in one.graph.edges}


def told(one: Built) -> list[tuple[Any, ...]]:
    return [(row["parent"], row["child"], row["kept"], row["dropped"], row["source"]) for row in edge_rows(one)]


def test_roles_pairs_labels_and_projection_make_a_graph(rubric: Any, scripted: Any) -> None:
    found = {("c0", "c1"): "weak_prerequisite", ("c1", "c0"): "strong_prerequisite", ("c2", "c3"): "activation"}
    annotator, _ = scripted(annotating({"c2": "applicability", "c3": "penalty"}, found))
    one = built(rubric(5, 5, 5, -5), annotator)
    assert edges(one) == {("c1", "c0"): "strong_prerequisite", ("c2", "c3"): "activation"}
    assert told(one) == [
        ("c0", "c1", False, "cycle", "annotator"),
        ("c1", "c0", True, None, "annotator"),
        ("c2", "c3", True, None, "annotator"),
    ]
    row = graph_row(one)
    # c0 and c1 each way and to the penalty, and the condition to the penalty.
    assert {
        name: row[name] for name in ("criteria", "candidates", "proposed", "kept", "invalid", "failed", "depth")
    } == {
        "criteria": 4,
        "candidates": 5,
        "proposed": 3,
        "kept": 2,
        "invalid": 0,
        "failed": 0,
        "depth": 1,
    }
    assert (row["annotator"], row["profile"], row["graph_id"]) == ("scripted", "general", one.graph.graph_id)
    assert [call["role"] for call in row["calls"]] == ["graph", "graph"]


def test_an_annotator_is_shown_the_first_graphs_that_people_wrote(rubric: Any, scripted: Any) -> None:
    subjects = {name: rubric(5, -5, name=name, question=f"About {name}?") for name in "abc"}
    nodes = (Node(criterion_id="c0", role="core"), Node(criterion_id="c1", role="penalty"))
    of_b = Graph(nodes=nodes, edges=(Edge(parent="c0", child="c1", relation="weak_prerequisite"),))
    written = {"b": Authored(of_b, frozenset({"c1"})), "a": Authored(Graph(nodes=nodes), frozenset())}
    rows, prompts = [], []
    for most in (0, 1, 2):
        annotator, backend = scripted(annotating({}, {}))
        shown = replace(annotator, examples=worked_examples(most, written, subjects))
        rows.append(graph_row(build(subjects, written, [], shown)[2]))
        assert {request.subject for request in backend.asked} == {"c"}
        (prompt,) = {request.messages[0].content for request in backend.asked}
        prompts.append(prompt)
    first, second = (json.loads(line) for line in prompts[1].splitlines() if line.startswith("{"))
    assert first == {"id": "c0", "points": 5, "text": "Text 0.", "needs": {}}
    assert second["role"] == "penalty"
    assert second["needs"] == {"c0": "weak_prerequisite"}
    assert [[name in prompt for name in ("About b?", "About a?")] for prompt in prompts] == [
        [False, False],
        [True, False],
        [True, True],
    ]
    assert len({row["source_digest"] for row in rows}) == len({row["made_from"]["examples"] for row in rows}) == 3


def test_an_annotator_that_says_nothing_leaves_roles_by_sign_and_no_edges(rubric: Any, scripted: Any) -> None:
    annotator, _ = scripted(lambda request: Reply(error="down: no"))
    one = built(rubric(5, 5, -5), annotator)
    assert [(row["role"], row["source"]) for row in node_rows(one)] == [
        ("core", "fallback"),
        ("core", "fallback"),
        ("penalty", "fallback"),
    ]
    row = graph_row(one)
    assert (row["roles_missing"], row["candidates"], row["failed"], row["proposed"], row["kept"]) == (3, 4, 2, 0, 0)
    assert told(one) == []


def test_a_single_criterion_is_a_graph_without_pairs(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(annotating({}, {}))
    one = built(rubric(5), annotator)
    assert (len(one.graph.nodes), one.graph.edges, backend.calls) == (1, (), 0)
    assert graph_row(one)["roles_missing"] == 0


def test_the_nodes_are_the_criteria_that_are_no_sub_points(scripted: Any) -> None:
    parts = [Criterion(id=f"C1.{at}", trait="t", text=f"Part {at}.", weight=2, parent="C1") for at in (1, 2)]
    whole = Criterion(id="C1", trait="t", text="Whole.", weight=4)
    locked = bundle(Criterion(id="C0", trait="t", text="First.", weight=1), *parts, composites=(whole,))
    items = [
        {"item_id": name, "rubric_id": "r", "question": f"Question {name}?", "context": None} for name in ("b", "a")
    ]
    found = subjects(items, {"r": locked})
    annotator, backend = scripted(annotating({}, {("C0", "C1"): "weak_prerequisite"}))
    one = built(found["r"], annotator)
    assert [(row["criterion_id"], row["text"], row["weight"]) for row in node_rows(one)] == [
        ("C0", "First.", 1.0),
        ("C1", "Whole.", 4.0),
    ]
    assert edges(one) == {("C0", "C1"): "weak_prerequisite"}
    assert "Question a?" in backend.asked[0].messages[1].content
    assert "Question b?" not in backend.asked[0].messages[1].content


def test_votes_on_roles_rule_out_edges_and_change_no_request(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(
        annotating({}, {("c0", "c1"): "weak_prerequisite", ("c1", "c2"): "weak_prerequisite"})
    )
    plain = built(rubric(1, 1, 1), annotator)
    one = built(rubric(1, 1, 1), annotator, (Vote("r", ("c1",), "additional", "ann", WHEN, None),))
    assert [(row["role"], row["source"]) for row in node_rows(one)][1] == ("additional", "vote")
    assert told(one) == [("c0", "c1", True, None, "annotator"), ("c1", "c2", False, "roles", "annotator")]
    assert (len(plain.graph.edges), backend.calls) == (2, 2)


def test_without_an_annotator_a_graph_holds_what_criteria_state_and_votes(rubric: Any) -> None:
    subject = rubric("Names the gas.", "If criterion 1 is met, gives its share.", "Says why.")
    one = built(subject)
    assert told(one) == [("c0", "c1", True, None, "stated")]
    row = graph_row(one)
    assert (row["annotator"], row["profile"], row["calls"], row["roles_missing"], row["failed"]) == (
        ("stated", "none", [], 0, 0)
    )
    assert conform(GraphEdges, edge_rows(one)).num_rows == 1
    votes = tuple(Vote("r", pair, value, "ann", WHEN, None) for pair, value in VOTED)
    assert told(built(subject, None, votes)) == [
        ("c0", "c1", False, "voted_out", "stated"),
        ("c1", "c2", True, None, "vote"),
    ]


def test_an_authored_graph_needs_no_annotator_and_takes_votes(rubric: Any) -> None:
    graph = Graph(
        nodes=tuple(Node(criterion_id=name, role="core") for name in ("c0", "c1", "c2")),
        edges=(
            Edge(parent="c0", child="c1", relation="activation"),
            Edge(parent="c1", child="c2", relation="weak_prerequisite"),
        ),
    )
    votes = (Vote("r", ("c0", "c1"), "none", "ann", WHEN, None), Vote("r", ("c2",), "penalty", "ann", WHEN, None))
    one = built(rubric(1, 1, 1), None, votes, r=Authored(graph, frozenset({"c0"})))
    assert told(one) == [("c0", "c1", False, "voted_out", "authored"), ("c1", "c2", True, None, "authored")]
    assert [row["source"] for row in node_rows(one)] == ["authored", "fallback", "vote"]
    row = graph_row(one)
    assert (row["annotator"], row["profile"], row["calls"], row["roles_missing"]) == ("authored", "none", [], 0)


@pytest.mark.parametrize(
    "change",
    [
        {"question": "How?"},
        {"context": "More."},
        {"weights": (1, 2)},
        {"plan": {"profile": "law"}},
        {"plan": {"sampling": {"seed": 1}}},
        {"votes": (Vote("r", ("c0",), "core", "ann", WHEN, None),)},
    ],
)
def test_another_source_has_another_digest(change: dict[str, Any], rubric: Any, scripted: Any) -> None:
    def digest(weights: tuple[int, ...] = (1, 1), plan: Any = None, votes: Any = (), **query: Any) -> str:
        return built(rubric(*weights, **query), scripted(annotating({}, {}), **plan or {})[0], votes).sources.digest

    assert digest(**change) != digest()
