"""Ablated graphs keep what they promise to keep, over many seeds."""

from collections import Counter
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from reward_scene import ACTIVATION, STRONG, WEAK, random_rubric, rubric

from rubricflow.tasks.rewards.reward.compiled import shared_factor, untyped
from rubricflow.tasks.rewards.reward.rows import random_graph

SEEDS = st.integers(0, 2**32 - 1)
THREE = rubric([5, 3, -2, 1], [(0, 1, WEAK), (0, 2, ACTIVATION), (1, 2, STRONG)])


def edges(one):
    return list(zip(one.parent.tolist(), one.child.tolist(), one.relation, one.retention.tolist(), strict=True))


@given(SEEDS, st.integers(0, 1000))
@hypothesis_settings(max_examples=15)
def test_a_random_graph_has_as_many_edges_of_each_relation_and_is_acyclic(scene, seed):
    annotated = random_rubric(np.random.default_rng(scene), most=9)
    found = random_graph(annotated, seed)
    directed = nx.DiGraph([(parent, child) for parent, child, _, _ in edges(found)])
    assert nx.is_directed_acyclic_graph(directed)
    assert directed.number_of_edges() == len(annotated.parent)
    assert Counter(edge[2:] for edge in edges(found)) == Counter(edge[2:] for edge in edges(annotated))
    assert (found.criteria, found.rubric_id) == (annotated.criteria, annotated.rubric_id)
    assert found.weights is annotated.weights


@given(SEEDS, st.integers(0, 1000))
@hypothesis_settings(max_examples=15)
def test_a_random_graph_is_in_the_order_that_aggregation_needs(scene, seed):
    found = random_graph(random_rubric(np.random.default_rng(scene), most=9), seed)
    rank = {place: at for at, place in enumerate(found.order.tolist())}
    assert sorted(rank) == list(range(len(found.criteria)))
    assert all(rank[parent] < rank[child] for parent, child, _, _ in edges(found))
    places = [(rank[child], rank[parent]) for parent, child, _, _ in edges(found)]
    assert places == sorted(places)


def test_a_random_graph_is_that_of_its_seed_and_rubric_alone():
    assert edges(random_graph(THREE, 1)) == edges(random_graph(replace(THREE), 1))
    assert random_graph(THREE, 1).graph_id == random_graph(THREE, 1).graph_id != THREE.graph_id
    by_seed = {tuple(edges(random_graph(THREE, seed))) for seed in range(20)}
    by_name = {tuple(edges(random_graph(replace(THREE, rubric_id=f"rubric{at}"), 1))) for at in range(20)}
    assert len(by_seed) > 10
    assert len(by_name) > 10


def test_any_ordered_pair_may_become_an_edge_with_any_relation():
    one = rubric([1, 1, 1], [(0, 1, WEAK), (1, 2, ACTIVATION)])
    drawn = {edge[:3] for seed in range(400) for edge in edges(random_graph(one, seed))}
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    assert drawn == {(*pair, relation) for pair in pairs for relation in (WEAK, ACTIVATION)}


def test_untyped_graphs_share_the_mean_factor_of_all_edges():
    other = rubric([1, 1], [(0, 1, STRONG)], "other")
    mean = (0.6 + 0.0 + 0.2 + 0.2) / 4
    assert shared_factor([THREE, other]) == pytest.approx(mean)
    found = untyped([THREE, other])
    assert [one.retention.tolist() for one in found] == [[pytest.approx(mean)] * 3, [pytest.approx(mean)]]
    for one, annotated in zip(found, (THREE, other), strict=True):
        assert [edge[:3] for edge in edges(one)] == [edge[:3] for edge in edges(annotated)]
        assert one.graph_id != annotated.graph_id


def test_graphs_without_edges_share_no_factor():
    bare = rubric([1, 2], [])
    assert shared_factor([bare]) is None
    assert untyped([bare]) == [bare]
