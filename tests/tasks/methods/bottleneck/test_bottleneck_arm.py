"""One arm of a comparison: which there are, and the rows that each makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.engine import Adapter
from rubricflow.tasks.core.contracts.settings.methods import ABLATIONS, Bottleneck, Method, Training
from rubricflow.tasks.core.contracts.tables.bottleneck import ORDERS, ConceptLinks, Interventions, Models, Trials
from rubricflow.tasks.methods.bottleneck.arm import (
    BOUND,
    Arm,
    SharedGround,
    arms,
    label_correlations,
    link_rows,
    loss,
    methods,
    partial_correlations,
    run,
    sweep,
    temperature,
)
from rubricflow.tasks.methods.bottleneck.backbone import load
from rubricflow.tasks.methods.bottleneck.data import MISSING, Concepts, LabelledData
from rubricflow.tasks.methods.bottleneck.model import Head
from rubricflow.tasks.methods.bottleneck.states import Adapted, Cached, States

QUICK = Training(epochs=3, head_learning_rate=0.05)


def test_the_exported_arm_comes_first_and_every_arm_has_a_name() -> None:
    plan = Bottleneck(methods=("rec_cbm", "plm"), seeds=(3, 4), sweep={"temperature": (0.5, 2.0), "concepts": (1.0,)})
    found = arms(plan)
    assert [(arm.method, arm.seed, arm.setting) for arm in found] == [
        ("rec_cbm", 3, ""),
        ("plm", 3, ""),
        ("rec_cbm", 4, ""),
        ("plm", 4, ""),
        *[
            ("rec_cbm", seed, setting)
            for setting in ("temperature=0.5", "temperature=2", "concepts=1")
            for seed in (3, 4)
        ],
    ]
    assert len({arm.name for arm in found}) == len(found)
    assert found[4].training.temperature == 0.5


@pytest.fixture(scope="module")
def ground(planted: Callable[..., Any]) -> SharedGround:
    made = planted()
    states = States(made.values, made.starts)
    texts = ["word"] * len(made.data.response_ids)
    return SharedGround(made.data, lambda: Cached(states), texts, _nothing, "states@0", Bottleneck(training=QUICK))


def _nothing(texts: Any) -> np.ndarray:
    return np.zeros((len(texts), 1), np.float32)


def test_an_arm_with_concepts_is_measured_steered_and_linked(
    ground: SharedGround, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rubricflow.tasks.methods.bottleneck.intervene.DRAWS", 50)
    outcome = run(Arm("rec_cbm", 0, "", QUICK), ground)
    tables = {row: conform(row, rows).to_pylist() for row, rows in outcome.tables.items()}
    (model,) = tables[Models]
    assert (model["backbone"], model["epochs_1"], model["path"]) == ("states@0", 3, None)
    metrics = {(row["split"], row["metric"]) for row in tables[Trials]}
    assert {("test", "task_qwk"), ("calibration", "task_qwk"), ("test", "leakage_task")} <= metrics
    assert {("test", f"saving_area_{order}") for order in ORDERS} <= metrics
    assert {row["order"] for row in tables[Interventions]} == set(ORDERS)
    assert {row["asked"] for row in tables[Interventions]} == {0, 1, 2, 3}
    assert len(tables[ConceptLinks]) == 3
    assert outcome.head is not None
    assert outcome.head.temperature == model["grade_temperature"]
    likely = outcome.head.probabilities(outcome.estimates.shares(ground.data.concepts.tops), calibrated=False)
    np.testing.assert_allclose(likely, outcome.estimates.grades, atol=1e-9)


def test_an_arm_without_concepts_and_one_of_a_sweep_are_measured_only(ground: SharedGround) -> None:
    for arm in (Arm("plm", 0, "", QUICK), Arm("rec_cbm", 0, "concepts=2", QUICK.model_copy(update={"concepts": 2}))):
        tables = run(arm, ground).tables
        assert tables[Interventions] == []
        assert tables[ConceptLinks] == []
        assert {row["setting"] for row in tables[Trials]} == {arm.setting}


# Temperature scaling: it finds what was planted and never makes the split it was fitted on worse.


def drawn(planted, n=20_000, classes=5, seed=0):
    """Logits, and grades drawn from them at a temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, classes)) * 3
    cumulated = softmax(logits / planted, axis=1).cumsum(axis=1)
    return logits, (rng.random((n, 1)) > cumulated).sum(axis=1).clip(max=classes - 1)


@pytest.mark.parametrize("planted", [0.5, 1.0, 2.5])
def test_a_planted_temperature_is_found(planted):
    assert temperature(*drawn(planted)) == pytest.approx(planted, rel=0.05)


def test_it_is_the_best_of_a_fine_grid():
    logits, grades = drawn(1.7, n=400)
    best = min(loss(logits, grades, t) for t in np.geomspace(1 / BOUND, BOUND, 2_000))
    assert loss(logits, grades, temperature(logits, grades)) <= best + 1e-9


@settings(max_examples=15)
@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(2, 6), st.floats(0.01, 50))
def test_it_is_never_worse_than_none(seed, n, classes, size):
    rng = np.random.default_rng(seed)
    logits, grades = rng.normal(size=(n, classes)) * size, rng.integers(0, classes, n)
    found = temperature(logits, grades)
    assert 1 / BOUND <= found <= BOUND
    assert loss(logits, grades, found) <= loss(logits, grades, 1.0)


def test_rows_without_a_label_do_not_count():
    logits, grades = drawn(2.0, n=500)
    masked = np.where(np.arange(500) < 250, grades, MISSING)
    assert temperature(logits, masked) == temperature(logits[:250], grades[:250])


@pytest.mark.parametrize("grades", [[MISSING] * 3, [2, 2, MISSING]])
def test_labels_that_tell_nothing_leave_it_at_one(grades):
    assert temperature(np.ones((3, 4)), np.array(grades)) == 1.0


# Correlations and partial correlations against numpy, residuals of regressions and a graphical lasso.


K = 4


def some_levels(n: int = 300) -> np.ndarray:
    rng = np.random.default_rng(0)
    common = rng.normal(size=(n, 1))
    levels = np.digitize(common + rng.normal(size=(n, K)), [-0.7, 0.7])
    levels[rng.random((n, K)) < 0.2] = MISSING
    return levels


def test_label_correlations_are_those_of_the_common_responses() -> None:
    levels = some_levels()
    r, n = label_correlations(levels)
    for a in range(K):
        for b in range(K):
            common = levels[(levels[:, a] != MISSING) & (levels[:, b] != MISSING)]
            assert r[a, b] == pytest.approx(np.corrcoef(common[:, a], common[:, b])[0, 1])
            assert n[a, b] == len(common)
    levels[:, 1] = 2  # a constant concept has no correlation
    r, _ = label_correlations(levels)
    assert np.isnan(r[1]).all()
    assert not np.isnan(r[0, 2])


def test_partial_correlations_are_those_of_what_regressions_leave() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, K)) @ rng.normal(size=(K, K))
    x -= x.mean(axis=0)
    found = partial_correlations(np.linalg.inv(x.T @ x / len(x)))
    for a in range(K):
        for b in range(a):
            others = np.delete(x, [a, b], axis=1)
            left = x[:, [a, b]] - others @ np.linalg.lstsq(others, x[:, [a, b]], rcond=None)[0]
            assert found[a, b] == pytest.approx(np.corrcoef(left.T)[0, 1])


def test_rows_keep_the_contract_and_come_from_the_train_split() -> None:
    levels = some_levels(200)
    levels[:100, 3] = 1
    concepts = Concepts(tuple("abcd"), tuple("abcd"), tuple("abcd"), (("0", "1", "2"),) * K)
    split = np.array(["train"] * 100 + ["test"] * 100)
    ids = tuple(f"r{i:03}" for i in range(200))
    data = LabelledData(ids, concepts, levels, np.ones((200, K)), np.zeros(200, np.int64), np.arange(2.0), split)
    precision = np.eye(K) + 0.3
    rows = link_rows(data, Head(np.ones((2, K)), np.zeros(2), precision, np.ones(K)))
    assert [(row["a"], row["b"]) for row in rows] == [
        ("a", "b"),
        ("a", "c"),
        ("a", "d"),
        ("b", "c"),
        ("b", "d"),
        ("c", "d"),
    ]
    assert all(set(row) == set(ConceptLinks.model_fields) - {"method", "seed"} for row in rows)
    r, n = label_correlations(levels[:100])
    assert rows[0]["label_correlation"] == r[0, 1]
    assert rows[0]["n"] == n[0, 1]
    assert rows[2]["label_correlation"] is None
    assert rows[0]["partial_correlation"] == pytest.approx(-0.3 / 1.3)
    assert link_rows(data, Head(np.ones((2, K)), np.zeros(2))) == []


# Every method has something that trains it, and a sweep changes one setting at a time.


BASELINES: tuple[Method, ...] = ("plm", "vanilla_cbm", "c3m", "ct_cbm", "cb_llm")
PLAN = Training(epochs=2, patience=1, batch_size=32, head_learning_rate=0.02)


@pytest.fixture(scope="module")
def problem(planted):
    return planted(n=90)


def embed(texts):
    return np.array([[len(text), 9.0] for text in texts]) / np.array([[np.hypot(len(text), 9.0)] for text in texts])


def test_the_table_holds_every_method_and_nothing_else():
    assert set(methods([], embed)) == set(get_args(Method)) == {"rec_cbm", *ABLATIONS, *BASELINES}


def test_an_ablation_goes_without_the_parts_that_its_name_lists():
    table = methods([], embed)
    for name in ABLATIONS:
        off = {part for part, on in table[name].keywords.items() if not on}
        assert name == "_".join(["no", *(part for part in ("race", "opcc", "lcec") if part in off)])


@pytest.mark.parametrize("method", ["rec_cbm", "no_race_opcc_lcec", *BASELINES])
def test_what_a_method_trained_grades(problem, method):
    encoder = Cached(States(problem.values, problem.starts))
    texts = [f"some words {level}. And more." for level in problem.data.grades]
    trained = methods(texts, embed)[method](problem.data, encoder, PLAN, 3)
    rows = np.array([5, 80, 2])
    found = trained.predict(encoder, rows)
    np.testing.assert_allclose(found.grades.sum(axis=1), 1)
    np.testing.assert_allclose(found.grades[1], trained.predict(encoder, rows[1:2]).grades[0], atol=1e-6)
    if trained.head is not None:
        shares = found.shares(problem.data.concepts.tops)
        np.testing.assert_allclose(trained.head.probabilities(shares), found.grades, atol=1e-9)


@pytest.mark.parametrize("method", ["rec_cbm", "plm", "cb_llm"])
def test_every_method_trains_an_adapter_and_takes_it_back(method, written, backbone_folder):
    problem, backbone = written(), load(str(backbone_folder("gpt2")), 48)
    tokens = backbone.tokenize(problem.answered)
    encoder = Adapted(backbone, tokens, Adapter(rank=2, alpha=4))
    texts = [one.response for one in problem.answered]
    plan = Training(epochs=1, batch_size=16, adapter_learning_rate=0.05)
    trained = methods(texts, embed)[method](problem.data, encoder, plan, 0)
    weights = sum(one.numel() for one in encoder.parameters())
    assert weights < trained.parameters < weights + 5_000 < backbone.model.num_parameters()
    # Centred over two concepts, CB-LLM's cosine is 1 or -1, and teaches nothing.
    assert method == "cb_llm" or any(
        one.abs().sum() > 0 for name, one in trained.encoder_state.items() if "lora_B" in name
    )
    rows = problem.data.rows("test")
    found = trained.predict(encoder, rows).grades
    again = trained.predict(Adapted(backbone, tokens, Adapter(rank=2, alpha=4)), rows).grades
    np.testing.assert_allclose(found, again, atol=1e-6)


def test_a_sweep_changes_one_setting_at_a_time():
    plan = Training(patience=7)
    found = sweep(plan, {"temperature": (0.5, 2.0), "concepts": (1.0, 4.0)})
    assert [name for name, _ in found] == ["temperature=0.5", "temperature=2", "concepts=1", "concepts=4"]
    assert found[0][1] == plan.model_copy(update={"temperature": 0.5})
    assert found[3][1] == plan.model_copy(update={"concepts": 4})
    assert sweep(plan, {}) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [({"speed": (1.0,)}, "'speed' is no training setting"), ({"temperature": (-1.0,)}, "temperature=-1")],
)
def test_a_sweep_over_what_settings_do_not_have_is_refused(values, said):
    with pytest.raises(InputError, match=said):
        sweep(Training(), values)
