"""Beliefs, supports and rollouts of a policy through vLLM, against the same weights on Hugging Face."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("vllm", reason="needs vLLM in an environment of its own: make test-vllm")

from tiny_model import OPTIONS

from tasks.contracts.errors import InputError
from tasks.edit.belief import beliefs
from tasks.edit.grounding import supports
from tasks.edit.policy import Policy
from tasks.edit.rollout import Sample
from tasks.edit.served import Served


class Asking:
    """Prompts of the audit's three kinds."""

    def grade(self, sample, masked="none"):
        scheme = "[MASK]" if masked == "scheme" else sample.scheme
        answer = "[MASK]" if masked == "answer" else sample.answer
        return f"{sample.question}\n{scheme}\n{answer}\n"


TEXTS = (
    "P1 is met: the answer names energy.\nP2 is not met.\nSo 1 mark.\nFinal mark: 1",
    "The answer names light. It names no water.\nFinal mark: 0",
    "",
    "要点一：提到光。要点二没有提到。",
)


def cases(top):
    """Rollouts of answers on a scale 0…top."""
    return [
        (Sample(f"r{at}", "i", "Why light?", "P1: energy\nP2: water", f"Light is energy, {at}.", top), text)
        for at, text in enumerate(TEXTS)
    ]


@pytest.fixture(scope="module")
def policy(folder):
    return Policy.load(folder / "tiny")


@pytest.fixture(scope="module")
def served(folder):
    return Served(folder / "tiny", OPTIONS)


@pytest.mark.parametrize("top", [4, 12])
def test_beliefs_are_those_of_hugging_face(policy, served, top):
    ours, theirs = beliefs(policy, Asking(), cases(top)), served.beliefs(Asking(), cases(top))
    assert [one.shape for one in theirs] == [one.shape for one in ours]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(np.log(other), np.log(one), atol=1e-3)
    assert np.ptp(ours[0], axis=0).max() > 0.05  # the steps move the belief, or the comparison says nothing


def test_supports_are_those_of_hugging_face(policy, served):
    for one, other in zip(supports(policy, Asking(), cases(4)), served.supports(Asking(), cases(4)), strict=True):
        np.testing.assert_allclose(np.array(other), np.array(one), atol=2e-3)


def test_greedy_rollouts_are_those_of_hugging_face_and_seeds_reproduce(policy, served):
    prompts, begun = ["Mark this.", "And this, please."], ["", "P1 is"]
    greedy = {"begun": begun, "max_tokens": 24}
    assert served.write(prompts, **greedy) == policy.write(prompts, **greedy)
    drawn = {"temperature": 1.0, "max_tokens": 24}
    assert served.write(prompts * 2, seed=3, **drawn) == served.write(prompts * 2, seed=3, **drawn)
    first, _, again, _ = served.write(prompts * 2, seed=3, **drawn)
    assert first != again
    assert served.write(prompts, seed=4, **drawn)[0] != first


def test_a_rollout_that_does_not_fit_is_named(served):
    long = Sample("r9", "i", "Why?", "P1: energy", "light " * 20_000, 4)
    with pytest.raises(InputError, match=r"response 'r9': .* tokens"):
        served.beliefs(Asking(), [(long, "")])
