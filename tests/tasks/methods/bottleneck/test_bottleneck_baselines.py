"""The joint bottleneck model: its loss by hand, what it learns, and a head that a person can move."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax
from torch.nn.functional import cross_entropy, one_hot

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.methods import Training
from rubricflow.tasks.methods.bottleneck.backbone import load
from rubricflow.tasks.methods.bottleneck.baselines import (
    NOISY,
    Joint,
    Pooled,
    Targets,
    augmented,
    c3m,
    joint_loss,
    mixed_loss,
    plm,
    pooled,
    pseudo_levels,
    vanilla_cbm,
)
from rubricflow.tasks.methods.bottleneck.data import MISSING
from rubricflow.tasks.methods.bottleneck.states import Cached, States, TunedBackbone

PLAN = Training(epochs=3, head_learning_rate=0.02)
LONG = Training(epochs=25, patience=10, batch_size=16, head_learning_rate=0.04, head_learning_rate_2=0.05)


@pytest.fixture(scope="module")
def problem(planted):
    return planted()


def encoder_of(problem):
    return Cached(States(problem.values, problem.starts))


def targets_of(levels, weights, grades):
    return Targets(torch.tensor(levels), torch.tensor(weights), torch.tensor(grades))


def test_the_loss_is_equation_6():
    rng = np.random.default_rng(0)
    level_logits, grade_logits = rng.normal(size=(4, 3, 3)), rng.normal(size=(4, 5))
    level_logits[:, 1, 2] = -np.inf  # the second concept has two levels
    levels = np.array([[2, 1, 0], [0, MISSING, 1], [1, 0, 2], [MISSING, MISSING, MISSING]])
    weights, grades = rng.uniform(0.2, 1, (4, 3)), np.array([4, 0, MISSING, 2])
    plan = Training(concept_weight=0.7, task_weight=1.9)
    concept = -sum(
        weights[n, k] * log_softmax(level_logits[n, k])[levels[n, k]]
        for n in range(4)
        for k in range(3)
        if levels[n, k] != MISSING
    )
    task = -np.mean([log_softmax(grade_logits[n])[grades[n]] for n in (0, 1, 3)])
    logits = torch.tensor(level_logits), torch.tensor(grade_logits)
    found = sum(joint_loss(logits, targets_of(levels, weights, grades), plan).values())
    assert float(found) == pytest.approx(0.7 * concept / 4 + 1.9 * task)


def test_it_learns_concepts_and_grade_and_the_same_seed_learns_the_same(problem):
    data, test = problem.data, problem.data.rows("test")
    found = vanilla_cbm(data, encoder_of(problem), LONG, 0).predict(encoder_of(problem), test)
    assert (found.grade == data.grades[test]).mean() > 0.5  # three grades, equally frequent
    chance = np.array([1 / 3, 1 / 2, 1 / 4])
    assert ((found.chosen() == data.levels[test]).mean(axis=0) > chance + 0.3).all()
    one, same, other = (vanilla_cbm(data, encoder_of(problem), PLAN, seed) for seed in (0, 0, 1))
    found = one.predict(encoder_of(problem), test)
    np.testing.assert_array_equal(found.levels, same.predict(encoder_of(problem), test).levels)
    np.testing.assert_array_equal(found.grades, same.predict(encoder_of(problem), test).grades)
    assert not np.array_equal(found.grades, other.predict(encoder_of(problem), test).grades)


def test_the_head_as_arrays_is_the_head_that_was_trained(problem):
    model = Joint(16, problem.data, PLAN, 0, tuned=True)
    with torch.no_grad():
        model.grader.weights.normal_(0, 1e-3, generator=torch.Generator().manual_seed(0))
        model.grader.bias.fill_(1e-4)
    states, mask = encoder_of(problem)(np.arange(5))
    levels, grades = (one.detach().double() for one in model(states, mask))
    expected = (levels.softmax(2) @ torch.arange(4.0).double()).numpy() / problem.data.concepts.tops
    np.testing.assert_allclose(model.as_head().logits(expected), grades.numpy(), atol=1e-5)


def test_the_head_moves_at_its_own_rate_beside_a_tuned_encoder(written, backbone_folder):
    problem = written()
    backbone = load(str(backbone_folder("bert")), 48)
    encoder = TunedBackbone(backbone, backbone.tokenize(problem.answered))
    trained = vanilla_cbm(problem.data, encoder, Training(epochs=2, warmup=0), 0)  # 2e-5 for the encoder
    steps = 2 * len(trained.history)
    assert trained.encoder_state is not None
    assert 0.02 < np.abs(trained.head.weights).max() <= 0.02 * 8 * steps
    found = trained.predict(encoder, problem.data.rows("test"))
    assert found.levels.shape == (8, 2, 3)


def test_a_train_split_without_concept_labels_is_refused(problem):
    data = replace(problem.data, levels=np.full_like(problem.data.levels, MISSING))
    with pytest.raises(InputError, match="train split has a concept label"):
        vanilla_cbm(data, encoder_of(problem), PLAN, 0)


def test_a_sweep_may_narrow_the_concepts(problem):
    plan = PLAN.model_copy(update={"concepts": 2, "epochs": 1})
    trained = vanilla_cbm(problem.data, encoder_of(problem), plan, 0)
    assert trained.head.weights.shape == (3, 2)
    assert trained.predict(encoder_of(problem), np.arange(4)).levels.shape == (4, 2, 3)


# The plain language model: what it reads, that it learns, and what a split without grades says.


PLM_PLAN = Training(epochs=10, head_learning_rate=0.02)


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
    one, same, other = (plm(problem.data, encoder_of(problem), PLM_PLAN, seed) for seed in (0, 0, 1))
    found = one.predict(encoder_of(problem), test)
    assert right(found, problem.data, test) > 0.6  # three grades, equally frequent
    np.testing.assert_allclose(found.grades.sum(axis=1), 1)
    assert (found.levels, one.head, one.concept_encoder) == (None, None, None)
    np.testing.assert_array_equal(found.grades, same.predict(encoder_of(problem), test).grades)
    assert not np.array_equal(found.grades, other.predict(encoder_of(problem), test).grades)
    assert one.validation == max(entry["validation"] for entry in one.history)
    assert one.parameters == 3 * 16 + 3


@pytest.mark.parametrize("split", ["train", "calibration"])
def test_a_split_without_any_grade_is_named(problem, split):
    grades = np.where(problem.data.split == split, MISSING, problem.data.grades)
    with pytest.raises(InputError, match=f"{split} split has a grade label"):
        plm(replace(problem.data, grades=grades), encoder_of(problem), PLM_PLAN, 0)


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
    narrow = plm(problem.data, encoder_of(problem), PLM_PLAN.model_copy(update={"width": 4, "epochs": 1}), 0)
    assert narrow.parameters == 16 * 4 + 3 * 4 + 3


# C3M: mixtures with the targets that belong to them, and labels that a machine fills in.


@pytest.fixture(scope="module")
def holed(problem):
    """The problem without 60% of its training labels."""
    rng = np.random.default_rng(3)
    hidden = (rng.random(problem.data.levels.shape) < 0.6) & (problem.data.split == "train")[:, None]
    return replace(problem.data, levels=np.where(hidden, MISSING, problem.data.levels)), hidden


def model_of(problem):
    model = Joint(16, problem.data, PLAN, 0, tuned=False).double()
    with torch.no_grad():
        model.grader.weights.normal_(generator=torch.Generator().manual_seed(1))
    return model


@given(st.floats(0, 1), st.permutations(range(5)))
@settings(max_examples=15)
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
