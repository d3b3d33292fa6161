"""A highlighted text as HTML: the text and no element of it; what cannot be seen is made visible."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.display.page import marked
from rubricflow.tasks.core.display.say import visible
from rubricflow.tasks.core.text.highlight import Highlight, excerpt, pieces


class Text(HTMLParser):
    """The text of a fragment without the labels in it."""

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


@given(
    st.text(st.one_of(st.characters(), st.sampled_from(" \n\r<>&\"'\u202e")), max_size=200),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200), st.text(max_size=3)), max_size=6),
)
def test_the_html_holds_the_text_and_no_element_of_it(text: str, drawn: list[tuple[int, int, str]]) -> None:
    highlights = [Highlight(a, b, label) for a, b, label in drawn if a <= b <= len(text)]
    shown = Text(str(marked(pieces(text, highlights), "".join, str)))
    assert shown.text == visible(text.replace("\r\n", "\n"))
    assert shown.tags <= {"mark", "b"}


def test_a_mark_has_its_kind_and_each_label_once_and_a_gap_says_how_much_is_left_out() -> None:
    text = "begin <b>" + " " * 100
    html = marked(excerpt(text, [Highlight(0, 5, "G1"), Highlight(0, 5, "G2"), Highlight(2, 5, "G1")]), "-".join, str)
    assert html == (
        '<mark class="G1-G2">be</mark><mark class="G1-G2">gin<b>G1</b><b>G2</b></mark> &lt;b&gt;  '
        '<span class="gap">[96 characters not shown]</span>  '
    )


@pytest.mark.parametrize("letter", ["\x00", "\x1b", "\x9f", "\u202e", "\u2066", "\ud800", "\U000e0041", "\ufeff"])
def test_what_cannot_be_seen_is_made_visible(letter: str) -> None:
    assert visible(f"a{letter}b") == f"a⟨U+{ord(letter):04X}⟩b"


@pytest.mark.parametrize("text", ["\n\t", "Ärger 你好", "👩\u200d🔬", "שלום"])
def test_what_can_be_seen_stays(text: str) -> None:
    assert visible(text) == text
