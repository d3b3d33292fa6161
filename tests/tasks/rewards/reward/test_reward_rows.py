"""The tables of rewards and dependency cases, read back row by row."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from reward_scene import ACTIVATION, FACTORS, STRONG, WEAK, locals_of, random_locals, rows_of, rubric, study

from rubricflow.tasks.core.contracts.schema import conform, schema
from rubricflow.tasks.core.contracts.tables.reward import EdgeCases, Rewards
from rubricflow.tasks.rewards.reward.aggregate import aggregate
from rubricflow.tasks.rewards.reward.exact import reward_variances
from rubricflow.tasks.rewards.reward.leakage import edge_cases
from rubricflow.tasks.rewards.reward.rows import case_rows, reward_rows

THREE = rubric([5, 3, -2], [(0, 1, WEAK), (0, 2, ACTIVATION)], "three")
TWO = rubric([1, 1], [(0, 1, STRONG)], "two")
SCENE = locals_of([THREE, TWO], [1, 0, 0], [[0.2, 0.8], [0.9, 0.6, 0.5], [0.9, None, 0.5]], ["i0", "i1", "i1"])


def table(aggregation, locals_=SCENE, unscored="null", **given):
    settings = study(**given)
    found = aggregate(locals_.batch, aggregation, inference=settings.inference, unscored=unscored)
    return reward_rows(locals_, found, reward_variances(locals_.batch, aggregation), aggregation, settings)


def numbers(value):
    """Every number in a row."""
    if isinstance(value, float):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from numbers(one)


def test_a_reward_is_a_row_of_the_contract():
    assert table("gear").schema.equals(schema(Rewards))
    assert table("gear").to_pylist()[0] == {
        "response_id": "r0",
        "item_id": "i0",
        "rubric_id": "two",
        "graph_id": "graph of two",
        "rater_id": "judge",
        "sample": 0,
        "aggregation": "gear",
        "reward": pytest.approx((0.2 + 0.8 * (0.2 + 0.8 * 0.2)) / 2),
        "low": None,
        "high": None,
        "reward_variance": None,
        "marginals": [("c0", 0.2), ("c1", pytest.approx(0.8 * (0.2 + 0.8 * 0.2)))],
        "inference": "topological",
        "eta": 1.0,
        "retention": list(FACTORS.items()),
        "unscored": 0,
        "decided_by": "probability",
    }


def test_an_aggregation_without_factors_names_none():
    for aggregation in ("flat", "hard_verdict", "hard_local", "hard_propagated"):
        row = table(aggregation, inference="exact").to_pylist()[0]
        assert (row["inference"], row["retention"], row["aggregation"]) == ("none", [], aggregation)
    assert table("gear", inference="exact", eta=2.0).to_pylist()[1]["inference"] == "exact"
    assert table("gear", eta=2.0).to_pylist()[1]["eta"] == 2.0


@given(st.integers(0, 2**32 - 1), st.sampled_from(["flat", "hard_verdict", "hard_local", "hard_propagated", "gear"]))
@hypothesis_settings(max_examples=15)
def test_tables_say_what_the_arrays_say_and_never_nan(seed, aggregation):
    locals_ = random_locals(np.random.default_rng(seed), unscored=0.2)
    found = aggregate(locals_.batch, aggregation, unscored="bounds")
    told = conform(
        Rewards, reward_rows(locals_, found, reward_variances(locals_.batch, aggregation), aggregation, study())
    ).to_pylist()
    for (n, one, start), row in zip(rows_of(locals_), told, strict=True):
        cells = range(start, start + len(one.criteria))
        marginals = {one.criteria[at - start]: found.marginal[at] for at in cells if not np.isnan(found.marginal[at])}
        assert dict(row["marginals"]) == marginals
        assert row["unscored"] == sum(not locals_.batch.scored[at] for at in cells)
        for name in ("reward", "low", "high"):
            assert [row[name]] == [None if np.isnan(value) else value for value in [getattr(found, name)[n]]]
    selected = edge_cases(locals_.batch, found.marginal, 0.5)
    for row, n, edge, leaked in zip(
        case_rows(locals_, selected, aggregation).to_pylist(),
        selected.response,
        selected.edge,
        selected.leaked,
        strict=True,
    ):
        assert not any(math.isnan(value) for value in numbers(list(row.values())))
        _, one, start = rows_of(locals_)[n]
        assert (row["response_id"], row["rubric_id"]) == (f"r{n}", one.rubric_id)
        assert (row["parent"], row["child"]) == one.edges[edge]
        assert row["relation"] == one.relation[edge]
        parent = locals_.batch.local[start + one.parent[edge]]
        assert row["state"] == ("satisfied" if parent >= 0.5 else "violated")
        assert row["leaked"] == (None if row["state"] == "satisfied" else leaked)
    assert not any(math.isnan(value) for row in told for value in numbers(list(row.values())))


def test_a_case_is_a_row_of_the_contract():
    found = edge_cases(SCENE.batch, aggregate(SCENE.batch, "gear").marginal, 0.5)
    told = case_rows(SCENE, found, "gear")
    assert told.schema.equals(schema(EdgeCases))
    assert conform(EdgeCases, told).to_pylist()[:2] == [
        {
            "response_id": "r0",
            "item_id": "i0",
            "rubric_id": "two",
            "rater_id": "judge",
            "sample": 0,
            "aggregation": "gear",
            "parent": "c0",
            "child": "c1",
            "relation": STRONG,
            "state": "violated",
            "effective": pytest.approx(0.8 * 0.36),
            "leaked": pytest.approx(0.4 * 0.36),
            "preserved": None,
        },
        {
            "response_id": "r1",
            "item_id": "i1",
            "rubric_id": "three",
            "rater_id": "judge",
            "sample": 0,
            "aggregation": "gear",
            "parent": "c0",
            "child": "c1",
            "relation": WEAK,
            "state": "satisfied",
            "effective": pytest.approx(0.6 * 0.96),
            "leaked": None,
            "preserved": pytest.approx(0.96),
        },
    ]
