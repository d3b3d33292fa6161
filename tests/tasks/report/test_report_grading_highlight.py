"""Marks in a student's answer: nothing of the text is lost or changed but what cannot be seen."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tasks.display.say import visible
from tasks.report.grading.highlight import AROUND, BUDGET, WHOLE, WITHIN, Span, pieces
from tasks.report.grading.page import answer

TEXTS = st.text(st.one_of(st.characters(), st.sampled_from(" \n\r<>&\"'\u202e")), max_size=200)


@st.composite
def marked(draw: st.DrawFn, texts: st.SearchStrategy[str] = TEXTS) -> tuple[str, list[Span]]:
    """A text with spans that may overlap, nest and touch."""
    text = draw(texts)
    ends = st.integers(0, len(text))
    spans = draw(
        st.lists(
            st.tuples(ends, ends, st.sampled_from(["G1", "G2", "G3"]), st.sampled_from(["machine", "people"])),
            max_size=6,
        )
    )
    return text, [Span(min(a, b), max(a, b), criterion, by) for a, b, criterion, by in spans]  # type: ignore[arg-type]


class Text(HTMLParser):
    """The text of a fragment without the criteria's labels."""

    def __init__(self, fragment: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.labels, self.text = 0, ""
        self.feed(fragment)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.labels += tag == "b"

    def handle_endtag(self, tag: str) -> None:
        self.labels -= tag == "b"

    def handle_data(self, data: str) -> None:
        self.text += "" if self.labels else data


@given(marked())
def test_the_pieces_are_the_text(found: tuple[str, list[Span]]) -> None:
    text, spans = found
    assume(not re.search(r"\s{30}", text))
    shown = "".join(piece.text for piece in pieces(text, spans))
    assert shown == visible(text.replace("\r\n", "\n"))


@given(marked())
def test_every_character_is_marked_by_exactly_the_spans_over_it(found: tuple[str, list[Span]]) -> None:
    text, spans = found
    plain = "".join(chr(ord("a") + at % 26) for at in range(len(text)))
    made = [(letter, set(piece.machine), set(piece.people)) for piece in pieces(plain, spans) for letter in piece.text]
    for at, (letter, machine, people) in enumerate(made):
        over = [span for span in spans if span.start <= at < span.end]
        assert letter == plain[at]
        assert machine == {span.criterion for span in over if span.by == "machine"}
        assert people == {span.criterion for span in over if span.by == "people"}


@given(marked())
def test_the_html_holds_the_text_and_no_element_of_it(found: tuple[str, list[Span]]) -> None:
    text, spans = found
    assume(not re.search(r"\s{30}", text))
    shown = Text(str(answer(pieces(text, spans))))
    assert shown.text == visible(text.replace("\r\n", "\n"))
    assert shown.tags <= {"mark", "b"}


@given(marked(st.integers(1_500, 20_000).map("a<&b".ljust)))
def test_what_is_left_out_of_a_long_text_is_counted(found: tuple[str, list[Span]]) -> None:
    text, spans = found[0].replace(" ", "c"), found[1]
    made = pieces(text, spans)
    shown = sum(len(piece.text) for piece in made)
    assert shown + sum(piece.hidden for piece in made) == len(text)
    assert shown <= BUDGET + 2 * (AROUND + WITHIN)
    assert all(piece.hidden == 0 for piece in made) == (len(text) <= WHOLE or shown == len(text))


def test_a_span_deep_in_a_long_text_is_shown_with_its_surroundings() -> None:
    text = "a" * 5_000 + " before the heat of fusion after " + "b" * 1_000_000
    start = text.index("the heat")
    made = pieces(text, [Span(start, start + len("the heat of fusion"), "G1", "machine")])
    (quote,) = [piece for piece in made if piece.machine]
    assert quote.text == "the heat of fusion"
    assert quote.ends == ("G1",)
    shown = "".join(piece.text for piece in made)
    assert " before the heat of fusion after b" in shown
    assert len(shown) < BUDGET


def test_a_quote_of_half_a_book_is_shown_by_its_ends() -> None:
    made = pieces("x" * 400_000, [Span(1_000, 399_000, "G1", "machine")])
    assert sum(len(piece.text) for piece in made if piece.machine) == 2 * WITHIN
    assert sum(piece.hidden for piece in made) + sum(len(piece.text) for piece in made) == 400_000


def test_empty_lines_by_the_thousand_are_left_out() -> None:
    made = pieces("a" + "\n" * 1_000 + "b", [])
    assert [piece.hidden for piece in made if piece.hidden] == [996]
    assert (made[0].text, made[-1].text) == ("a\n\n", "\n\nb")


def test_windows_line_ends_are_line_ends() -> None:
    assert "".join(piece.text for piece in pieces("a\r\nb\rc", [Span(0, 2, "G1", "machine")])) == "a\nb⟨U+000D⟩c"


def test_a_span_outside_the_text_is_an_error() -> None:
    with pytest.raises(ValueError, match="outside the text"):
        pieces("short", [Span(2, 9, "G1", "machine")])


@pytest.mark.parametrize("letter", ["\x00", "\x1b", "\x9f", "\u202e", "\u2066", "\ud800", "\U000e0041", "\ufeff"])
def test_what_cannot_be_seen_is_made_visible(letter: str) -> None:
    assert visible(f"a{letter}b") == f"a⟨U+{ord(letter):04X}⟩b"


@pytest.mark.parametrize("text", ["\n\t", "Ärger 你好", "👩\u200d🔬", "שלום"])
def test_what_can_be_seen_stays(text: str) -> None:
    assert visible(text) == text
