"""A rollout without a mark is closed behind its last whole step, one with a mark is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rubricflow.tasks.methods.edit.belief import LONGEST, ClosedReply, closed, up_to_scaffold
from rubricflow.tasks.methods.edit.policy import Prompts
from rubricflow.tasks.methods.edit.revise import Candidate, FailedRollout, Reviser, Revising
from rubricflow.tasks.methods.edit.rollout import Sample, read_mark, states_mark

LINES = st.lists(
    st.sampled_from(
        [
            "P1 is met.",
            "The answer says “light”: P2 is met",
            "Final mark:",
            "Final mark: N",
            "final mark is two",
            "",
            "=====END 5f1c=====",
            "要点一：提到光。要点二没有。",
            "\r",
            '"Final mark: 2"',
        ]
    )
    | st.text(max_size=20),
    max_size=6,
)
WRITTEN = LINES.map("\n".join).filter(lambda text: not states_mark(text))


class Scripted:
    """Says the same to all, and keeps what it was asked."""

    def __init__(self, says: str) -> None:
        self.says, self.asked = says, list[dict[str, Any]]()

    def __call__(self, prompts: Sequence[str], **more: Any) -> list[str]:
        self.asked.append({"prompts": list(prompts), **more})
        return [self.says] * len(prompts)


@given(
    WRITTEN, st.sampled_from(["", "P1 is met.\n", "P1 is"]), st.sampled_from([" 2", "2", " 2\nNext question", "**2**"])
)
@example("", "", " 2")
def test_whatever_was_written_a_closed_reply_states_the_mark_said(reply: str, begun: str, said: str) -> None:
    ((text, is_closed),) = closed(Scripted(said), ["grade it"], [reply], [begun])
    assert is_closed
    assert read_mark(begun + text, 3).mark == 2
    kept = text.rpartition("Final mark:")[0]
    assert reply.startswith(kept) or reply == kept.removesuffix("\n")


@given(st.sampled_from(["Final mark: 2", "P1.\nFinal mark: 9", "Final mark: 1\nand more"]), st.text(max_size=9))
def test_a_reply_with_a_mark_is_not_asked_about(reply: str, begun: str) -> None:
    write = Scripted(" 0")
    assert closed(write, ["p"], [reply], [begun]) == [ClosedReply(reply, False)]
    assert not write.asked


def test_only_those_without_a_mark_are_asked_greedily_and_shortly() -> None:
    write = Scripted(" 1\nQuestion:")
    replies = ["P1 is met.\nP2 is no", "Met.\nFinal mark: 2", "Not met."]
    texts = [reply.text for reply in closed(write, ["a", "b", "c"], replies)]
    assert texts == ["P1 is met.\nFinal mark: 1", "Met.\nFinal mark: 2", "Not met.\nFinal mark: 1"]
    begun = ["P1 is met.\nFinal mark:", "Not met.\nFinal mark:"]
    assert write.asked == [{"prompts": ["a", "c"], "begun": begun, "max_tokens": LONGEST}]


@pytest.mark.parametrize("said", ["", "N", " that depends", "\n2"])
def test_a_policy_that_says_no_number_leaves_no_mark(said: str) -> None:
    ((text, is_closed),) = closed(Scripted(said), ["p"], ["P1 is met."])
    assert is_closed
    assert read_mark(text, 3).reason == "no_mark"


def test_a_step_that_was_broken_off_is_left_out() -> None:
    assert (
        up_to_scaffold("", 'The answer says "x": P1 is met.\nThe ans') == 'The answer says "x": P1 is met.\nFinal mark:'
    )
    assert up_to_scaffold("", "One line alone that was broken") == "One line alone that was broken\nFinal mark:"
    assert up_to_scaffold("P1 is met.\n", "Fin") == "Fin\nFinal mark:"


def test_a_revision_is_kept_where_its_closed_continuation_comes_to_the_gold_mark() -> None:
    sample = Sample(
        "r", "q", "Why?", "P1: names light (1 mark)\nP2: names water (1 mark)", "Light and water.", 2, gold=2
    )
    attempt = FailedRollout(sample, 0, "P1 is met.\nWater is missing: P2 is not met.\nFinal mark: 1")

    def write(prompts: Sequence[str], begun: Sequence[str] | None = None, max_tokens: int = 0, **_: Any) -> list[str]:
        if begun is None:
            return ["The answer speaks of water, so P2 is met."] * len(prompts)
        return [" 2" if max_tokens == LONGEST else "So both are met."] * len(prompts)

    plan = Revising(continuations=1)
    (made,) = Reviser(Prompts(), write, plan, 50, 0).revise([attempt], [[Candidate(1)]], with_checklist=False)
    assert made.repaired == "P1 is met.\nThe answer speaks of water, so P2 is met.\nSo both are met.\nFinal mark: 2"
