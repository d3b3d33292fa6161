"""Quotes: what is in the text is found, what is found is in the text, and nothing comes from outside the region."""

from __future__ import annotations

import random
import re
import unicodedata

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.text.fold import fold, folded
from rubricflow.tasks.core.text.quotes import MAX_GAP, Span, find, find_folded, fragments, is_whole, unquoted
from rubricflow.tasks.core.text.tokens import tokens
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.evidence import Subject, ground
from tests.attacks.quote_kinds import FORGED, HONEST

CRITERION = Criterion(id="C", trait="t", text="c", levels=("absent", "present"))
WORDS = st.sampled_from(
    ["the", "Plant", "uses", "ÉNERGIE", "café", "Straße", "light", "über", "光合作用", "a", "x2", "don't", "100%"]
)
SPACES = st.sampled_from([" ", "  ", "\n", "\r\n", "\t", "\u00a0", ", ", ". "])
TEXT = "The plant uses light energy. It makes sugar from water,\nand it gives off oxygen (a gas)."


@st.composite
def quoted(draw: st.DrawFn) -> tuple[str, str]:
    """A text, and a run of its words with other case, spaces and composition."""
    words = draw(st.lists(WORDS, min_size=2, max_size=12))
    text = "".join(word + draw(SPACES) for word in words)
    stored = text.split()
    first = draw(st.integers(0, len(stored) - 1))
    piece = stored[first : draw(st.integers(first + 1, len(stored)))]
    case = draw(st.sampled_from([str, str.upper, str.lower, str.title]))
    form = draw(st.sampled_from(["NFC", "NFD"]))
    quote = draw(st.sampled_from([" ", "  ", "\n", "\u00a0"])).join(case(word) for word in piece)
    marks = draw(st.sampled_from(["", '"', " «"]))
    return unicodedata.normalize(draw(st.sampled_from(["NFC", "NFD"])), text), marks + unicodedata.normalize(
        form, quote
    ) + marks


@settings(max_examples=100)
@given(quoted())
def test_any_words_of_the_text_are_found_whatever_their_case_and_form(pair: tuple[str, str]) -> None:
    text, quote = pair
    assume(letters_only(quote))
    span = find(quote, text)
    assert span is not None
    assert letters_only(quote) == letters_only(text[span.start : span.end])


@settings(max_examples=100)
@given(st.text("abé .…'-", max_size=25), st.text("abé .…'-\n", max_size=40))
def test_what_is_found_is_there_letter_by_letter(quote: str, text: str) -> None:
    match = find_folded(folded(unquoted(quote)), fold(text))
    if match is None:
        return
    said = fragments(folded(unquoted(quote)))
    pieces = [text[span.start : span.end] for span in match.pieces]
    assert all(0 <= span.start < span.end <= len(text) for span in match.pieces)
    assert [*map(letters_only, pieces)] == ([letters_only(quote)] if len(pieces) == 1 else [*map(letters_only, said)])


def letters_only(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFC", text).casefold() if c.isalnum())


ENGLISH = (
    "Photosynthesis is what the plant's leaves do with sunlight: they take in carbon dioxide and water, and they don't "
    "need soil for it. The well-known result is sugar, which feeds the whole plant overnight. Oxygen leaves through "
    "small openings that close in the heat, because the plant would otherwise dry out.",
    "First we weighed the sample and then we heated it slowly, which changed its colour. The second sample wasn't "
    "heated at all, so it stayed grey. I think a long-term study should repeat this with more samples, because our "
    "balance was old and the room was cold that morning. Everybody agreed about the colour afterwards.",
    "Salt water pulls fresh water through the half-open wall, and water goes on until both sides are well-balanced. "
    "A long-lasting drought makes water salty, so water-loving plants wilt although water stands around their roots.",
)
PORTUGUESE = (
    "A cidade cresce sem plano e as pessoas mais pobres moram longe do trabalho. Portanto, o governo deveria investir "
    "em transporte público, pois o tempo perdido todos os dias prejudica a saúde e a educação das famílias. Além "
    "disso, as escolas precisam de bibliotecas abertas à noite, e a imprensa deve acompanhar as promessas feitas.",
)
CORPUS = (*ENGLISH, *PORTUGUESE)


@pytest.mark.parametrize("name", [*HONEST, *FORGED])
def test_every_kind_of_quote_gets_its_verdict(name: str) -> None:
    kind, must_hold = (HONEST | FORGED)[name], name in HONEST
    rng = random.Random(name)
    languages = (ENGLISH, PORTUGUESE)
    pairs = [kind(rng, " ".join(rng.sample(of, rng.randint(1, len(of))))) for of in languages for _ in range(70)]
    wrong = [pair for pair in pairs if pair and stands(pair[1], pair[0]) is not must_hold]
    assert sum(pair is not None for pair in pairs) >= 5
    # What is split or joined at random may be a word, which a slip never makes: pas s, salt water.
    assert len(wrong) <= (4 if name in ("split_word", "split_in_text", "joined_words") else 0), wrong[:3]


def stands(quote: str, text: str) -> bool:
    return ground(quote, None, CRITERION, Subject(text, units(text))).status == "verified"


@settings(max_examples=40)
@given(st.sampled_from(CORPUS), st.data())
def test_a_quote_begins_and_ends_where_words_do(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 2))
    end = data.draw(st.integers(start + 1, min(len(text), start + 60)))
    cuts = any(0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum() for at in (start, end))
    quote = text[start:end]
    if not cuts or unquoted(quote) != quote or is_at_edges(quote, text):
        return
    assert find(quote, text) is None


def is_at_edges(quote: str, text: str) -> bool:
    """Whether the quote stands in the text as whole words after all, blanks apart."""
    pattern = r"[\s'’-]*".join(re.escape(c) for c in letters_only(quote))
    return re.search(rf"(?<![^\W_])\W*{pattern}\W*(?![^\W_])", text.casefold()) is not None


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("plant uses light", "plant uses light"),
        ("“PLANT  uses\nlight”", "plant uses light"),
        ('\n"plant uses light"\n', "plant uses light"),
        ("the plant … makes sugar", "The plant uses light energy. It makes sugar"),
        ("the plant ... makes sugar", "The plant uses light energy. It makes sugar"),
        ("the plant [...] makes sugar", "The plant uses light energy. It makes sugar"),
        ("the plant (...) makes sugar", "The plant uses light energy. It makes sugar"),
        ("the plant . . . makes sugar", "The plant uses light energy. It makes sugar"),
        ("...makes sugar from...", "makes sugar from"),
        ("the plant ... it ... gives off", "The plant uses light energy. It makes sugar from water,\nand it gives off"),
        ("water, and it gives", "water,\nand it gives"),
        ("Water and it gives", "water,\nand it gives"),
        ("makes sug ar from", "makes sugar from"),
        ("makessugar from", "makes sugar from"),
        ("gives off oxygen a gas.", "gives off oxygen (a gas"),
        ("akes sugar", None),
        ("makes suga", None),
        ("the plant … 99 … light", None),
        ("the plant … a", "The plant uses light energy. It makes sugar from water,\nand it gives off oxygen (a"),
        ("makes sugar ... the plant", None),
        ("the plant ... eats sugar", None),
        ("the plant eats", None),
        ("… it …", None),
        ("", None),
        ('""', None),
        ("\u200b", None),
    ],
)
def test_examples(quote: str, found: str | None) -> None:
    span = find(quote, TEXT)
    assert (None if span is None else TEXT[span.start : span.end]) == found


@pytest.mark.parametrize(
    ("stops", "found"), [("", True), (".", True), (". So it is.", False), ("! Yes! Really!", False)]
)
def test_an_ellipsis_leaves_out_one_end_of_a_sentence_at_most(stops: str, found: bool) -> None:
    text = f"The plant uses light energy{stops} And it makes sugar from water."
    assert (find("The plant uses … makes sugar", text) is not None) is found


@pytest.mark.parametrize(("length", "found"), [(MAX_GAP, True), (MAX_GAP + 1, False)])
def test_an_ellipsis_leaves_out_so_many_characters_at_most(length: int, found: bool) -> None:
    text = f"The plant uses{' the light'.ljust(length, '.')}and it makes sugar."
    assert (find("plant uses … and it makes", text) is not None) is found


def test_a_quote_across_hidden_characters_spans_them_in_the_stored_text() -> None:
    text = "It\u200b is in\u00ad\ncorrect that CO₂ is needed."
    span = find("is incorrect that CO2", text)
    assert span is not None
    assert text[span.start : span.end] == "is in\u00ad\ncorrect that CO₂"
    assert find("correct that CO2", text) is None
    sentence = next(unit for unit in units(text) if unit.kind == "sentence")
    assert find("correct that CO2", text, sentence.start, sentence.end) is None


def test_a_quote_that_holds_an_ellipsis_itself_is_found_as_it_stands() -> None:
    text = "Well... I think so. It burns."
    assert find("well... i think", text) == Span(0, 15)
    assert fragments("e.g. a, i.e. it") == []


@pytest.mark.parametrize(
    "quote", ["uses light energy", "the plant ... makes sugar", "light energy. It makes", "energy ... sugar"]
)
def test_nothing_is_found_outside_the_region(quote: str) -> None:
    start, end = TEXT.index("It makes"), TEXT.index(",\nand")
    assert find(quote, TEXT) is not None
    assert find(quote, TEXT, start, end) is None


def test_a_span_counts_from_the_start_of_the_whole_text() -> None:
    start = TEXT.index("It makes")
    span = find("MAKES SUGAR", TEXT, start)
    assert span is not None
    assert TEXT[span.start : span.end] == "makes sugar"


def test_chinese_and_japanese_characters_are_tokens() -> None:
    assert tokens("光合作用 uses CO2, ひか") == ["光", "合", "作", "用", "uses", "co2", "ひ", "か"]


@pytest.mark.parametrize(
    ("quote", "text", "whole"), [("Acid.", "acid", True), ("a", "a b", False), ("", "", False), ("!", "!", False)]
)
def test_a_quote_may_be_the_whole_text(quote: str, text: str, whole: bool) -> None:
    assert is_whole(quote, text) is whole


def test_tokens_do_not_see_case_or_composition() -> None:
    assert tokens("Cafe\u0301_DON'T 3.5x") == ["café", "don", "t", "3", "5x"]
