"""CB-LLM: its scores, its loss by the formula, its sparse head, and that no concept label enters."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.methods import Training
from rubricflow.tasks.methods.bottleneck.data import MISSING, Concepts
from rubricflow.tasks.methods.bottleneck.states import Cached, States
from rubricflow.tasks.methods.bottleneck.text_bottlenecks import SparseHead, cb_llm, concept_scores, cubed_cosine

PLAN = Training(epochs=15, head_learning_rate=0.02, batch_size=16)
WORDS = [f"word{concept}{level}" for concept in range(3) for level in range(4)]


@pytest.fixture(scope="module")
def problem(planted):
    return planted()


@pytest.fixture(scope="module")
def texts(problem):
    return [". ".join(WORDS[4 * k + level] for k, level in enumerate(row)) + "." for row in problem.data.levels]


def embed(texts):
    """A concept is like the words of its levels, the more so the higher the level."""
    vectors = np.full((len(texts), 4), 0.2)
    for vector, text in zip(vectors, texts, strict=True):
        for word in WORDS:
            if word in text:
                vector[int(word[4])] += int(word[5])
        for k in range(3):
            if f"concept-{k}" in text:
                vector[k] += 9
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def encoder_of(problem):
    return Cached(States(problem.values, problem.starts))


def learned(problem, texts, seed, data=None):
    return cb_llm(data or problem.data, encoder_of(problem), PLAN, seed, texts=texts, embed=embed)


FLOATS = arrays(np.float64, (3, 4), elements=st.integers(-50, 50).map(lambda n: n / 10))


@given(FLOATS, FLOATS)
@settings(max_examples=15)
def test_the_loss_is_the_cosine_of_centred_cubes(activations, targets):
    found = cubed_cosine(torch.tensor(activations), torch.tensor(targets)).numpy()
    for one, two, value in zip(activations, targets, found, strict=True):
        cubes = (one - one.mean()) ** 3, (two - two.mean()) ** 3
        lengths = [np.linalg.norm(cube) for cube in cubes]
        if min(lengths) > 1e-6:
            assert value == pytest.approx(np.dot(*cubes) / np.prod(lengths), abs=1e-9)


def test_a_response_scores_by_its_most_similar_sentence():
    rng = np.random.default_rng(0)
    known = {}

    def drawn(texts):
        for text in texts:
            known.setdefault(text, rng.normal(size=5))
        return np.array([known[text] / np.linalg.norm(known[text]) for text in texts])

    concepts = Concepts(
        ("a", "b"), ("A", "B"), ("looks for a", "looks for b"), (("no", "yes"), ("none", "some", "all"))
    )
    texts = ["One here. Two there.", "", "Three!\nFour? Five.", "   "]
    found = concept_scores(texts, concepts, drawn)
    about = drawn(["looks for a yes", "looks for b all"])
    np.testing.assert_allclose(found[0], (drawn(["One here.", "Two there."]) @ about.T).max(axis=0))
    np.testing.assert_allclose(found[2], (drawn(["Three!", "Four?", "Five."]) @ about.T).max(axis=0))
    np.testing.assert_array_equal(found[[1, 3]], 0)
    np.testing.assert_array_equal(concept_scores(["", ""], concepts, drawn), 0)


def test_the_head_drops_what_says_nothing_and_keeps_what_does():
    rng = np.random.default_rng(0)
    activations = rng.normal(size=(300, 6))
    grades = np.digitize(activations[:, 2], [-0.3, 0.6])
    head = SparseHead(activations, grades, 4, 0)
    likely = head(activations)
    assert (likely.argmax(axis=1) == grades).mean() > 0.6
    np.testing.assert_array_equal(likely[:, 3], 0)  # no response has that grade
    np.testing.assert_allclose(likely.sum(axis=1), 1)
    spread = np.abs(head.model.coef_).max(axis=0)
    assert spread.argmax() == 2
    assert spread[2] > 5 * np.delete(spread, 2).max()


def test_a_single_grade_is_given_to_all():
    head = SparseHead(np.random.default_rng(0).normal(size=(5, 2)), np.full(5, 1), 3, 0)
    np.testing.assert_array_equal(head(np.zeros((2, 2))), [[0, 1, 0], [0, 1, 0]])
    assert head.numbers == 0


def test_it_learns_and_the_same_seed_learns_the_same(problem, texts):
    test = problem.data.rows("test")
    one, same, other = (learned(problem, texts, seed) for seed in (0, 0, 1))
    found = one.predict(encoder_of(problem), test)
    assert (found.grade == problem.data.grades[test]).mean() > 0.45  # three grades, equally frequent
    assert (found.levels, one.head) == (None, None)
    np.testing.assert_array_equal(found.grades, same.predict(encoder_of(problem), test).grades)
    assert not np.array_equal(found.grades, other.predict(encoder_of(problem), test).grades)


def test_no_concept_label_enters_and_no_held_out_grade(problem, texts):
    blind = replace(
        problem.data,
        levels=np.full_like(problem.data.levels, MISSING),
        grades=np.where(problem.data.split == "test", MISSING, problem.data.grades),
    )
    rows = np.arange(20)
    one, two = learned(problem, texts, 0), learned(problem, texts, 0, blind)
    np.testing.assert_array_equal(
        one.predict(encoder_of(problem), rows).grades, two.predict(encoder_of(problem), rows).grades
    )


def test_a_single_concept_is_refused(problem, texts):
    with pytest.raises(InputError, match="two concepts"):
        cb_llm(problem.data, encoder_of(problem), Training(concepts=1), 0, texts=texts, embed=embed)
