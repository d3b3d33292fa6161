"""All figures of a study: ablations beside the aggregations, other strengths, exact inference, other raters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from reward_scene import STRONG, WEAK, locals_of, rubric, study
from scipy.stats import spearmanr

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.reward import Reward
from rubricflow.tasks.core.contracts.tables.reward import Aggregation, Diagnostics
from rubricflow.tasks.rewards.reward.aggregate import Aggregated, aggregate
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph
from rubricflow.tasks.rewards.reward.local import Locals
from rubricflow.tasks.rewards.reward.rows import AGGREGATIONS, STRENGTHS, Unscored, ablations, against, figures

CHAIN = rubric([4, 3, 2, -1], [(0, 1, STRONG), (1, 2, WEAK), (0, 2, WEAK)])
LOCAL = np.random.default_rng(0).random((30, 4))
OF = locals_of([CHAIN], [0] * 30, LOCAL.tolist())
SETTINGS = study()
FOUND = {name: aggregate(OF.batch, name) for name in AGGREGATIONS}


def compile_at(eta: float) -> Mapping[str, CompiledGraph]:
    return {CHAIN.rubric_id: replace(CHAIN, retention=CHAIN.retention**eta)}


def rows_of(
    of: Locals, found: Mapping[Aggregation, Aggregated], settings: Reward = SETTINGS, unscored: Unscored = "null"
) -> list[Record]:
    """The figures of every aggregation and the ablations."""
    own = [row for name, rewards in found.items() for row in figures(of, name, rewards, settings)]
    return own + ablations(of, compile_at, settings, unscored)


ROWS = rows_of(OF, FOUND)
REWARD_OF = {name: rewards.reward for name, rewards in FOUND.items()}


def value(metric: str, aggregation: str, by: str = "edge") -> float:
    (row,) = [
        row
        for row in ROWS
        if (row["metric"], row["aggregation"], row["per"], row["slice"]) == (metric, aggregation, by, "all")
    ]
    return float(row["value"])


def test_the_rows_are_those_of_the_contract_each_key_once() -> None:
    keys = [tuple(row[name] for name in Diagnostics.key) for row in ROWS]
    assert len(set(keys)) == len(keys)
    assert conform(Diagnostics, ROWS).num_rows == len(ROWS)


def test_strength_0_leaks_as_flat_and_1_as_gear() -> None:
    assert value("leakage", "gear, eta 0") == pytest.approx(value("leakage", "flat"))
    assert value("leakage", "gear, eta 1") == pytest.approx(value("leakage", "gear"))


def test_the_stronger_the_suppression_the_less_leaks() -> None:
    leaks = [value("leakage", f"gear, eta {eta:g}") for eta in STRENGTHS]
    assert leaks == sorted(leaks, reverse=True)


def test_one_factor_for_all_edges_is_their_mean() -> None:
    mean = CHAIN.retention.mean()
    shared = aggregate(replace_retention(np.full(3, mean)), "gear").reward.mean()
    assert value("reward_mean", "untyped", "response") == pytest.approx(shared)
    (row,) = [row for row in ROWS if (row["metric"], row["aggregation"]) == ("reward_mean", "untyped")]
    assert f"{mean:.3f}" in row["note"]


def replace_retention(factors: np.ndarray) -> object:
    return replace(OF.batch, compiled=(replace(CHAIN, retention=factors),))


def test_topological_marginals_are_held_against_exact_ones() -> None:
    exact = aggregate(OF.batch, "gear", inference="exact")
    error = np.abs(exact.reward - FOUND["gear"].reward).mean()
    assert error > 0  # c2's parents hang together
    assert value("reward_mae", "gear", "response") == pytest.approx(error)


def test_rewards_are_held_against_the_ranks_of_another_raters_scores() -> None:
    scores = np.random.default_rng(1).integers(0, 5, 30)
    gradings = pa.table(
        {
            "response_id": OF.response_id,
            "rater_id": ["anna"] * 30,
            "rater_kind": ["human"] * 30,
            "score": scores.astype(float),
        }
    )
    rows = {row["aggregation"]: row for row in against(OF, REWARD_OF, gradings, SETTINGS)}
    assert rows["gear"]["metric"] == "spearman: anna"
    assert rows["gear"]["value"] == pytest.approx(spearmanr(FOUND["gear"].reward, scores).statistic)


def test_a_machines_recorded_scores_are_held_against_flat_rewards_one_by_one() -> None:
    gradings = pa.table(
        {
            "response_id": OF.response_id,
            "rater_id": ["other"] * 30,
            "rater_kind": ["replayed"] * 30,
            "score": [*FOUND["flat"].reward[:-2], FOUND["flat"].reward[-2] + 0.25, None],
        }
    )
    (row,) = [row for row in against(OF, REWARD_OF, gradings, SETTINGS) if row["metric"].startswith("largest")]
    assert row["value"] == pytest.approx(0.25)
    assert (row["n"], row["unscored"]) == (29, 1)


def test_what_an_unscored_criterion_does_is_the_same_in_every_row() -> None:
    scores = [[None, *row[1:]] if at % 2 else row for at, row in enumerate(LOCAL.tolist())]
    of = locals_of([CHAIN], [0] * 30, scores)
    found = {name: aggregate(of.batch, name, unscored="zero") for name in AGGREGATIONS}
    rows = {
        (row["metric"], row["aggregation"]): row
        for row in rows_of(of, found, unscored="zero")
        if row["metric"] in ("reward_mean", "reward_mae")
    }
    assert {row["n"] for row in rows.values()} == {30}
    assert rows["reward_mean", "gear, eta 1"]["value"] == rows["reward_mean", "gear"]["value"]


def test_with_exact_inference_strength_1_is_gear() -> None:
    settings = study(inference="exact")
    found = {name: aggregate(OF.batch, name, inference="exact") for name in AGGREGATIONS}
    rows = {row["aggregation"]: row["value"] for row in rows_of(OF, found, settings) if row["metric"] == "reward_mean"}
    assert rows["gear, eta 1"] == rows["gear"]
    assert rows["gear"] != pytest.approx(FOUND["gear"].reward.mean(), abs=1e-9)


def test_a_shared_factor_of_0_is_told_as_0() -> None:
    of = locals_of([replace(CHAIN, retention=np.zeros(3))], [0] * 30, LOCAL.tolist())
    rows = ablations(of, lambda eta: {CHAIN.rubric_id: of.batch.compiled[0]}, SETTINGS)
    notes = [row["note"] for row in rows if (row["metric"], row["aggregation"]) == ("reward_mean", "untyped")]
    assert notes == ["one factor for all edges: 0.000"]
