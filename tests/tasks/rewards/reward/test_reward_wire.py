"""Bundles and graphs as arrays, and what a batch refuses."""

from __future__ import annotations

import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from rubric_graphs import RETENTION, bundle, edges_among, graph, rubric

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node
from rubricflow.tasks.core.contracts.settings.reward import Retention
from rubricflow.tasks.rewards.reward.compiled import batch, compile_graph

FOUR = rubric([1, 2, 3, 4], [(3, 1, 0.25), (1, 0, 0.5), (3, 0, 0.75)])


def test_criteria_and_weights_are_in_the_bundles_order():
    assert FOUR.criteria == ("c0", "c1", "c2", "c3")
    assert FOUR.weights.tolist() == [1, 2, 3, 4]


@given(st.data())
def test_parents_come_before_children_and_edges_in_the_order_of_their_children(data):
    count = data.draw(st.integers(1, 9))
    edges = data.draw(edges_among(count))
    compiled = rubric([1] * count, edges)
    rank = {place: at for at, place in enumerate(compiled.order.tolist())}
    assert sorted(rank) == list(range(count))
    assert all(rank[a] < rank[b] for a, b, _ in edges)
    ranks = [(rank[b], rank[a]) for a, b in zip(compiled.parent.tolist(), compiled.child.tolist(), strict=True)]
    assert ranks == sorted(ranks)
    assert sorted(compiled.edges) == sorted((f"c{a}", f"c{b}") for a, b, _ in edges)
    found = dict(zip(compiled.edges, compiled.retention.tolist(), strict=True))
    assert found == {(f"c{a}", f"c{b}"): kept for a, b, kept in edges}


def test_among_criteria_that_are_ready_the_rubrics_order_holds():
    assert FOUR.order.tolist() == [2, 3, 1, 0]


@pytest.mark.parametrize(("relation", "factor"), RETENTION.model_dump().items())
@pytest.mark.parametrize("eta", [0, 0.5, 1, 2, 4])
def test_a_relation_keeps_its_factor_to_the_power_of_the_strength(relation, factor, eta):
    compiled = compile_graph("r", bundle([1, 1]), graph(2, [(0, 1)], relation), RETENTION, eta=eta)
    assert compiled.relation == (relation,)
    assert compiled.retention[0] == pytest.approx(1.0 if eta == 0 else factor**eta)
    assert getattr(RETENTION.at(eta), relation) == pytest.approx(compiled.retention[0])


def test_a_learned_factor_takes_the_relations_place_before_the_strength():
    given = {("c0", "c1"): 0.3}
    compiled = compile_graph("r", bundle([1, 1, 1]), graph(3, [(0, 1), (0, 2)]), RETENTION, eta=2, learned=given)
    assert dict(zip(compiled.edges, compiled.retention, strict=True)) == pytest.approx(
        {("c0", "c1"): 0.09, ("c0", "c2"): 0.36}
    )


@pytest.mark.parametrize(
    ("weights", "mass"), [([2, 3], 5), ([2, -7, 3], 5), ([-2, -3], 5), ([0, -4], 4), ([0, 4, -1], 4)]
)
def test_a_reward_is_a_share_of_the_positive_weights_or_of_all_where_none_is(weights, mass):
    assert rubric(weights).mass == mass


def test_sub_points_stand_under_their_whole():
    parts = bundle([1, 1, 1]).criteria
    nested = bundle([1]).model_copy(
        update={
            "criteria": (parts[0].model_copy(update={"parent": "whole"}), parts[1], parts[2]),
            "composites": (Criterion(id="whole", trait="t", text="Says it all.", weight=5),),
        }
    )
    names = ("whole", "c1", "c2")
    drawn = Graph(
        nodes=tuple(Node(criterion_id=name, role="core") for name in names),
        edges=(Edge(parent="c1", child="whole", relation="activation"),),
    )
    compiled = compile_graph("r", nested, drawn, RETENTION)
    assert compiled.criteria == names
    assert compiled.weights.tolist() == [5, 1, 1]
    assert compiled.edges == [("c1", "whole")]


@pytest.mark.parametrize(
    ("weights", "of_graph", "more", "said"),
    [
        ([1, 1], graph(3, []), {}, "rubric 'r': its graph is of another rubric; they differ in c2"),
        ([1, 1, 1], graph(2, []), {}, "differ in c2"),
        ([0, 0], graph(2, []), {}, "rubric 'r': its weights are all 0"),
        ([math.nan, 1], graph(2, []), {}, "rubric 'r': its weights"),
        ([1e308, 1e308], graph(2, []), {}, "rubric 'r': its weights"),
        ([1e-300, -1e300], graph(2, []), {}, "rubric 'r': its weights lie too far apart"),
        ([1, -1e308], graph(2, []), {}, "rubric 'r': its weights lie too far apart"),
        ([1, 1], graph(2, []), {"learned": {("c0", "c1"): 0.5}}, "c0 → c1, which is no edge"),
        ([1, 1], graph(2, [(0, 1)]), {"learned": {("c0", "c1"): 1.5}}, "c0 → c1 is 1.5, not in"),
        ([1, 1], graph(2, [(0, 1)]), {"learned": {("c0", "c1"): math.nan}}, "c0 → c1 is nan, not in"),
    ],
)
def test_what_cannot_be_wired_is_refused(weights, of_graph, more, said):
    with pytest.raises(ContractError, match=said):
        compile_graph("r", bundle(weights), of_graph, RETENTION, **more)


@pytest.mark.parametrize("factor", [-0.1, 1.1, math.nan])
def test_a_retention_factor_outside_its_range_is_refused(factor):
    with pytest.raises(ValidationError):
        Retention(weak_prerequisite=factor, strong_prerequisite=0.2, activation=0)


@given(st.data())
def test_responses_lie_one_after_the_other(data):
    compiled = [rubric([1]), FOUR, rubric([1, 1])]
    of = data.draw(st.lists(st.integers(0, 2), max_size=6))
    sizes = [len(compiled[which].criteria) for which in of]
    found = batch(compiled, of, np.linspace(0, 1, sum(sizes)))
    assert found.start.tolist() == [0, *np.cumsum(sizes)]
    assert found.local.tolist() == np.linspace(0, 1, sum(sizes)).tolist()
    assert found.scored.all()


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, -1e-9, 1 + 1e-9])
def test_a_local_score_outside_its_range_is_refused_with_its_place(odd):
    local = [0.5, 0.1, 0.2, odd, 0.4, 0.5]
    with pytest.raises(ContractError, match=r"response 2, rubric 'r', criterion 1 of the batch: .* no local score"):
        batch([rubric([1]), FOUR], [0, 0, 1], local)


def test_what_stands_at_an_unscored_place_is_passed_over():
    found = batch([FOUR], [0], [0.1, math.nan, 7, 0.4], [True, False, False, True])
    assert found.local.tolist() == [0.1, 0, 0, 0.4]
    assert found.scored.tolist() == [True, False, False, True]


def test_a_batch_keeps_its_own_copy_of_the_scores():
    local = np.array([0.1, 0.2, 0.3, 0.4])
    found = batch([FOUR], [0], local)
    local[0] = math.nan
    assert found.local[0] == 0.1


def test_a_graph_of_500_criteria_is_wired_in_topological_order():
    edges = [(at, at - 1, 0.5) for at in range(1, 500)]
    compiled = rubric([1] * 500, edges)
    directed = nx.DiGraph([(a, b) for a, b, _ in edges])
    assert compiled.order.tolist() == list(nx.lexicographical_topological_sort(directed))
