"""Highlights in a text: its pieces are the text, and each character is in pieces that name what is highlighted."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TypeAlias

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rubricflow.tasks.core.text.highlight import AROUND, BUDGET, WHOLE, WITHIN, Highlight, excerpt, joined, pieces

TEXTS = st.text(st.one_of(st.characters(), st.sampled_from(" \n\r<>&\"'\u202e\ud800")), max_size=200)
Marked: TypeAlias = tuple[str, list[Highlight[str]]]


@st.composite
def marked(draw: st.DrawFn, texts: st.SearchStrategy[str] = TEXTS) -> Marked:
    """A text with highlights that may overlap, nest and touch."""
    text = draw(texts)
    ends = st.integers(0, len(text))
    spans = draw(st.lists(st.tuples(ends, ends, st.sampled_from(["G1", "G2", "G3"])), max_size=6))
    return text, [Highlight(min(a, b), max(a, b), label) for a, b, label in spans]


@given(marked())
def test_the_pieces_are_the_text(drawn: Marked) -> None:
    text, highlights = drawn
    assert "".join(piece.text for piece in pieces(text, highlights)) == text.replace("\r\n", "\n")


@given(marked())
def test_a_short_text_without_long_blanks_is_its_own_excerpt(drawn: Marked) -> None:
    text, highlights = drawn
    assume(not re.search(r"\s{30}", text))
    assert excerpt(text, highlights) == pieces(text, highlights)


@given(marked())
def test_every_character_is_in_a_piece_that_names_exactly_the_highlights_over_it(drawn: Marked) -> None:
    text, highlights = drawn
    plain = "".join(chr(ord("a") + at % 26) for at in range(len(text)))
    held = [(letter, set(piece.labels)) for piece in pieces(plain, highlights) for letter in piece.text]
    over = [{one.label for one in highlights if one.start <= at < one.end} for at in range(len(text))]
    assert held == list(zip(plain, over, strict=True))


@given(marked())
def test_every_highlight_begins_and_ends_with_a_piece(drawn: Marked) -> None:
    text, highlights = drawn
    plain = "x" * len(text)
    starts, ends, at = set(), set(), 0
    for piece in pieces(plain, highlights):
        starts |= {(at, label) for label in piece.starts}
        at += len(piece.text)
        ends |= {(at, label) for label in piece.ends}
    long = [highlight for highlight in highlights if highlight.start < highlight.end]
    assert (starts, ends) == ({(a, label) for a, _, label in long}, {(b, label) for _, b, label in long})


@given(marked())
def test_what_overlaps_under_one_label_is_joined_and_covers_the_same(drawn: Marked) -> None:
    _, highlights = drawn
    for label in ("G1", "G2", "G3"):
        before, after = ([one for one in of if one.label == label] for of in (highlights, joined(highlights)))
        covered, still = ({at for one in of for at in range(one.start, one.end)} for of in (before, after))
        assert covered == still
        assert all(a.end < b.start for a, b in pairwise(after))


@given(marked(st.integers(1_500, 20_000).map("a<&b".ljust)))
def test_what_is_left_out_of_a_long_text_is_counted(drawn: Marked) -> None:
    text, highlights = drawn[0].replace(" ", "c"), drawn[1]
    cut = excerpt(text, highlights)
    shown = sum(len(piece.text) for piece in cut)
    assert shown + sum(piece.hidden for piece in cut) == len(text)
    assert shown <= BUDGET + 2 * (AROUND + WITHIN)
    assert all(piece.hidden == 0 for piece in cut) == (len(text) <= WHOLE or shown == len(text))


def test_a_highlight_deep_in_a_long_text_is_shown_with_its_surroundings() -> None:
    text = "a" * 5_000 + " before the heat of fusion after " + "b" * 1_000_000
    start = text.index("the heat")
    cut = excerpt(text, [Highlight(start, start + len("the heat of fusion"), "G1")])
    (quote,) = [piece for piece in cut if piece.labels]
    assert quote == ("the heat of fusion", ("G1",), ("G1",), ("G1",), 0, False)
    shown = "".join(piece.text for piece in cut)
    assert " before the heat of fusion after b" in shown
    assert len(shown) < BUDGET


def test_a_highlight_of_half_a_book_is_shown_by_its_ends() -> None:
    cut = excerpt("x" * 400_000, [Highlight(1_000, 399_000, "G1")])
    assert sum(len(piece.text) for piece in cut if piece.labels) == 2 * WITHIN
    assert sum(piece.hidden for piece in cut) + sum(len(piece.text) for piece in cut) == 400_000


def test_empty_lines_by_the_thousand_are_left_out() -> None:
    cut = excerpt("a" + "\n" * 1_000 + "b", [])
    assert [piece.hidden for piece in cut if piece.hidden] == [996]
    assert (cut[0].text, cut[-1].text) == ("a\n\n", "\n\nb")


def test_windows_line_ends_are_single_even_where_a_highlight_cuts_them() -> None:
    assert [piece.text for piece in pieces("a\r\nb\rc", [Highlight(0, 2, "G1")])] == ["a", "\nb\rc"]
    assert [piece.text for piece in pieces("a\r\nb", [])] == ["a\nb"]


@pytest.mark.parametrize("cut", [pieces, excerpt])
@pytest.mark.parametrize(("start", "end"), [(2, 9), (-1, 2)])
def test_a_highlight_outside_the_text_is_an_error(cut: type, start: int, end: int) -> None:
    with pytest.raises(ValueError, match="outside the text"):
        cut("short", [Highlight(start, end, "G1")])


def test_headings_are_pieces_of_their_own_and_one_above_a_highlight_is_never_left_out() -> None:
    heading, words = "[turn 1, user]", "word " * WHOLE
    text = f"{heading}\n{words}here it is{words}"
    titles, quote = [(0, len(heading))], Highlight(len(heading) + 1 + len(words), len(text) - len(words), "q")
    whole = pieces(text, [quote], titles)
    assert "".join(piece.text for piece in whole) == text
    assert [piece.text for piece in whole if piece.is_heading] == [heading]
    later = f"{words}\n\n{text}"
    moved = len(later) - len(text)
    cut = excerpt(
        later, [quote._replace(start=quote.start + moved, end=quote.end + moved)], [(moved, moved + len(heading))]
    )
    shown = [piece.text for piece in cut if piece.is_heading or piece.labels]
    assert shown == [heading, "here it is"]
