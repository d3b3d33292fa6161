"""Token trees: what each token sees, and the refusal of what cannot be read so."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_policies import policy

from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.methods.edit import tree as tree_module
from rubricflow.tasks.methods.edit.tree import ROOT, Tree, _flat, score


@pytest.fixture(scope="module")
def model():
    return policy("llama", "words").model


def text_to(tree, number):
    """The tokens from the root to the end of a node."""
    node = tree.nodes[number]
    return [*(text_to(tree, node.parent) if node.parent != ROOT else []), *node.ids]


def alone(model, tree, number):
    """Sum of the log-probabilities of a node's tokens, the path read by itself."""
    ids = text_to(tree, number)
    count = len(tree.nodes[number].ids)
    with torch.no_grad():
        logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return sum(logprobs[place - 1, ids[place]].item() for place in range(len(ids) - count, len(ids)))


@st.composite
def trees(draw):
    """Any tree with some tokens under its root."""
    tokens = st.lists(st.integers(5, 250), min_size=1, max_size=4)
    tree = Tree("r")
    tree.add(draw(tokens))
    for _ in range(draw(st.integers(0, 8))):
        parent = draw(st.integers(0, len(tree.nodes) - 1))
        tree.add(draw(tokens), parent, scored=draw(st.booleans()))
    return tree


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(trees(), min_size=1, max_size=3))
def test_every_node_scores_as_its_path_read_alone(model, several):
    for tree, sums in zip(several, score(model, several), strict=True):
        wanted = [alone(model, tree, at) if node.scored else 0 for at, node in enumerate(tree.nodes)]
        np.testing.assert_allclose(sums, wanted, atol=2e-4)


@given(trees())
def test_a_token_sees_its_ancestors_and_itself(tree):
    flat = _flat(tree)
    seen = flat.sees
    assert (seen.sum(axis=1) == flat.positions + 1).all()
    assert (seen.diagonal()).all()
    assert not np.triu(seen, 1).any()
    read = {node.parent for node in tree.nodes} - {ROOT}
    for number in read:  # the last token of every inner node closes its path
        assert any(flat.ids[row].tolist() == text_to(tree, number) for row in seen)


def test_paths_share_what_they_begin_with():
    tree = Tree("r")
    root = tree.add([9])
    ends = tree.branch([[1, 0], [1, 2, 0], [3, 0], [1, 2, 0]], root, scored=True)
    assert [text_to(tree, end) for end in ends] == [[9, 1, 0], [9, 1, 2, 0], [9, 3, 0], [9, 1, 2, 0]]
    assert sum(len(node.ids) for node in tree.nodes) == 1 + 2 + 2 + 2
    assert ends[1] == ends[3]


def test_batches_change_nothing(model, monkeypatch):
    rng = np.random.default_rng(0)
    several = []
    for length in (3, 30, 8, 17):
        tree = Tree("r")
        root = tree.add(rng.integers(5, 250, length).tolist())
        tree.branch([rng.integers(5, 250, 3).tolist() for _ in range(4)], root, scored=True)
        several.append(tree)
    together = score(model, several)
    monkeypatch.setattr(tree_module, "_BATCH_TOKENS", 1)
    monkeypatch.setattr(tree_module, "_HEAD", 700)
    for one, other in zip(together, score(model, several[::-1])[::-1], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
        assert np.ptp(one) > 1


def test_nothing_is_asked_of_no_tree(model):
    assert score(model, []) == []


def test_the_first_token_of_a_text_has_no_probability(model):
    tree = Tree("r")
    tree.add([3, 4], ROOT, scored=True)
    with pytest.raises(ValueError, match="first token"):
        score(model, [tree])


def test_a_path_longer_than_the_positions_is_named():
    model = policy("gpt2", "words", positions=16).model
    tree = Tree("r7")
    tree.add([1], tree.add(list(range(15))), scored=True)
    assert score(model, [tree])[0][1] < 0
    tree.add([1, 2], 0, scored=True)
    with pytest.raises(InputError, match=r"response 'r7': .* 17 tokens, the policy reads at most 16"):
        score(model, [tree])


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("sliding_window", 8, "sliding window"),
        ("layer_types", ["full_attention", "linear_attention"], "full attention"),
        ("_attn_implementation", "flash_attention_2", "flash_attention_2"),
        ("logit_scale", 0.1, "scales its logits"),
    ],
)
def test_a_model_that_would_read_otherwise_is_refused(monkeypatch, setting, value, reason):
    model = policy("llama", "words").model
    monkeypatch.setattr(type(model.config), setting, value, raising=False)
    if setting in vars(model.config):
        monkeypatch.delattr(model.config, setting)
    with pytest.raises(BackendError, match=reason):
        score(model, [])
