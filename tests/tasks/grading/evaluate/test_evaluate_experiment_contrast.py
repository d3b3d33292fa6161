"""The sentence that an experiment opens with, against QWK of scikit-learn and a plain bootstrap."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from rubricflow.tasks.core.contracts.settings.experiment import Experiment
from rubricflow.tasks.grading.evaluate.experiment.arm import BootstrapPlan, ExperimentArm
from rubricflow.tasks.grading.evaluate.experiment.tables import main_contrast
from tests.tasks.grading.evaluate.test_evaluate_experiment_tables import make

PLAN = BootstrapPlan(400, 3)


def experiment(**tables: object) -> Experiment:
    return Experiment.model_validate({"name": "e", "study": "s.yaml", "arms": {"a": {}}, "tables": tables})


def rulers(*methods: str) -> Experiment:
    return experiment(rulers={"methods": methods})


def kappa(arm: ExperimentArm) -> float:
    rows = arm.held_out
    return float(cohen_kappa_score(rows["target"], rows["calibrated"].round(), weights="quadratic"))


def test_the_last_method_stands_beside_the_best_of_the_others() -> None:
    arms = {"weak": make("weak", 5.0, 1), "good": make("good", 3.0, 2), "ours": make("ours", 0.3, 3)}
    sentence = main_contrast(arms, rulers(*arms), PLAN)
    assert sentence.startswith("ours agrees better with people than good, the best of 2 others: ")
    assert f"QWK {kappa(arms['ours']):.2f} beside {kappa(arms['good']):.2f}" in sentence
    assert "(84 responses of 14 authors, too few to be sure of the interval)" in sentence


def test_the_worse_arm_is_said_to_be_worse() -> None:
    arms = {"good": make("good", 0.3, 1), "ours": make("ours", 6.0, 2)}
    assert main_contrast(arms, rulers(*arms), PLAN).startswith("ours agrees less with people than good: ")


@pytest.mark.parametrize("seed", range(5))
def test_an_interval_over_nought_shows_nothing(seed: int) -> None:
    arms = {"other": make("other", 2.0, 100 + seed), "ours": make("ours", 2.0, 200 + seed)}
    sentence = main_contrast(arms, rulers(*arms), PLAN)
    ends = re.search(r"interval (\S+) to (\S+) ", sentence)
    assert ends
    low, high = (float(end.replace("−", "-")) for end in ends.groups())
    assert ("not shown" in sentence) == (low <= 0 <= high)


def test_only_responses_that_both_score_count() -> None:
    other = make("other", 2.0, 1)
    other.scores.loc[other.scores.index[-30:], "calibrated"] = np.nan
    arms = {"other": other, "ours": make("ours", 1.0, 2)}
    assert "54 responses" in main_contrast(arms, rulers(*arms), PLAN)
    other.scores["calibrated"] = np.nan
    assert "nothing to compare" in main_contrast(arms, rulers(*arms), PLAN)


def test_gradeagentops_compares_raw_scores_of_all_responses() -> None:
    arms = {"B0": make("B0", 4.0, 1), "FULL": make("FULL", 0.5, 2)}
    settings = {"baseline": "B0", "full": "FULL", "pairs": [["FULL", "B0"]]}
    sentence = main_contrast(arms, experiment(gradeagentops=settings), PLAN)
    raw = arms["FULL"].scores
    expected = cohen_kappa_score(raw["target"], raw["raw"], weights="quadratic")
    assert f"FULL agrees better with people than B0: QWK {expected:.2f}" in sentence
    assert "120 responses" in sentence


def test_an_experiment_without_arms_set_against_each_other_opens_with_nothing() -> None:
    assert main_contrast({"a": make("a", 1.0)}, experiment(decisions={"arms": ["a"]}), PLAN) == ""


def test_a_simulated_rater_is_named_in_the_sentence() -> None:
    arms = {"other": make("other", 2.0, 1, simulated=True), "ours": make("ours", 1.0, 2)}
    assert main_contrast(arms, rulers(*arms), PLAN).endswith("(simulated rater)")
