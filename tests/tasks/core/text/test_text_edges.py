"""Edges: no word and no number is cut, and what counts is made of whole ones."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.text.tokens import counts, figures, is_edge, is_seam, is_single_word

NUMBERS = "−5 °c|-5|+3|50 kg|50kg|9.5 %|99.5%|$1,000|€ 5|2/3|12:30|10^3|10³|3-5|>20|1.5e5|2.75|0,5|18 m/s"
NUMBERS += "|pH7.4|Rs1,500|v2.75|12 500 km|1 234 567|1 2/3|1.5e-5|10^-3|< 20|₹500|5 percent"
WORDS = "h2o|can't|doesn’t|non-toxic|sugar-free|isn't|n'est|plant's|x^2|not_valid"
WHOLE = [*NUMBERS.split("|"), *WORDS.split("|")]
APART = ["plant", "über", "naïve", "straße", "растёт", "food", "(gas)", "water,", "rises.", "“heat”"]


@settings(max_examples=100)
@given(st.sampled_from(WHOLE), st.sampled_from(APART), st.sampled_from(APART), st.data())
def test_a_word_or_number_is_cut_nowhere(whole: str, before: str, after: str, data: st.DataObject) -> None:
    text = f"{before} {whole} {after}"
    start, end = len(before) + 1, len(before) + 1 + len(whole)
    assert is_edge(text, start)
    assert is_edge(text, end)
    assert not is_edge(text, data.draw(st.integers(start + 1, end - 1)))


@given(st.lists(st.sampled_from(APART), min_size=2, max_size=6))
def test_words_may_be_parted_at_every_blank(words: list[str]) -> None:
    text = " ".join(words)
    assert all(is_edge(text, at) for at, c in enumerate(text) if c == " ")
    inside = [at for at, (one, other) in enumerate(pairwise(text), 1) if one.isalpha() and other.isalpha()]
    assert not any(is_edge(text, at) for at in inside)


@pytest.mark.parametrize("text", ["光合作用が必要", "การสังเคราะห์แสง", "ស្លឹក"])
def test_scripts_without_blanks_may_be_parted_between_characters(text: str) -> None:
    marks = {at for at, c in enumerate(text) if unicodedata.category(c)[0] == "M"}
    assert all(is_edge(text, at) for at in range(len(text)) if at not in marks)
    assert not any(is_edge(text, at) for at in marks)


@pytest.mark.parametrize(
    ("text", "seams"),
    [
        ("membraneActive", [8]),
        ("CELLrRNA", [4]),
        ("ribosome3. Then", [8]),
        ("at home2) go", [7]),
        ("mRNA NaCl pH McDonald H2O vitamin12 x2.", []),
        ("growth3.5", []),
    ],
)
def test_a_seam_is_where_a_line_break_was_lost(text: str, seams: list[int]) -> None:
    assert [at for at in range(len(text)) if is_seam(text, at)] == seams


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("it is -5 or −5 or 5", ["-5", "-5", "5"]),
        ("from 3-5 and 3–5", ["3-5", "3-5"]),
        ("covid-19 and 1,000.5", ["19", "1,000.5"]),
        ("none", []),
    ],
)
def test_figures_keep_sign_and_decimals(text: str, numbers: list[str]) -> None:
    assert figures(text) == numbers


@pytest.mark.parametrize(
    ("fragment", "long_enough"),
    [
        ("it is", True),
        ("light", True),
        ("ärger", True),
        ("at 10", True),
        ("acid", False),
        ("", False),
        ("- !", False),
        ("99.5 %", False),
        ("12345", False),
        ("don't", False),
        ("50 kg", False),
        ("光合作用", True),
        ("光合、作", True),
        ("光合", False),
        ("ひかり", True),
        ("光a合b", False),
        ("빛을", False),
    ],
)
def test_what_counts(fragment: str, long_enough: bool) -> None:
    assert counts(fragment) is long_enough
    assert counts(unicodedata.normalize("NFD", fragment)) is long_enough


@given(st.lists(st.sampled_from(["it", "is", "café", "light", "9.5", "50 kg", "-3", "no"]), max_size=4))
def test_two_words_count_and_a_long_one(words: list[str]) -> None:
    fragment = ", ".join(words)
    assert counts(fragment) is (len(words) > 1 or words == ["light"])
    assert is_single_word(fragment) is (len(words) == 1)


@pytest.mark.parametrize("text", ["a" * 100_000, "5." * 50_000, "-'" * 50_000, "9 " * 50_000])
def test_an_edge_is_looked_for_nearby(text: str) -> None:
    for at in range(0, len(text), 997):
        is_edge(text, at)


def test_a_prefix_with_a_hyphen_is_not_cut_off_at_a_blank() -> None:
    assert not is_edge("it is un- likely", len("it is un- "))
    assert is_edge("the plant- it grows", len("the plant- "))
