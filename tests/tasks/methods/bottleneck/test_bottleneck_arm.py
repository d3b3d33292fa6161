"""One arm of a comparison: which there are, and the rows that each makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.bottleneck import Bottleneck, Training
from rubricflow.tasks.core.contracts.tables.bottleneck import ORDERS, ConceptLinks, Interventions, Models, Trials
from rubricflow.tasks.methods.bottleneck.arm import Arm, SharedGround, arms, run
from rubricflow.tasks.methods.bottleneck.states import Cached, States

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


def test_an_arm_with_concepts_is_measured_steered_and_linked(ground: SharedGround) -> None:
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


def test_calibrated_probabilities_are_those_of_the_head(ground: SharedGround) -> None:
    outcome = run(Arm("rec_cbm", 0, "", QUICK), ground)
    assert outcome.head is not None
    likely = outcome.head.probabilities(outcome.estimates.shares(ground.data.concepts.tops), calibrated=False)
    np.testing.assert_allclose(likely, outcome.estimates.grades, atol=1e-9)


def test_an_arm_without_concepts_and_one_of_a_sweep_are_measured_only(ground: SharedGround) -> None:
    for arm in (Arm("plm", 0, "", QUICK), Arm("rec_cbm", 0, "concepts=2", QUICK.model_copy(update={"concepts": 2}))):
        tables = run(arm, ground).tables
        assert tables[Interventions] == []
        assert tables[ConceptLinks] == []
        assert {row["setting"] for row in tables[Trials]} == {arm.setting}
