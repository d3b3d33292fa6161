"""CT-CBM: which candidates there are, what targets one, and a word that the given concepts miss."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from rubricflow.tasks.core.contracts.settings.methods import Training
from rubricflow.tasks.methods.bottleneck import text_bottlenecks as ct_cbm_module
from rubricflow.tasks.methods.bottleneck.baselines import vanilla_cbm
from rubricflow.tasks.methods.bottleneck.data import Concepts, LabelledData
from rubricflow.tasks.methods.bottleneck.states import Cached, States
from rubricflow.tasks.methods.bottleneck.text_bottlenecks import RIDGE, candidates, ct_cbm, residual, targeted

PLAN = Training(epochs=30, patience=8, batch_size=16, head_learning_rate=0.05, head_learning_rate_2=0.1)
FILLERS = ("the", "plant", "water", "moves", "upwards", "because", "of", "leaves")


@dataclass(frozen=True)
class Hidden:
    """Responses whose grade follows from a given concept and from the word 'xylem', which no concept names."""

    data: LabelledData
    texts: tuple[str, ...]
    encoder: Cached


@pytest.fixture(scope="module")
def hidden():
    rng, n = np.random.default_rng(0), 240
    look = {word: rng.normal(size=16) for word in (*FILLERS, "xylem", "low", "high")}
    level, word = rng.integers(0, 2, (2, n))
    texts, values = [], []
    for row in range(n):
        said = [*rng.choice(FILLERS, rng.integers(4, 8)), ("low", "high")[level[row]], *["xylem"] * word[row]]
        texts.append(" ".join(rng.permutation(said)))
        values.append([look[one] + rng.normal(scale=0.1, size=16) for one in texts[-1].split()])
    data = LabelledData(
        tuple(f"r{at:03}" for at in range(n)),
        Concepts(("force",), ("Force",), ("says how strong",), (("low", "high"),)),
        level[:, None].astype(np.int64),
        np.ones((n, 1)),
        (level + word).astype(np.int64),
        np.arange(3.0),
        np.repeat(["train", "calibration", "test"], [160, 40, 40]),
    )
    starts = np.concatenate([[0], np.cumsum([len(one) for one in values])])
    return Hidden(data, tuple(texts), Cached(States(np.concatenate(values).astype(np.float16), starts)))


@pytest.fixture
def brief(monkeypatch):
    """A plan of two short rounds."""
    monkeypatch.setattr(ct_cbm_module, "MOST", 2)
    return PLAN.model_copy(update={"epochs": 2})


def test_candidates_are_words_and_pairs_of_enough_training_responses():
    texts = ["Water rises, always"] * 6 + ["water falls"] * 5 + ["Rare."] * 4 + ["held out"] * 9
    bank = candidates(texts, np.arange(15))
    assert bank.words == ("water", "always", "rises", "rises always", "water rises", "falls", "water falls")
    np.testing.assert_array_equal(bank.present[:, bank.words.index("water falls")], ["falls" in text for text in texts])


def test_a_word_of_all_responses_is_no_candidate():
    assert candidates(["always so"] * 30, np.arange(30)).words == ()


def test_what_targets_a_candidate_is_importance_times_identifiability():
    rng = np.random.default_rng(1)
    weights, means, present = rng.normal(size=(4, 6)), rng.normal(size=(40, 6)), rng.random((40, 5)) < 0.3
    found = targeted(weights, means, present)
    for at, held in enumerate(present.T):
        vector = means[held].mean(axis=0) - means[~held].mean(axis=0)
        pushed = weights @ vector
        importance = np.linalg.norm(pushed - pushed.mean()) * held.std()
        assert found[at] == pytest.approx(importance * (2 * roc_auc_score(held, means @ vector) - 1))
    np.testing.assert_allclose(targeted(weights + 3.0, means, present), found)  # the same to all grades is no matter


def test_the_residual_layer_is_the_one_that_explains_the_grades_best():
    rng = np.random.default_rng(2)
    means, grades = rng.normal(size=(200, 4)), rng.integers(0, 3, 200)
    known = LogisticRegression(C=1 / (2 * RIDGE * 200), tol=1e-8, max_iter=1_000).fit(means, grades)
    weights, bias = residual(np.full((200, 3), 1 / 3), means, grades)
    np.testing.assert_allclose(weights, known.coef_, atol=1e-3)
    np.testing.assert_allclose(bias - bias.mean(), known.intercept_ - known.intercept_.mean(), atol=1e-3)


def test_it_finds_the_word_that_the_concepts_miss(hidden):
    data, test = hidden.data, hidden.data.rows("test")  # patient enough for the joint model to learn what it can
    trained = ct_cbm(data, hidden.encoder, PLAN, 0, texts=hidden.texts)
    found = trained.predict(hidden.encoder, test)
    assert next(entry["found"] for entry in trained.history if entry["found"]) == ["xylem"]
    without = vanilla_cbm(data, hidden.encoder, PLAN, 0).predict(hidden.encoder, test)
    right, before = ((one.grade == data.grades[test]).mean() for one in (found, without))
    assert right > max(0.9, before)
    assert found.levels.shape == (40, 1, 2)
    assert (found.chosen() == data.levels[test]).mean() > 0.9
    assert (trained.head, trained.concept_encoder) == (None, None)
    assert trained.validation == max(entry["validation"] for entry in trained.history)
    assert trained.epochs[0] + trained.epochs[1] == len(trained.history)


def test_a_sweep_s_concepts_leave_room_for_found_ones(hidden, brief):
    short = brief.model_copy(update={"concepts": 1})
    trained = ct_cbm(hidden.data, hidden.encoder, short, 0, texts=hidden.texts)
    assert any(entry["found"] for entry in trained.history)
    assert trained.predict(hidden.encoder, np.arange(3)).levels.shape == (3, 1, 2)


def test_the_same_seed_finds_the_same(hidden, brief):
    one, same, other = (ct_cbm(hidden.data, hidden.encoder, brief, seed, texts=hidden.texts) for seed in (0, 0, 1))
    grades = [each.predict(hidden.encoder, np.arange(20)).grades for each in (one, same, other)]
    np.testing.assert_array_equal(grades[0], grades[1])
    assert not np.array_equal(grades[0], grades[2])
    assert one.history == same.history


def test_without_candidates_only_the_given_concepts_are_left(hidden):
    short = PLAN.model_copy(update={"epochs": 1})
    trained = ct_cbm(hidden.data, hidden.encoder, short, 0, texts=["same"] * len(hidden.texts))
    assert trained.epochs == (1, 0)


def test_words_of_held_out_responses_do_not_steer_it(hidden, brief):
    texts = [
        text if part == "train" else "spam " * 9 for text, part in zip(hidden.texts, hidden.data.split, strict=True)
    ]
    one, other = (ct_cbm(hidden.data, hidden.encoder, brief, 0, texts=each) for each in (hidden.texts, texts))
    assert one.history == other.history


def test_a_concept_without_labels_for_some_responses_is_no_hindrance(hidden, brief):
    levels = hidden.data.levels.copy()
    levels[::3] = -1
    trained = ct_cbm(replace(hidden.data, levels=levels), hidden.encoder, brief, 0, texts=hidden.texts)
    assert np.isfinite(trained.predict(hidden.encoder, np.arange(5)).grades).all()
