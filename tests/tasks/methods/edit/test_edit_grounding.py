"""The grounding audit: packed as plain, as brute force, and the positions taken out of the prefix support."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_readings import supports_plain
from small_policies import Asking, cases, policy, sample

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.methods.edit.belief import residual, supports
from rubricflow.tasks.methods.edit.rollout import cut
from rubricflow.tasks.methods.edit.tree import Tree


class AnswerFirst(Asking):
    """Another order of the parts: then the prompts share less."""

    def grade(self, sample, masked="none"):
        return "\n".join(reversed(super().grade(sample, masked).splitlines())) + "\n"


@pytest.mark.parametrize(
    ("kind", "split", "prompts"),
    [("llama", "digits", AnswerFirst()), ("qwen3", "digits", Asking()), ("gpt2", "words", Asking())],
)
def test_packed_is_plain(kind, split, prompts):
    grader = policy(kind, split, chat=kind == "qwen3")
    found = supports(grader, prompts, cases(4))
    assert [one.scheme.shape for one in found] == [(len(cut(text)),) for _, text in cases(4)]
    for one, other in zip(found, supports_plain(grader, prompts, cases(4)), strict=True):
        np.testing.assert_allclose(np.array(one), np.array(other), atol=1e-3)
    assert min(np.ptp(values) for values in found[0]) > 0.2


def test_what_the_prompts_share_is_read_once(monkeypatch):
    """Question and scheme once for the full prompt and the one without an answer."""
    grader, case = policy("llama", "digits"), cases(4)[0]
    seen = []
    monkeypatch.setattr(
        "rubricflow.tasks.methods.edit.belief.score",
        lambda model, trees: seen.extend(trees) or [np.zeros(len(tree.nodes)) for tree in trees],
    )
    supports(grader, Asking(), [case])
    (tree,) = seen
    assert isinstance(tree, Tree)
    read = sum(len(node.ids) for node in tree.nodes if not node.scored)
    prompts = [grader.prompt_ids(Asking().grade(case[0], masked)) for masked in ("none", "scheme", "answer")]
    assert len(prompts[0]) < read < sum(map(len, prompts)) - len(grader.ids(case[0].scheme))


def test_a_rollout_that_does_not_fit_is_named():
    with pytest.raises(InputError, match="response 'r5'"):
        supports(policy("gpt2", "words", positions=64), Asking(), [(sample(4, 5), "P1 is met. " * 30)])


@given(st.lists(st.lists(st.floats(-20, 20), max_size=23), max_size=9))
def test_residuals_are_without_the_mean_of_their_tenth(prefixes):
    tenths = defaultdict(list)
    for values in prefixes:
        for k, value in enumerate(values, 1):
            tenths[math.ceil(10 * k / len(values))].append(value)
    found = residual([np.array(values) for values in prefixes])
    assert [len(values) for values in found] == list(map(len, prefixes))
    for values, without in zip(prefixes, found, strict=True):
        for k, (value, left) in enumerate(zip(values, without, strict=True), 1):
            assert left == pytest.approx(value - np.mean(tenths[math.ceil(10 * k / len(values))]), abs=1e-9)
