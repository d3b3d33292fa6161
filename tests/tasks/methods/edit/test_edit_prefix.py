"""What texts begin with alike is read once, and nothing that is said changes by it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_policies import Asking, cases, policy, sample

from rubricflow.tasks.methods.edit.belief import beliefs
from rubricflow.tasks.methods.edit.policy import _LEAST, Policy, groups
from rubricflow.tasks.methods.edit.tree import Tree, score

KINDS = [("qwen3", "digits"), ("gpt2", "words")]
TOKENS = st.lists(st.integers(5, 250), max_size=5)
FAMILIES = st.lists(st.tuples(st.lists(st.integers(5, 250), max_size=40), st.lists(TOKENS, max_size=4)), max_size=3)
"""Beginnings, and how texts go on from each."""


@pytest.fixture(params=KINDS, ids=lambda kind: kind[0], scope="module")
def grader(request: pytest.FixtureRequest) -> Policy:
    kind, split = request.param
    return policy(kind, split, chat=kind == "qwen3")


@given(FAMILIES)
def test_every_text_is_in_one_group_and_groups_begin_alike(families: list) -> None:
    texts = [[*begin, *rest] for begin, rests in families for rest in rests]
    found = list(groups(texts))
    assert sorted(at for group, _ in found for at in group) == list(range(len(texts)))
    for group, common in found:
        assert len({tuple(texts[at][:common]) for at in group}) == 1
        assert common == 0 or min(len(texts[at]) for at in group) >= common >= _LEAST
        assert common == 0 or 2 * common >= min(len(texts[at]) for at in group)


def test_answers_to_two_questions_are_two_groups() -> None:
    texts = [[1] * 50 + [question] * 100 + [answer] * 20 for question in (2, 3) for answer in (5, 6, 7)]
    assert list(groups(texts)) == [([0, 1, 2], 150), ([3, 4, 5], 150)]


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FAMILIES.filter(lambda families: any(begin and rests for begin, rests in families)))
def test_replies_are_those_of_texts_read_alone(grader: Policy, families: list) -> None:
    asked = [[*begin, *rest] for begin, rests in families for rest in rests if begin or rest]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rubricflow.tasks.methods.edit.policy._LEAST", 1)
        together = grader.continued(asked, 0.0, 8)
    for ids, reply in zip(asked, together, strict=True):
        alone = grader.continued([ids], 0.0, 8)[0]
        assert grader.text(reply, 8) == grader.text(alone, 8)


@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FAMILIES, st.lists(st.booleans(), min_size=6, max_size=6))
def test_trees_score_as_if_nothing_were_shared(grader: Policy, families: list, scored: list[bool]) -> None:
    trees = []
    for begin, rests in families:
        for rest in rests:
            tree = Tree("r")
            root = tree.add([*begin, 9, *rest])
            first = tree.add([11, 12], root, scored=scored[0])
            tree.add([13], first, scored=scored[1])
            tree.add([14, 15], root, scored=scored[2])
            trees.append(tree)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rubricflow.tasks.methods.edit.policy._LEAST", 1)
        together = score(grader.model, trees)
    for tree, sums in zip(trees, together, strict=True):
        np.testing.assert_allclose(sums, score(grader.model, [tree])[0], atol=1e-4)


def test_a_shared_beginning_is_read_once(grader: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [grader.prompt_ids(Asking().grade(sample(4, at, f"plants {at}"))) for at in range(6)]
    read = 0
    body = grader.model.get_decoder()
    plain = body.forward

    def counted(*args: object, **more: object) -> object:
        nonlocal read
        ids = more.get("input_ids", *args[:1])
        read += ids.numel()  # type: ignore[attr-defined]
        return plain(*args, **more)

    monkeypatch.setattr(body, "forward", counted)
    grader.continued(asked, 0.0, 1)
    assert read < 0.6 * sum(map(len, asked))


def test_rounding_is_near_and_leaves_no_trace() -> None:
    plain = policy("qwen3", "digits", chat=True)
    rounding = Policy(plain.model, plain.tokenizer, plain.name, rounds=True)
    frozen = next(iter(plain.model.parameters()))
    frozen.requires_grad_(False)
    exact, near = (beliefs(one, Asking(), cases(4)) for one in (plain, rounding))
    for one, other in zip(exact, near, strict=True):
        np.testing.assert_allclose(one, other, atol=0.05)
        assert not np.array_equal(one, other)
    assert not frozen.requires_grad
    assert not torch.is_autocast_enabled("cpu")
    assert all(one.dtype == torch.float32 for one in plain.model.parameters())
    assert rounding.write(["light"], max_tokens=8)
