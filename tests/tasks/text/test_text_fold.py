"""Folding: NFC, case and white space, with the way back to the stored characters."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.text.fold import Folded, fold

PIECES = [
    " ",
    "\r\n",
    "\t",
    "\u00a0",
    "e\u0301",
    "é",
    "É",
    "ß",
    "ẞ",
    "ﬁ",
    "İ",
    "\u0301",
    "\u0323\u0307",
    "\u1112\u1161\u11ab",
]
PIECES += ["한", "\u09c7\u09be", "\u0b47\u0b3e", "\u30ab\u3099", "שָׁלוֹם", "Σς", "a", "Ab", "\U0001f600", "\x00"]
TEXTS = st.lists(
    st.sampled_from(PIECES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=20
).map("".join)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_fold_is_nfc_casefold_and_single_spaces(text: str) -> None:
    wanted = " ".join("".join(c.casefold() for c in word) for word in unicodedata.normalize("NFC", text).split())
    assert fold(text).text == wanted


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_fold_does_not_see_composition_or_kinds_of_space(text: str) -> None:
    spaced = text.replace(" ", "\u2003\n")
    for form in ("NFC", "NFD"):
        assert fold(unicodedata.normalize(form, spaced)).text == fold(text).text


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_each_folded_character_comes_from_its_span(text: str) -> None:
    folded = fold(text)
    assert len(folded.text) == len(folded.start) == len(folded.end)
    for c, start, end in zip(folded.text, folded.start, folded.end, strict=True):
        assert 0 <= start < end <= len(text)
        assert text[start:end].isspace() if c == " " else c in fold(text[start:end]).text
    assert list(folded.start) == sorted(folded.start)
    assert list(folded.end) == sorted(folded.end)


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.data())
def test_the_span_of_a_piece_between_words_folds_to_the_piece(text: str, data: st.DataObject) -> None:
    folded = fold(text)
    words = [0, *(i + 1 for i, c in enumerate(folded.text) if c == " ")]
    ends = [*(i for i, c in enumerate(folded.text) if c == " "), len(folded.text)]
    if not folded.text:
        return
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    at, to = words[first], ends[last]
    assert fold(text[folded.start[at] : folded.end[to - 1]]).text == folded.text[at:to]


@settings(max_examples=300, deadline=None)
@given(TEXTS | st.text(st.characters(max_codepoint=0x2FF), max_size=30), st.data())
def test_a_span_is_that_of_its_first_and_last_character(text: str, data: st.DataObject) -> None:
    folded = Folded(text)
    if not folded.text:
        return
    low = data.draw(st.integers(0, len(folded.text) - 1))
    high = data.draw(st.integers(low + 1, len(folded.text)))
    assert folded.span(low, high) == (folded.start[low], folded.end[high - 1])


@pytest.mark.parametrize(
    ("text", "folded", "start", "end"),
    [
        ("A b", "a b", [0, 1, 2], [1, 2, 3]),
        ("  A \r\n b ", "a b", [2, 3, 7], [3, 7, 8]),
        ("Straße", "strasse", [0, 1, 2, 3, 4, 4, 5], [1, 2, 3, 4, 5, 5, 6]),
        ("Cafe\u0301!", "café!", [0, 1, 2, 3, 5], [1, 2, 3, 5, 6]),
        ("", "", [], []),
    ],
)
def test_examples(text: str, folded: str, start: list[int], end: list[int]) -> None:
    found = fold(text)
    assert (found.text, list(found.start), list(found.end)) == (folded, start, end)
