"""The plain language model: what it reads, that it learns, and what a split without grades says."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.bottleneck import Training
from rubricflow.tasks.methods.bottleneck.backbone import load
from rubricflow.tasks.methods.bottleneck.baselines import Pooled, plm, pooled
from rubricflow.tasks.methods.bottleneck.data import MISSING
from rubricflow.tasks.methods.bottleneck.states import Cached, States, TunedBackbone

PLAN = Training(epochs=10, head_learning_rate=0.02)


@pytest.fixture(scope="module")
def problem(planted):
    return planted()


def encoder_of(problem):
    return Cached(States(problem.values, problem.starts))


def right(found, data, rows):
    return float((found.grade == data.grades[rows]).mean())


def test_a_frozen_encoder_is_read_once_and_as_the_mean_of_its_tokens(problem):
    means = Pooled(encoder_of(problem)).means
    for row in (0, 7, 239):
        tokens = problem.values[problem.starts[row] : problem.starts[row + 1]].astype(np.float64)
        np.testing.assert_allclose(means[row], tokens.mean(axis=0), atol=1e-5)
    kept = pooled(encoder_of(problem))
    assert pooled(kept) is kept
    states, mask = kept([3, 1])
    assert states.shape == (2, 1, 16)
    assert mask.all()
    np.testing.assert_array_equal(states[:, 0].numpy(), means[[3, 1]])


def test_it_learns_the_grade_and_the_same_seed_learns_the_same(problem):
    test = problem.data.rows("test")
    one, same, other = (plm(problem.data, encoder_of(problem), PLAN, seed) for seed in (0, 0, 1))
    found = one.predict(encoder_of(problem), test)
    assert right(found, problem.data, test) > 0.6  # three grades, equally frequent
    np.testing.assert_allclose(found.grades.sum(axis=1), 1)
    assert (found.levels, one.head, one.concept_encoder) == (None, None, None)
    np.testing.assert_array_equal(found.grades, same.predict(encoder_of(problem), test).grades)
    assert not np.array_equal(found.grades, other.predict(encoder_of(problem), test).grades)
    assert one.validation == max(entry["validation"] for entry in one.history)
    assert one.parameters == 3 * 16 + 3


def test_responses_without_a_grade_teach_nothing(problem):
    grades = problem.data.grades.copy()
    dropped = problem.data.rows("train")[::3]
    grades[dropped] = MISSING
    without = plm(replace(problem.data, grades=grades), encoder_of(problem), PLAN, 0)
    values = problem.values.copy()
    for row in dropped:
        values[problem.starts[row] : problem.starts[row + 1]] = 60.0
    spoilt = plm(replace(problem.data, grades=grades), Cached(States(values, problem.starts)), PLAN, 0)
    test = problem.data.rows("test")
    np.testing.assert_array_equal(
        without.predict(encoder_of(problem), test).grades, spoilt.predict(encoder_of(problem), test).grades
    )


@pytest.mark.parametrize("split", ["train", "calibration"])
def test_a_split_without_any_grade_is_named(problem, split):
    grades = np.where(problem.data.split == split, MISSING, problem.data.grades)
    with pytest.raises(InputError, match=f"{split} split has a grade label"):
        plm(replace(problem.data, grades=grades), encoder_of(problem), PLAN, 0)


def test_a_tuned_encoder_learns_with_it_and_its_weights_come_back(written, backbone_folder):
    problem = written()
    backbone = load(str(backbone_folder("bert")), 48)
    encoder = TunedBackbone(backbone, backbone.tokenize(problem.answered))
    trained = plm(problem.data, encoder, Training(epochs=2, learning_rate=1e-3), 0)
    rows = problem.data.rows("test")
    found = trained.predict(encoder, rows).grades
    assert trained.parameters > 16 * 3 + 3
    with torch.no_grad():
        for one in encoder.parameters():
            one.mul_(2)
    np.testing.assert_allclose(trained.predict(encoder, rows).grades, found, atol=1e-6)
    fresh = TunedBackbone(backbone, backbone.tokenize(problem.answered))
    np.testing.assert_allclose(trained.predict(fresh, rows).grades, found, atol=1e-6)


def test_a_projection_is_there_only_where_a_width_asks_for_it(problem):
    narrow = plm(problem.data, encoder_of(problem), PLAN.model_copy(update={"width": 4, "epochs": 1}), 0)
    assert narrow.parameters == 16 * 4 + 3 * 4 + 3
