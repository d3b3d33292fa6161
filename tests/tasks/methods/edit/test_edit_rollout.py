"""Steps and marks of rollouts, as language models write them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.methods.edit.rollout import Stated, cut, read_mark, up_to_mark, without_mark

LINES = st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=("Cs",)), max_size=30), max_size=6)


def texts(text: str) -> list[str]:
    return [text[step.start : step.end] for step in cut(text)]


@pytest.mark.parametrize(
    "line",
    [
        "Final mark: 3",
        "**Final mark:** 3",
        "**Final mark: 3**",
        "### Final mark: 3",
        "- Final mark: 3",
        "final mark：3",
        "Final mark: 3/4",
        "Final mark: 3 (out of 4)",
        "Final mark: 3 marks.",
    ],
)
def test_a_mark_is_read_however_it_is_dressed(line: str) -> None:
    assert read_mark(f"P1 is met.\n{line}", 4) == Stated(3, None)
    assert texts(f"P1 is met.\n{line}") == ["P1 is met."]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_mark"),
        ("The mark is 3", "no_mark"),
        ("Final mark: three", "no_mark"),
        ("Final mark: 1 2", "no_mark"),
        ("Final mark: ٣", "no_mark"),
        ("Final mark: " + "9" * 9000, "no_mark"),
        ("Final mark: 5", "off_scale"),
        ("Final mark: -1", "off_scale"),
        ("Final mark: 2.5", "off_scale"),
        ("Final mark: 3\nFinal mark: 5", "off_scale"),
    ],
)
def test_no_mark_is_a_reason_and_never_a_zero(text: str, reason: str) -> None:
    assert read_mark(text, 4) == Stated(None, reason)


def test_marks_of_two_digits_are_read_whole() -> None:
    assert [read_mark(f"Final mark: {mark}", 26).mark for mark in (1, 12, 26)] == [1, 12, 26]


def test_steps_are_lines_or_the_sentences_of_a_single_line() -> None:
    assert texts("P1 met. Quote found.\n\nP2 not.\nFinal mark: 1\nHope this helps.") == [
        "P1 met. Quote found.",
        "P2 not.",
    ]
    assert texts("P1 met. P2 not! So one.\nFinal mark: 1") == ["P1 met.", "P2 not!", "So one."]
    assert texts("要点一满足。要点二没有。\nFinal mark: 1") == ["要点一满足。", "要点二没有。"]
    assert texts("  \n \nFinal mark: 0") == []
    assert len(cut("\n".join(f"step {n}" for n in range(500)))) == 500


@given(LINES)
def test_steps_hold_all_that_is_not_white_space(lines: list[str]) -> None:
    text = "\n".join(line for line in lines if "mark" not in line.casefold())
    steps = cut(text)
    assert "".join("".join(texts(text)).split()) == "".join(text.split())
    assert all(a.end <= b.start for a, b in itertools.pairwise(steps))


def test_what_follows_the_mark_is_left_out() -> None:
    assert up_to_mark("a\nFinal mark: 2\nHope this helps", 3) == "a\nFinal mark: 2"
    assert up_to_mark("a\nb", 3) == "a\nb"


def test_a_mark_that_was_broken_off_is_none() -> None:
    assert without_mark("a\nFinal mark: 1") == "a\n"
    assert without_mark("a\nFinal mark: 1\nand") == "a\nFinal mark: 1\nand"
    assert without_mark("a") == "a"
