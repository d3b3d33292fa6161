"""HTML becomes the text that a browser shows; everything else stays as it is."""

from __future__ import annotations

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.text.markup import is_markup, plain

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=12)
SENTENCES = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)


@pytest.mark.parametrize(
    "text",
    [
        "x < 3 and y > 2",
        "a<b and c>d",
        "i<p>j",
        "I <3 it",
        "<you@home.example>",
        "if (a < b) { c <- d }",
        "a << 1 >> b",
    ],
)
def test_a_text_with_angle_brackets_is_no_markup(text: str) -> None:
    assert not is_markup(text)
    assert plain(text) == text


@given(st.text().filter(lambda text: "</" not in text and "&" not in text))
def test_a_text_without_an_end_of_an_element_stays_as_it_is_to_the_last_character(text: str) -> None:
    if not is_markup(text):
        assert plain(text) == text


@given(st.text(st.sampled_from("<>/ab p=\"'&;!-\n"), max_size=60))
def test_nothing_raises_and_what_is_plain_is_untouched(text: str) -> None:
    assert is_markup(text) or "&" in text or plain(text) == text
    plain(text)


@given(st.lists(SENTENCES, min_size=1, max_size=4), st.sampled_from(["p", "div", "li", "h2", "blockquote"]))
def test_every_word_between_tags_is_kept_in_its_order(paragraphs: list[str], name: str) -> None:
    marked = "".join(f"<{name} class='x'>{html.escape(words)}</{name}>" for words in paragraphs)
    mark = ["*"] if name == "li" else []
    assert plain(marked).split() == [word for words in paragraphs for word in (*mark, *words.split())]


@given(SENTENCES)
def test_a_sign_that_a_student_did_not_escape_costs_no_word(words: str) -> None:
    escaped = words.replace("&", "&amp;")
    if not is_markup(words) and "<!--" not in words:
        assert plain(f"<p>{escaped}</p>") == words


@pytest.mark.parametrize(
    ("marked", "text"),
    [
        ("<p>one</p><p>two</p>", "one\n\ntwo"),
        ("one<br>two<br/>three", "one\ntwo\nthree"),
        ("<ul><li>a</li><li>b</li></ul>", "* a\n* b"),
        ("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b"),
        ("<table><tr><th>t</th><th>s</th></tr><tr><td>1</td><td>2</td></tr></table>", "t  s\n1  2"),
        ('<p>so <img src="a.png" alt="y = x^2"> it is</p>', "so [y = x^2] it is"),
        ("<p>E = mc<sup>2</sup> of H<sub>2</sub>O</p>", "E = mc^2 of H2O"),
        ("<p>a</p><script>steal()</script><style>p{}</style><!-- not said -->", "a"),
        ("<p>a<o:p></o:p> &nbsp;&eacute;&#33;</p>", "a é!"),
        ("<P Dir=ltr HIDDEN>a</P>", "a"),
        ("<math><mfrac><mn>1</mn><mrow><mi>x</mi><mo>+</mo><mn>2</mn></mrow></mfrac></math><br>", "1/(x+2)"),
        ("<p>\\(x^2 < 3\\)</p>", "\\(x^2 < 3\\)"),
        ("<p>a<b and c>d</p>", "a<b and c>d"),
        ("<div>" * 5000 + "deep" + "</div>" * 5000, "deep"),
        ("Tom &amp; Jerry, &unknown; R&D", "Tom & Jerry, &unknown; R&D"),
        ("<p>\x00a\ud800</p>", "a"),
    ],
)
def test_what_a_reader_sees(marked: str, text: str) -> None:
    assert plain(marked) == text


@pytest.mark.parametrize("hostile", ["<!--", "<", "<a ", "<a x='", "&lt;", "<p>", "</p>", "<table>", "<li>"])
def test_hostile_text_is_read_once(hostile: str) -> None:
    assert isinstance(plain(f"<p>{hostile * 5_000}</p>"), str)
