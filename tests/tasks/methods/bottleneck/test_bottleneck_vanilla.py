"""The joint bottleneck model: its loss by hand, what it learns, and a head that a person can move."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.bottleneck import Training
from rubricflow.tasks.methods.bottleneck.backbone import load
from rubricflow.tasks.methods.bottleneck.baselines import Joint, Targets, joint_loss, vanilla_cbm
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


def test_gradients_of_both_losses_reach_the_shared_representation(problem):
    data = problem.data
    model = Joint(16, data, PLAN, 0, tuned=False)
    with torch.no_grad():
        model.grader.weights.normal_(generator=torch.Generator().manual_seed(0))
    states, mask = encoder_of(problem)(np.arange(6))
    terms = joint_loss(model(states, mask), Targets.of(data, np.arange(6), states.device), PLAN)
    for term in terms.values():
        (gradient,) = torch.autograd.grad(term, model.reader.classifiers, retain_graph=True)
        assert gradient.abs().max() > 1e-4


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


def test_the_grade_is_what_the_head_says_of_the_shares(problem):
    data, test = problem.data, problem.data.rows("test")
    trained = vanilla_cbm(data, encoder_of(problem), PLAN, 0)
    found = trained.predict(encoder_of(problem), test)
    shares = found.shares(data.concepts.tops)
    np.testing.assert_allclose(trained.head.probabilities(shares), found.grades)
    np.testing.assert_array_equal(trained.head.correction, np.eye(3))
    lowest, highest = np.zeros((1, 3)), np.ones((1, 3))
    assert trained.head.probabilities(lowest).argmax() < trained.head.probabilities(highest).argmax()


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


def test_labels_that_are_missing_teach_nothing(problem):
    rng = np.random.default_rng(0)
    levels = np.where(rng.random(problem.data.levels.shape) < 0.4, MISSING, problem.data.levels)
    partial = replace(problem.data, levels=levels)
    hidden = replace(partial, weights=np.where(levels == MISSING, 1e9, partial.weights))
    test = problem.data.rows("test")
    one, two = (vanilla_cbm(each, encoder_of(problem), PLAN, 0) for each in (partial, hidden))
    found = one.predict(encoder_of(problem), test)
    np.testing.assert_array_equal(found.grades, two.predict(encoder_of(problem), test).grades)


def test_a_train_split_without_concept_labels_is_refused(problem):
    data = replace(problem.data, levels=np.full_like(problem.data.levels, MISSING))
    with pytest.raises(InputError, match="train split has a concept label"):
        vanilla_cbm(data, encoder_of(problem), PLAN, 0)


def test_a_sweep_may_narrow_the_concepts(problem):
    plan = PLAN.model_copy(update={"concepts": 2, "epochs": 1})
    trained = vanilla_cbm(problem.data, encoder_of(problem), plan, 0)
    assert trained.head.weights.shape == (3, 2)
    assert trained.predict(encoder_of(problem), np.arange(4)).levels.shape == (4, 2, 3)
