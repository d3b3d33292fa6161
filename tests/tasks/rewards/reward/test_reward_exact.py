"""Exact marginals against all 2^k states, against pgmpy, and against numbers by hand."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rubric_graphs import edges_among, rubric, shares

from rubricflow.tasks.rewards.reward.compiled import MOST
from rubricflow.tasks.rewards.reward.exact import TooWide, exact_marginals


def enumerated(local, edges) -> list[float]:
    """Marginals by summing Eq. 9 over every state of every criterion."""
    found = np.zeros(len(local))
    for state in itertools.product((0, 1), repeat=len(local)):
        probability = 1.0
        for place, share in enumerate(local):
            for parent, child, kept in edges:
                if child == place:
                    share *= 1.0 if state[parent] else kept
            probability *= share if state[place] else 1 - share
        found += probability * np.array(state)
    return found.tolist()


def drawn_edges(rng, count, density) -> list[tuple[int, int, float]]:
    order = rng.permutation(count).tolist()
    pairs = [(order[a], order[b]) for b in range(count) for a in range(b)]
    return [(a, b, float(rng.choice([0, 0.2, 0.6, 1, rng.random()]))) for a, b in pairs if rng.random() < density]


@settings(max_examples=15)
@given(st.data())
def test_marginals_are_the_sums_over_all_states(data):
    count = data.draw(st.integers(1, 8))
    edges, local = data.draw(edges_among(count)), data.draw(shares(count))
    found = exact_marginals(rubric([1] * count, edges), np.array([local]))
    assert found[0] == pytest.approx(enumerated(local, edges), abs=1e-12)


@pytest.fixture
def quiet() -> Iterator[None]:
    """pgmpy logs what it infers of the states."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(("count", "density"), [(5, 0.5), (9, 0.3), (14, 0.15), (14, 0.3)])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_marginals_are_those_of_pgmpy(count, density, quiet):
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.inference import VariableElimination
    from pgmpy.models import DiscreteBayesianNetwork

    rng = np.random.default_rng(count)
    edges, local = drawn_edges(rng, count, density), rng.random(count)
    network = DiscreteBayesianNetwork()
    network.add_nodes_from(range(count))
    network.add_edges_from([(a, b) for a, b, _ in edges])
    for place in range(count):
        into = {a: kept for a, b, kept in edges if b == place}
        holds = [
            local[place] * np.prod([1.0 if on else kept for on, kept in zip(states, into.values(), strict=True)])
            for states in itertools.product((0, 1), repeat=len(into))
        ]
        table = [[1 - share for share in holds], holds]
        network.add_cpds(TabularCPD(place, 2, table, list(into), [2] * len(into)))
    assert network.check_model()
    engine = VariableElimination(network)
    expected = [engine.query([place], show_progress=False).values[1] for place in range(count)]
    found = exact_marginals(rubric([1] * count, edges), local[None])
    assert found[0] == pytest.approx(expected, abs=1e-9)


def test_no_rounding_lifts_a_marginal_above_its_local_score():
    local = np.array(list(itertools.product(np.linspace(0, 1, 11), repeat=3)))
    found = exact_marginals(rubric([1] * 3, [(0, 2, 1.0), (1, 2, 1.0)]), local)
    assert np.all(found <= local)
    np.testing.assert_allclose(found, local, atol=1e-15)


@pytest.mark.parametrize(
    ("edges", "shape"),
    [
        ([(0, at, 0.3) for at in range(1, 200)], "one parent of many"),
        ([(at, 199, 0.99) for at in range(199)], "one child of many"),
        ([((at - 1) // 2, at, 0.3) for at in range(1, 200)], "a tree"),
        ([(at, (at - 1) // 2, 0.3) for at in range(1, 200)], "a tree upside down"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_trees_of_any_size_are_narrow(edges, shape):
    rng = np.random.default_rng(5)
    local = rng.uniform(0.5, 1, 200)
    found = exact_marginals(rubric([1] * 200, edges), local[None])[0]
    parents = {place: [(a, kept) for a, b, kept in edges if b == place] for place in range(200)}

    def share(place: int) -> float:  # the parents in a tree are independent
        return local[place] * np.prod([share(a) + (1 - share(a)) * kept for a, kept in parents[place]])

    assert found == pytest.approx([share(place) for place in range(200)], abs=1e-12)


def test_a_graph_of_14_criteria_is_never_too_wide():
    pairs = itertools.combinations(range(14), 2)
    compiled = rubric([1] * 14, [(a, b, 0.5) for a, b in pairs])
    assert exact_marginals(compiled, np.ones((1, 14))).tolist() == [[1.0] * 14]


def test_a_wider_graph_is_refused_with_its_rubric_and_width():
    pairs = itertools.combinations(range(MOST + 2), 2)
    compiled = rubric([1] * (MOST + 2), [(a, b, 0.5) for a, b in pairs], "essay-7")
    with pytest.raises(TooWide, match=f"rubric 'essay-7': exact inference would hold {MOST + 1} "):
        exact_marginals(compiled, np.ones((1, MOST + 2)))
