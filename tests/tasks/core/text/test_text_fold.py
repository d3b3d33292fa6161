"""Folding: what reads alike folds alike, with the way back to the stored characters."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.text.fold import Folded, fold

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


HIDDEN = "\u00ad\u200b\u200c\u200d\u2060\ufeff\u200e\u202e\u180e\u034f\ufe0f\x00\x08\x7f\u2063\U000e0041"
DIVIDERS = ["\u00ad\n", "-\n", "-\r\n", "\u2010 \n\t", "\u00ad\u200b ", "\u00ad"]
WIDE = str.maketrans({chr(code): chr(code + 0xFEE0) for code in range(0x21, 0x7F)})
BOLD = str.maketrans({chr(ord("a") + i): chr(0x1D41A + i) for i in range(26)})


@given(TEXTS)
def test_fold_of_plain_characters_is_nfc_casefold_and_single_spaces(text: str) -> None:
    seen = "".join(c for c in text if unicodedata.normalize("NFKC", c) == c and not is_hidden(c)).replace("-", "")
    wanted = " ".join("".join(c.casefold() for c in word) for word in unicodedata.normalize("NFC", seen).split())
    assert fold(seen).text == wanted


def is_hidden(c: str) -> bool:
    # Marks of Arabic and Kaithi numbers are format characters that are seen; blanks of Hangul and Khmer are letters.
    return (unicodedata.category(c) in ("Cf", "Cc", "Cn") and not c.isspace()) or c in "\u115f\u1160\u17b4\u17b5\u034f"


@given(TEXTS, st.lists(st.tuples(st.integers(0, 200), st.sampled_from(HIDDEN)), min_size=1, max_size=4))
def test_what_is_not_seen_changes_nothing(text: str, hidden: list[tuple[int, str]]) -> None:
    text = text.replace("\u00ad", "").replace("-", "")
    riddled = text
    for at, c in hidden:
        at %= len(riddled) + 1
        # A soft hyphen before a blank divides a word.
        riddled = riddled[:at] + ("\u200b" if c == "\u00ad" else c) + riddled[at:]
    assert fold(riddled).text == fold(text).text


@given(
    st.from_regex(r"[a-zé]{2,6}", fullmatch=True),
    st.sampled_from(DIVIDERS),
    st.from_regex(r"[a-zб]{2,6}", fullmatch=True),
)
def test_a_word_divided_at_the_end_of_a_line_is_one(first: str, divider: str, second: str) -> None:
    assert fold(f"a {first}{divider}{second} b").text == f"a {first}{second} b"
    assert fold(f"{first}{divider}{second.upper()}").text != first + second or divider == "\u00ad"


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=12).filter(lambda text: "-" not in text))
def test_wide_and_bold_letters_are_letters(text: str) -> None:
    assert fold(text.translate(WIDE)).text == fold(text.lower().translate(BOLD)).text == fold(text).text


@given(
    st.text("0123456789", min_size=1, max_size=3),
    st.text("⁰¹²³⁴⁵⁶⁷⁸⁹", min_size=1, max_size=3),
    st.sampled_from(["", "x", "m", ")"]),
)
def test_what_is_raised_is_never_on_the_line(base: str, power: str, before: str) -> None:
    digits = unicodedata.normalize("NFKC", power)
    for stem in (base, before + base, before or base):
        assert fold(stem + power).text == f"{fold(stem).text}^{digits}"


@given(TEXTS)
def test_each_folded_character_comes_from_its_span(text: str) -> None:
    folded = fold(text)
    assert len(folded.text) == len(folded.start) == len(folded.end)
    for c, start, end in zip(folded.text, folded.start, folded.end, strict=True):
        assert 0 <= start < end <= len(text)
        assert fold(text[start:end]).text == "" if c == " " else c in fold(text[start:end]).text
    assert list(folded.start) == sorted(folded.start)
    assert list(folded.end) == sorted(folded.end)


@given(TEXTS)
def test_fold_does_not_see_composition_or_kinds_of_space(text: str) -> None:
    spaced = text.replace(" ", "\u2003\n")
    for form in ("NFC", "NFD"):
        assert fold(unicodedata.normalize(form, spaced)).text == fold(text).text


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
        ("in\u00ad\ncor", "incor", [0, 1, 4, 5, 6], [1, 2, 5, 6, 7]),
        ("\u200bCO₂ \u200b ﬁ", "co2 fi", [1, 2, 3, 4, 7, 7], [2, 3, 4, 7, 8, 8]),
        ("5²", "5^2", [0, 1, 1], [1, 2, 2]),
    ],
)
def test_examples(text: str, folded: str, start: list[int], end: list[int]) -> None:
    found = fold(text)
    assert (found.text, list(found.start), list(found.end)) == (folded, start, end)
