"""C3M: mixtures with the targets that belong to them, and labels that a machine fills in."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, one_hot

from rubricflow.tasks.core.contracts.settings.bottleneck import Training
from rubricflow.tasks.methods.bottleneck.baselines import (
    NOISY,
    Joint,
    Targets,
    augmented,
    c3m,
    joint_loss,
    mixed_loss,
    pseudo_levels,
    vanilla_cbm,
)
from rubricflow.tasks.methods.bottleneck.data import MISSING
from rubricflow.tasks.methods.bottleneck.states import Cached, States

PLAN = Training(epochs=3, head_learning_rate=0.02)
LONG = Training(epochs=25, patience=10, batch_size=16, head_learning_rate=0.04, head_learning_rate_2=0.05)


@pytest.fixture(scope="module")
def problem(planted):
    return planted()


@pytest.fixture(scope="module")
def holed(problem):
    """The problem without 60% of its training labels."""
    rng = np.random.default_rng(3)
    hidden = (rng.random(problem.data.levels.shape) < 0.6) & (problem.data.split == "train")[:, None]
    return replace(problem.data, levels=np.where(hidden, MISSING, problem.data.levels)), hidden


def encoder_of(problem):
    return Cached(States(problem.values, problem.starts))


def model_of(problem):
    model = Joint(16, problem.data, PLAN, 0, tuned=False).double()
    with torch.no_grad():
        model.grader.weights.normal_(generator=torch.Generator().manual_seed(1))
    return model


@given(st.floats(0, 1), st.permutations(range(5)))
@settings(max_examples=25)
def test_the_mixture_is_held_against_the_convex_combination_of_the_targets(problem, share, order):
    model, data, at = model_of(problem), problem.data, torch.tensor(order)
    means = torch.randn(5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    targets = Targets.of(data, np.arange(5), torch.device("cpu"))
    found = mixed_loss(model, means, targets, share, at, PLAN)
    levels, grades = model((share * means + (1 - share) * means[at])[:, None], torch.ones(5, 1, dtype=torch.bool))

    def soft(labels, classes):
        sharp = one_hot(labels, classes).double()
        return share * sharp + (1 - share) * sharp[at]

    concept = sum(
        cross_entropy(levels[:, k, : top + 1], soft(targets.levels[:, k], top + 1))
        for k, top in enumerate(data.concepts.tops.tolist())
    )
    assert found["concept"].item() == pytest.approx(concept.item())
    assert found["task"].item() == pytest.approx(cross_entropy(grades, soft(targets.grades, 3)).item())


def test_a_share_of_1_mixes_nothing(problem):
    model, targets = model_of(problem), Targets.of(problem.data, np.arange(5), torch.device("cpu"))
    means = torch.randn(5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    found = mixed_loss(model, means, targets, 1.0, torch.tensor([4, 3, 2, 1, 0]), PLAN)
    plain = joint_loss(model(means[:, None], torch.ones(5, 1, dtype=torch.bool)), targets, PLAN)
    assert {name: value.item() for name, value in found.items()} == pytest.approx(
        {name: value.item() for name, value in plain.items()}
    )


def test_a_machine_s_label_fills_only_a_hole_of_the_train_split_and_counts_less(problem, holed):
    data, hidden = holed
    levels = data.levels.copy()
    levels[data.rows("test")[0]] = MISSING
    noisy = np.zeros_like(levels)
    noisy[data.rows("train")[0]] = MISSING
    found = augmented(replace(data, levels=levels), noisy)
    filled = hidden & (noisy != MISSING)
    np.testing.assert_array_equal(found.levels, np.where(filled, 0, levels))
    np.testing.assert_array_equal(found.weights, np.where(filled, NOISY, data.weights))


def test_the_teacher_is_better_than_chance_and_says_nothing_of_labelled_or_held_out_ones(problem, holed):
    data, hidden = holed
    found = pseudo_levels(data, encoder_of(problem))
    np.testing.assert_array_equal(found != MISSING, hidden)
    hits = [(found == problem.data.levels)[hidden[:, k], k].mean() for k in range(3)]
    assert (np.array(hits) > np.array([1 / 3, 1 / 2, 1 / 4]) + 0.15).all()


def test_a_concept_with_one_level_only_teaches_nothing(problem, holed):
    data, _ = holed
    levels = data.levels.copy()
    levels[:, 1] = np.where(levels[:, 1] == MISSING, MISSING, 1)
    found = pseudo_levels(replace(data, levels=levels), encoder_of(problem))
    assert (found[:, 1] == MISSING).all()
    assert (found[:, 0] != MISSING).any()


def test_nothing_missing_asks_no_teacher(problem):
    found = pseudo_levels(problem.data, None)
    assert (found == MISSING).all()


def test_it_learns_and_the_same_seed_learns_the_same(problem, holed):
    data, test = holed[0], problem.data.rows("test")
    found = c3m(data, encoder_of(problem), LONG, 0).predict(encoder_of(problem), test)
    assert (found.grade == data.grades[test]).mean() > 0.5  # three grades, equally frequent
    assert (found.chosen() == data.levels[test]).mean() > 0.6  # by chance 0.36
    one, same, other = (c3m(data, encoder_of(problem), PLAN, seed) for seed in (0, 0, 1))
    found = one.predict(encoder_of(problem), test)
    np.testing.assert_array_equal(found.grades, same.predict(encoder_of(problem), test).grades)
    assert not np.array_equal(found.grades, other.predict(encoder_of(problem), test).grades)
    plain = vanilla_cbm(data, encoder_of(problem), PLAN, 0)
    assert not np.array_equal(found.grades, plain.predict(encoder_of(problem), test).grades)
