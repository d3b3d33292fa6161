"""The stacked mapping: against scikit-learn, its folds against refits, its parts, and what labels cannot reach."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labels_scene import labelled_rows
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import Ridge

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.settings.study import Calibration
from rubricflow.tasks.grading.calibrate.alignment import Refusal
from rubricflow.tasks.grading.calibrate.choose import decide
from rubricflow.tasks.grading.calibrate.features import Readers, TextSource, embed, text_blocks
from rubricflow.tasks.grading.calibrate.methods import apply_to_labels, cross_fit, fit_method, folds
from rubricflow.tasks.grading.calibrate.stack import STRENGTH, StackedRows, apply_stack, fit_stack

SCALE = Scale(min=0, max=3)
WORDS = ("membrane", "water", "energy", "cell", "moves", "high", "low", "protein", "gate", "salt")


def encode(texts):
    """A stand-in for an encoder: counts of words, rows of length 1."""
    counts = np.array([[1.0, *(text.count(word) for word in WORDS)] for text in texts]).reshape(-1, len(WORDS) + 1)
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def answers(seed, n=120, items=1):
    """Labelled answers whose score lies partly in the words and partly in what the judge decides."""
    rng = np.random.default_rng(seed)
    said = rng.random((n, len(WORDS))) < 0.4
    texts = [" ".join(word for word, used in zip(WORDS, row, strict=True) if used) or "nothing" for row in said]
    judge = rng.normal(size=(n, 3))
    item = rng.integers(0, items, n)
    latent = said[:, 0] + said[:, 1] + 0.6 * judge[:, 0] + 0.3 * item + rng.normal(0, 0.3, n)
    human = np.clip(np.round(latent), 0, 3) / (3 if items > 1 else 1)
    source = TextSource(texts, "What does a membrane do?", "water moves", "")
    return labelled_rows(
        np.clip(np.round(1.5 + judge[:, 0]), 0, 3) / (3 if items > 1 else 1),
        human,
        SCALE,
        names=("trait.a", "trait.b", "length"),
        items=tuple(f"q{at}" for at in range(items)),
        item=item,
        matrix=judge,
        blocks=text_blocks(source, ("characters", "embedding"), Readers(encode=encode)),
    )


def rows_of(labels):
    return StackedRows(labels.matrix, labels.blocks, labels.item_id)


def stack_of(labels, with_judge=True):
    ends = labels.low, labels.high
    fold = folds(labels.cluster)
    return fit_stack(rows_of(labels), labels.human, labels.weight, fold, ends, labels.items, with_judge)


def test_one_block_is_scikit_learns_ridge():
    labels = answers(1)
    alone = replace(labels, blocks={"embedding": labels.blocks["embedding"]})
    x = alone.blocks["embedding"]
    size = np.trace(np.cov(x.T, bias=True))
    model = Ridge(alpha=STRENGTH * size).fit(x, alone.human)
    found, _ = apply_stack(stack_of(alone, with_judge=False), rows_of(alone), (0, 3, 1))
    np.testing.assert_allclose(found.latent, model.predict(x), atol=1e-5)


def test_blocks_side_by_side_are_scikit_learns_ridge_on_their_columns():
    labels = answers(2)
    counts = labels.blocks["characters"]
    blocks = [
        TfidfTransformer(sublinear_tf=True).fit_transform(counts).toarray(),
        labels.blocks["embedding"],
        labels.blocks["reference"],
        labels.blocks["length"],
    ]
    x = np.hstack([block / np.sqrt(4 * np.sum(block.var(axis=0))) for block in blocks])
    model = Ridge(alpha=STRENGTH).fit(x, labels.human)
    found, _ = apply_stack(stack_of(labels, with_judge=False), rows_of(labels), (0, 3, 1))
    np.testing.assert_allclose(found.latent, model.predict(x), atol=1e-4)


@pytest.mark.parametrize("items", [1, 4])
def test_the_knots_rest_on_latents_of_refits_without_each_fold(items):
    labels = answers(3, 60, items)
    fold = folds(labels.cluster)
    latent = np.empty(60)
    whole = stack_of(labels)
    seen = replace(labels, weight=np.ones(60))
    for k in range(fold.max() + 1):
        # The scaling of the blocks holds no label and is that of all rows.
        gram = _gram(seen)
        kept = fold != k
        inside = gram[np.ix_(kept, kept)] + STRENGTH * np.eye(kept.sum())
        inverse = np.linalg.inv(inside)
        ones = inverse.sum(axis=1)
        mean = ones @ labels.human[kept] / ones.sum()
        latent[~kept] = mean + gram[np.ix_(~kept, kept)] @ inverse @ (labels.human[kept] - mean)
    assert whole.latent_knots[0] == pytest.approx(latent.min(), abs=1e-6)
    assert whole.latent_knots[-1] == pytest.approx(latent.max(), abs=1e-6)


def _gram(labels):
    from rubricflow.tasks.grading.calibrate.stack import _columns, _kernel

    stack = stack_of(labels)
    kernels = [_kernel(block) for block in _columns(stack, rows_of(labels)).values()]
    kernels = [kernel / (np.trace(kernel) / len(kernel)) for kernel in kernels if np.trace(kernel) > 1e-6]
    return np.sum(kernels, axis=0) / len(kernels)


@pytest.mark.parametrize("items", [1, 5])
def test_the_parts_and_the_average_add_up_to_the_latent_score(items):
    labels = answers(4, 150, items)
    stack = stack_of(labels)
    new = answers(5, 40, items)
    scale = (0.0, 3.0, 1.0)
    found, points = apply_stack(stack, rows_of(new), scale)
    unit = 3.0 / (labels.high - labels.low)
    np.testing.assert_allclose(stack.intercept * unit + sum(points), found.latent, atol=1e-9)
    assert np.std(points.judge) > 0.1
    assert np.std(points.text) > 0.1
    assert (np.std(points.item) > 0.01) == (items > 1)


def test_an_item_without_labels_gets_nothing_for_its_item():
    labels = answers(6, 150, 4)
    rows = rows_of(labels)._replace(item=np.full(150, "another"))
    _, points = apply_stack(stack_of(labels), rows, (0, 3, 1))
    assert not points.item.any()


@given(st.integers(0, 10_000), st.sampled_from(["stacked", "text_only"]))
@settings(max_examples=10)
def test_labels_of_a_fold_never_reach_its_own_scores(seed, method):
    labels = answers(seed % 7, 60)
    fold = folds(labels.cluster)
    out = fold == seed % 5
    human = labels.human.copy()
    human[out] = np.random.default_rng(seed).integers(0, 4, out.sum())
    before = cross_fit(method, labels, fold, 2.5).aligned[out]
    after = cross_fit(method, replace(labels, human=human), fold, 2.5).aligned[out]
    np.testing.assert_array_equal(before, after)


def test_scores_without_a_signal_are_worth_nothing_inside_folds():
    """Permuted labels can only be learned through a leak."""
    worth = []
    for seed in range(5):
        labels = answers(seed, 100)
        shuffled = np.random.default_rng(seed).permutation(labels.human)
        trial = {one.method: one for one in decide(replace(labels, human=shuffled), Calibration()).candidates}
        worth.append(trial["stacked"].qwk)
    assert abs(np.mean(worth)) < 0.15


def test_text_and_judge_together_do_better_than_either():
    known, held = answers(8, 200), answers(9, 400)
    error = {}
    for method in ("stacked", "text_only", "rulers"):
        aligned = apply_to_labels(fit_method(method, known, 2.5), held).aligned
        error[method] = np.mean((aligned - held.human) ** 2)
    assert error["stacked"] < 0.8 * min(error["text_only"], error["rulers"])


@given(st.permutations(range(40)))
@settings(max_examples=10)
def test_a_rows_score_does_not_depend_on_its_neighbours(order):
    labels, new = answers(10, 80), answers(11, 40)
    stack = stack_of(labels)
    order = np.array(order)
    whole, _ = apply_stack(stack, rows_of(new), (0, 3, 1))
    moved = rows_of(new.take(order))
    np.testing.assert_array_equal(apply_stack(stack, moved, (0, 3, 1))[0].latent, whole.latent[order])


def test_one_huge_hidden_state_does_not_drown_the_others():
    labels = answers(16, 150)
    rng = np.random.default_rng(16)
    telling = labels.human[:, None] + rng.normal(0, 0.3, (150, 5))
    states = np.hstack([telling, rng.normal(0, 1000, (150, 1))])
    huge = replace(labels, blocks={"hidden": states})
    even = replace(labels, blocks={"hidden": states / states.std(axis=0)})
    found = [apply_to_labels(fit_method("text_only", one, 2.5), one).latent for one in (huge, even)]
    np.testing.assert_allclose(*found, atol=1e-4)
    assert np.corrcoef(found[0], labels.human)[0, 1] > 0.9


def test_words_never_seen_and_empty_texts_have_a_score():
    labels = answers(12)
    texts = ["", "   ", "zzz qqq", "=HYPERLINK('x')", "🙂" * 900]
    blocks = text_blocks(TextSource(texts, "", "", ""), ("characters", "embedding"), Readers(encode=encode))
    rows = StackedRows(np.zeros((5, 3)), blocks, np.full(5, "q0"))
    found, _ = apply_stack(stack_of(labels), rows, (0, 3, 1))
    assert np.isfinite(found.latent).all()


def test_what_cannot_be_fitted_is_refused():
    labels = answers(14)
    with pytest.raises(Refusal, match="all human scores are the same"):
        stack_of(replace(labels, human=np.ones(120)))
    flat = replace(labels, matrix=np.ones((120, 3)), blocks={})
    with pytest.raises(Refusal, match="no feature varies"):
        stack_of(flat)
    with pytest.raises(Refusal, match="all labels are of one author"):
        stack_of(replace(labels, cluster=np.full(120, "author a")))
    with pytest.raises(Refusal, match="nothing of the text"):
        fit_method("text_only", replace(labels, blocks={}), 2.5)


def test_two_authors_leave_no_stack_inside_folds_and_no_crash():
    labels = replace(answers(17, 40), cluster=np.array(["author a", "author b"] * 20))
    trials = {trial.method: trial for trial in decide(labels, Calibration()).candidates}
    assert trials["stacked"].note == "all labels are of one author, none is left to map the latents by, in one fold"
    assert trials["rulers"].tried is not None


def test_more_labels_than_are_fitted_are_thinned(monkeypatch):
    labels = answers(15, 120)
    monkeypatch.setattr("rubricflow.tasks.grading.calibrate.stack.MOST", 40)
    third = np.linspace(0, 119, 40).astype(int)
    expected = stack_of(labels.take(third))
    assert stack_of(labels).blocks == expected.blocks


@pytest.mark.parametrize("words", [0, 1, 149, 150, 151, 700])
def test_a_long_text_is_the_mean_of_its_windows(words):
    text = " ".join(WORDS[at % 10] for at in range(words))
    count = max(1, -(-words // 150))
    parts = np.array_split(text.split(), count) if words else [[]]
    (vector,) = embed([text], encode)
    assert len(parts) == count
    assert vector == pytest.approx(np.mean(encode([" ".join(part) for part in parts]), axis=0), abs=0.03)
