"""The belief probe: packed as plain, marks of several digits, and its arithmetic."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from plain_readings import beliefs_plain
from small_policies import REASONING, Asking, cases, policy, sample

from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.methods.edit import belief
from rubricflow.tasks.methods.edit.belief import beliefs, change, error, expected, pieces
from rubricflow.tasks.methods.edit.policy import Policy
from rubricflow.tasks.methods.edit.rollout import cut

KINDS = [("llama", "digits"), ("qwen3", "digits"), ("gpt2", "words")]


def close(found, wanted, atol=2e-4):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.log(one), np.log(other), atol=atol)


@pytest.mark.parametrize(("kind", "split"), KINDS)
@pytest.mark.parametrize("top", [4, 12])
def test_packed_is_plain(kind, split, top):
    grader = policy(kind, split, chat=kind == "qwen3")
    found = beliefs(grader, Asking(), cases(top))
    assert [one.shape for one in found] == [(len(cut(text)) + 1, top + 1) for text in REASONING]
    close(found, beliefs_plain(grader, Asking(), cases(top)))
    np.testing.assert_allclose(np.concatenate(found).sum(axis=1), 1)
    assert np.abs(np.diff(np.log(found[0]), axis=0)).max() > 0.2  # the steps move the belief


def test_packed_is_plain_with_marks_up_to_100():
    grader, case = policy("llama", "digits"), (sample(100), "P1 is met.\nFinal mark: 100")
    close(beliefs(grader, Asking(), [case]), beliefs_plain(grader, Asking(), [case]))


def test_marks_of_one_token_are_equation_1():
    grader = policy("gpt2", "words")
    ids = grader.prompt_ids(Asking().grade(sample(12))) + grader.ids("Final mark:")
    with torch.no_grad():
        logits = grader.model(torch.tensor([ids])).logits[0, -1]
    marks = [grader.ids(f" {mark}") for mark in range(13)]
    assert all(len(one) == 1 for one in marks)
    wanted = logits[[one[0] for one in marks]].double().softmax(0).numpy()
    close([beliefs(grader, Asking(), [(sample(12), "")])[0][0]], [wanted])


class Rigged(torch.nn.Module):
    """Says by the last token alone what comes next: after the scaffold nearly always 1, after that nearly always 2."""

    def __init__(self, tokenizer):
        super().__init__()
        self.table = torch.nn.Embedding(len(tokenizer), len(tokenizer))
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.config = SimpleNamespace(_attn_implementation="sdpa", name_or_path="rigged")
        one, two = tokenizer.convert_tokens_to_ids(["1", "2"])
        with torch.no_grad():
            self.table.weight.zero_()
            self.table.weight[:, one] = 9.0
            self.table.weight[one, two] = 18.0

    def forward(self, input_ids, position_ids=None, attention_mask=None, use_cache=None):
        return SimpleNamespace(last_hidden_state=torch.nn.functional.one_hot(input_ids, self.table.num_embeddings))

    def get_decoder(self):
        return self

    def get_output_embeddings(self):
        def head(states):
            return states.float() @ self.table.weight

        head.weight = self.table.weight
        return head


def test_1_does_not_stand_for_12():
    words = policy("llama", "digits").tokenizer
    (p,) = beliefs(Policy(Rigged(words), words, "rigged"), Asking(), [(sample(12), "")])
    assert p[0].argmax() == 12
    assert p[0, 12] > 0.9 > 0.05 > p[0, 1]


def test_500_steps_are_read_whole():
    grader = policy("gpt2", "words")
    case = (sample(12), "\n".join(f"P{at}." for at in range(500)))
    (whole,) = beliefs(grader, Asking(), [case])
    assert whole.shape == (501, 13)
    begun = (case[0], "\n".join(case[1].split("\n")[:4]) + "\n")
    close([whole[:5]], beliefs_plain(grader, Asking(), [begun]))


def test_a_rollout_read_in_several_trees_is_the_same(monkeypatch):
    grader, several = policy("llama", "digits"), cases(100)
    whole = beliefs(grader, Asking(), several)
    monkeypatch.setattr(belief, "_BRANCHES", 1)
    assert len(belief._probes(grader, Asking(), partial(belief.mark_lines, grader), *several[0])) > 1
    close(beliefs(grader, Asking(), several), whole)


def test_a_rollout_that_does_not_fit_is_named():
    grader = policy("llama", "digits", positions=100)
    with pytest.raises(InputError, match="response 'r5'"):
        beliefs(grader, Asking(), [(sample(4, 5, "light " * 50), "")])


def test_a_tokenizer_without_digits_is_refused():
    grader = policy("llama", "digits")

    class Blind:
        eos_token_id, unk_token_id, chat_template, all_special_ids, all_special_tokens = 0, None, None, [], []

        def get_vocab(self):
            return {}

        get_added_vocab = get_vocab

        def __call__(self, text, add_special_tokens=True):
            return {"input_ids": [5] * len(text.split(":")[0])}

    with pytest.raises(BackendError, match="does not tell the marks 0 to 4 apart"):
        beliefs(Policy(grader.model, Blind(), "blind"), Asking(), [(sample(4), "")])


@given(st.lists(st.sampled_from(["P1.", " ", "\n", "\n\n", "水。", "No! ", "\t"]), max_size=12).map("".join))
def test_pieces_are_the_reasoning_as_written(text):
    steps, found = cut(text), pieces(text)
    assert [piece.strip() for piece in found] == [text[step.start : step.end] for step in steps]
    assert text.startswith("".join(found))
    assert not text[len("".join(found)) :].strip()


beliefs_of = st.integers(1, 12).flatmap(
    lambda top: st.tuples(st.lists(st.floats(0.01, 1), min_size=top + 1, max_size=top + 1), st.integers(0, top))
)


@given(beliefs_of)
def test_expected_and_error_are_sums_over_the_marks(drawn):
    weights, gold = drawn
    p = np.array(weights) / sum(weights)
    assert expected(p) == pytest.approx(sum(mark * share for mark, share in enumerate(p)))
    assert error(p, gold) == pytest.approx(sum(abs(mark - gold) * share for mark, share in enumerate(p)))
    assert abs(expected(p) - gold) <= error(p, gold) + 1e-12  # Jensen
    sure = np.eye(len(p))[gold]
    assert error(sure, gold) == 0
    assert expected(sure) == gold


def test_a_step_towards_the_gold_mark_is_positive():
    p = np.array([[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]])
    np.testing.assert_allclose(change(error(p, 1)), [0.5, -1])
    assert change(error(p[:1], 1)).shape == (0,)
