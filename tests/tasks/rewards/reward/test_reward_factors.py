"""Edge-specific factors: a table that is read, and human scores that teach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from reward_scene import STRONG, WEAK, locals_of, rubric
from scipy.optimize import lsq_linear
from scipy.stats import spearmanr
from sklearn.metrics import cohen_kappa_score

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.reward import Learn
from rubricflow.tasks.core.contracts.tables.reward import Diagnostics, Retentions
from rubricflow.tasks.rewards.reward.aggregate import aggregate
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, batch
from rubricflow.tasks.rewards.reward.factors import (
    METHODS,
    PAIRS,
    HumanScores,
    Lesson,
    gains,
    human_scores,
    predict,
    read_factors,
    taught,
)
from rubricflow.tasks.rewards.reward.learn import learn

NODES = tuple(Node(criterion_id=name, role="core") for name in ("a", "b", "c"))
GRAPHS = {"r": Graph(nodes=NODES, edges=(Edge(parent="a", child="b", relation=WEAK),))}
HEADER = "rubric_id,parent,child,retention\n"


def table(folder: Path, *rows: str) -> Path:
    path = folder / "factors.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return path


def test_factors_are_read_by_rubric_and_edge(tmp_path: Path) -> None:
    assert read_factors(table(tmp_path, "r,a,b,0.35"), GRAPHS) == {"r": {("a", "b"): 0.35}}


@pytest.mark.parametrize(
    ("row", "field", "rule"),
    [
        ("s,a,b,0.5", "rubric_id", "there is no rubric 's'"),
        ("r,b,a,0.5", "child", "has no edge b → a"),
        ("r,a,b,1.5", "retention", "'1.5' is not in [0, 1]"),
        ("r,a,b,-0.1", "retention", "'-0.1' is not in [0, 1]"),
        ("r,a,b,", "retention", "is not in [0, 1]"),
        ("r,a,b,much", "retention", "much"),
    ],
)
def test_a_bad_row_is_named_with_its_rule(tmp_path: Path, row: str, field: str, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        read_factors(table(tmp_path, row), GRAPHS)
    message = str(caught.value)
    assert rule in message
    assert "factors.csv" in message
    assert "row 1" in message
    assert field in message


def test_an_edge_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="given twice"):
        read_factors(table(tmp_path, "r,a,b,0.5", "r,a,b,0.5"), GRAPHS)


TYPED = rubric([4, 3, 2], [(0, 1, STRONG), (0, 2, WEAK)])
TRUE = (0.9, 0.1)
"""The factors that the people of these tests score by: the other way round than by relation."""


def lesson(n: int = 300, calibration: int = 200) -> Lesson:
    rng = np.random.default_rng(5)
    local = rng.random((n, 3))
    of = locals_of([TYPED], [0] * n, local.tolist())
    theirs = replace(TYPED, retention=np.array(TRUE))
    scores = 4 * aggregate(batch([theirs], of.batch.rubric_index, of.batch.local), "gear").reward + rng.normal(
        0, 0.01, n
    )
    split = np.array(["calibration"] * calibration + ["test"] * (n - calibration))
    scored = HumanScores(scores, np.arange(n).astype(str), split, (0.0, 4.0, 1.0))
    return taught(of, {TYPED.rubric_id: TYPED}, scored, Learn(), 100)


def test_the_gain_is_measured_on_the_test_split_alone() -> None:
    rows = {(row["metric"], row["aggregation"]): row for row in lesson().diagnostics}
    gain = rows["gain over typed: rmse", "learned"]
    assert gain["n"] == 100
    assert gain["high"] < 0  # less error, clearly
    assert rows["predicts people: rmse", "learned"]["value"] < rows["predicts people: rmse", "flat"]["value"]


def test_both_kinds_of_rows_are_those_of_their_contracts() -> None:
    found = lesson()
    assert conform(Retentions, found.retentions).num_rows == 2
    assert conform(Diagnostics, found.diagnostics).num_rows == len(found.diagnostics)
    keys = [tuple(row[name] for name in Diagnostics.key) for row in found.diagnostics]
    assert len(set(keys)) == len(keys)


def test_without_scores_in_the_calibration_split_nothing_is_learned() -> None:
    with pytest.raises(InputError, match="no response of the calibration split has a score by 'mean'"):
        lesson(calibration=0)


def test_too_few_scores_leave_no_row_but_say_why() -> None:
    found = lesson(n=60, calibration=3)
    assert found.retentions == []
    (row,) = [row for row in found.diagnostics if row["metric"] == "rubrics without learned factors"]
    assert row["value"] == 1
    assert "3 labelled responses for 2 edges" in row["note"]


def test_human_scores_stand_in_the_order_of_the_batch() -> None:
    of = locals_of([TYPED], [0, 0, 0], [[1, 1, 1]] * 3)
    responses = pa.table(
        {
            "response_id": ["r2", "r0", "r1"],
            "author_id": [None, "kim", "lee"],
            "split": ["test", "calibration", "train"],
        }
    )
    people = pa.table({"response_id": ["r1", "r2"], "score": [3.0, 1.0]})
    found = human_scores(of, people, responses, (0.0, 4.0, 1.0))
    assert np.isnan(found.score[0])
    assert found.score[1:].tolist() == [3.0, 1.0]
    assert found.cluster.tolist() == ["kim", "lee", "r2"]
    assert found.split.tolist() == ["calibration", "train", "test"]


# Held-out gains: against direct statistics and least squares, on data whose truth is known.


SCALE = (0.0, 6.0, 1.0)


def penalty_rubric(graph_id="a" * 64):
    """Two criteria that c0 licenses, the last of them a penalty."""
    return CompiledGraph(
        rubric_id="essay",
        graph_id=graph_id,
        criteria=("c0", "c1", "c2"),
        weights=np.array([2.0, 4.0, -1.0]),
        order=np.arange(3, dtype=np.int32),
        parent=np.array([0, 0], dtype=np.int32),
        child=np.array([1, 2], dtype=np.int32),
        relation=("weak_prerequisite", "activation"),
        retention=np.array([0.6, 0.0]),
    )


def made(local, scored=None):
    """A batch of responses under the one rubric."""
    return batch([penalty_rubric()], np.zeros(len(local), dtype=int), local.ravel(), scored)


def rated(n, seed, noise=0.1):
    """Local scores and the scores of a rater for whom the dependencies are all but gates."""
    rng = np.random.default_rng(seed)
    local = rng.random((n, 3))
    whole = 2 * local[:, 0] + (4 * local[:, 1] - local[:, 2]) * (local[:, 0] + 0.05 * (1 - local[:, 0]))
    return local, whole + rng.normal(0, noise, n)


def tried(n=300, m=200, noise=0.1):
    """Test scores and predictions of a fit to other responses."""
    (local, scores), (unseen, wanted) = rated(n, 1, noise), rated(m, 2, noise)
    train = made(local)
    return wanted, predict(train, scores, learn(train, scores, np.arange(n)), made(unseen))


def error(scores, predicted):
    return float(np.sqrt(np.mean((scores - predicted) ** 2)))


def test_learned_factors_beat_all_others_where_the_rater_has_factors_of_their_own() -> None:
    scores, predicted = tried()
    errors = {method: error(scores, values) for method, values in predicted.items()}
    assert errors["learned"] == pytest.approx(0.1, abs=0.02)
    assert min(error for method, error in errors.items() if method != "learned") > 2 * errors["learned"]


@pytest.mark.parametrize(("method", "factors"), [("flat", (1, 1)), ("typed", (0.6, 0)), ("untyped", (0.3, 0.3))])
def test_a_score_is_predicted_by_the_line_from_the_rewards_of_the_others(method, factors) -> None:
    (local, scores), (unseen, _) = rated(100, 1), rated(30, 2)
    train = made(local)
    predicted = predict(train, scores, learn(train, scores, np.arange(100)), made(unseen))

    def reward(share):
        first, second = (share[:, 0] + (1 - share[:, 0]) * factor for factor in factors)
        return (2 * share[:, 0] + 4 * share[:, 1] * first - share[:, 2] * second) / 6

    slope, intercept = np.polyfit(reward(local), scores, 1)
    np.testing.assert_allclose(predicted[method], intercept + slope * reward(unseen))


def test_refitted_weights_are_least_squares_with_the_rubrics_signs() -> None:
    (local, _), (unseen, _) = rated(100, 1), rated(30, 2)
    scores = local @ [1.0, -3.0, 2.0] + np.random.default_rng(4).normal(0, 0.1, 100)
    train = made(local)
    predicted = predict(train, scores, learn(train, scores, np.arange(100)), made(unseen))
    bounds = ([-np.inf, 0, 0, -np.inf], [np.inf, np.inf, np.inf, 0])
    by_library = lsq_linear(np.column_stack([np.ones(100), local]), scores, bounds, tol=1e-14).x
    np.testing.assert_allclose(predicted["weights"], by_library[0] + unseen @ by_library[1:], atol=1e-6)


def test_figures_are_those_of_libraries() -> None:
    scores, predicted = tried(noise=0.8)
    flat = predicted["flat"]
    rounded = [np.clip(np.floor(values + 0.5), 0, 6).astype(int) for values in (scores, flat)]
    wanted = {
        "rmse": error(scores, flat),
        "pearson": np.corrcoef(scores, flat)[0, 1],
        "spearman": spearmanr(scores, flat).statistic,
        "qwk": cohen_kappa_score(*rounded, weights="quadratic", labels=range(7)),
    }
    found = figures(scores, predicted, 50)
    assert {name: found[f"predicts people: {name}", "flat"]["value"] for name in wanted} == pytest.approx(wanted)
    assert {method for _, method in found} == set(METHODS)


def figures(scores, predicted, draws):
    """Metric and method → its row."""
    rows = gains(scores, predicted, np.arange(len(scores)), SCALE, draws)
    return {(row["metric"], row["aggregation"]): row for row in rows}


def test_a_difference_is_that_of_two_figures_and_lies_in_its_interval() -> None:
    found = figures(*tried(), 200)
    for over, method in PAIRS:
        for name in ("rmse", "pearson", "spearman", "qwk"):
            row = found[f"gain over {over}: {name}", method]
            alone = [found[f"predicts people: {name}", of]["value"] for of in (method, over)]
            assert row["value"] == pytest.approx(alone[0] - alone[1])
            assert row["low"] is None if name == "spearman" else row["low"] <= row["value"] <= row["high"]


def test_a_figure_that_is_not_defined_has_no_value() -> None:
    found = figures(np.full(200, 3.0), tried()[1], 20)
    assert {row["value"] for (metric, _), row in found.items() if metric.endswith("pearson")} == {None}
    assert None not in {row["value"] for (metric, _), row in found.items() if metric.endswith("rmse")}


def test_a_response_with_an_unscored_criterion_is_not_predicted_nor_counted() -> None:
    (local, scores), (unseen, wanted) = rated(100, 1), rated(30, 2)
    train, scored = made(local), np.ones((30, 3), dtype=bool)
    scored[4, 1] = False
    predicted = predict(train, scores, learn(train, scores, np.arange(100)), made(unseen, scored.ravel()))
    assert all(np.flatnonzero(np.isnan(values)).tolist() == [4] for values in predicted.values())
    wanted[7] = np.nan
    assert {row["n"] for row in gains(wanted, predicted, np.arange(30), SCALE, 20)} == {28}


def test_where_nothing_was_fitted_nothing_is_predicted_or_compared() -> None:
    (local, scores), (unseen, wanted) = rated(4, 1), rated(30, 2)
    train = made(local)
    predicted = predict(train, scores, learn(train, scores, np.arange(4)), made(unseen))
    assert all(np.isnan(values).all() for values in predicted.values())
    assert gains(wanted, predicted, np.arange(30), SCALE) == []
