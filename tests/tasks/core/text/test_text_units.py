"""Sentences and paragraphs: exact spans that cover every character that is not white space once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.text.units import MARK, units, whole_sentences

PIECES = [
    "\r\n",
    "\n",
    "\r",
    "\t",
    "\u00a0",
    "\u2028",
    "\u2029",
    "\x85",
    "  ",
    ". ",
    "! ",
    "?\u201d ",
    "…",
    "...",
    "。",
    "！」",
]
PIECES += [
    "e.g. ",
    "Dr. ",
    "A. ",
    "12. ",
    "e\u0301",
    "\u0301",
    "שלום",
    "\u202e",
    "光合作用",
    "\U0001f600",
    "\x00",
    "word",
    "(",
    ")",
    '"',
]
TEXTS = st.lists(
    st.sampled_from(PIECES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=30
).map("".join)


def said(text: str, kind: str) -> list[str]:
    return [text[unit.start : unit.end] for unit in units(text) if unit.kind == kind]


@given(TEXTS)
def test_units_of_a_kind_cover_each_visible_character_once(text: str) -> None:
    visible = [i for i, c in enumerate(text) if not c.isspace()]
    for kind in ("sentence", "paragraph"):
        covered = [i for unit in units(text) if unit.kind == kind for i in range(unit.start, unit.end)]
        assert covered == sorted(set(covered))
        assert [i for i in covered if not text[i].isspace()] == visible


@given(TEXTS)
def test_units_are_trimmed_numbered_and_nested(text: str) -> None:
    found = units(text)
    assert all(text[u.start : u.end] == text[u.start : u.end].strip() != "" for u in found)
    for letter, kind in (("s", "sentence"), ("p", "paragraph")):
        ids = [u.unit_id for u in found if u.kind == kind]
        assert ids == [f"{letter}{n}" for n in range(1, len(ids) + 1)]
    paragraphs = [u for u in found if u.kind == "paragraph"]
    for sentence in (u for u in found if u.kind == "sentence"):
        assert sum(p.start <= sentence.start and sentence.end <= p.end for p in paragraphs) == 1


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        (" \t\r\n\u00a0", []),
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("He said “no.” Then left.", ["He said “no.”", "Then left."]),
        (
            "Use e.g. water. See Fig. 2 by Dr. A. Smith (cf. p. 3).",
            ["Use e.g. water.", "See Fig. 2 by Dr. A. Smith (cf. p. 3)."],
        ),
        ("1. First\n2. Second. Done.", ["1. First", "2. Second.", "Done."]),
        ("The answer is 5. Then stop.", ["The answer is 5.", "Then stop."]),
        ("Pi is 3.14 or so. Yes.", ["Pi is 3.14 or so.", "Yes."]),
        ("Wait... what?! Oh.", ["Wait...", "what?!", "Oh."]),
        ("光合作用。需要光！好", ["光合作用。", "需要光！", "好"]),
        ("it is in-\ncorrect, in\u00ad\r\nvalid. So", ["it is in-\ncorrect, in\u00ad\r\nvalid.", "So"]),
        ("one -\ntwo-\nThree", ["one -", "two-", "Three"]),
        ("one\r\ntwo\rthree\u2028four", ["one", "two", "three", "four"]),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert said(text, "sentence") == sentences


@pytest.mark.parametrize(
    ("text", "paragraphs"),
    [
        ("a\nb\n\nc", ["a\nb", "c"]),
        ("a\r\nb\r\n \r\nc", ["a\r\nb", "c"]),
        ("a\r\rb\rc", ["a", "b\rc"]),
        ("a\u2029b\nc", ["a", "b\nc"]),
        ("a\nb\nc", ["a", "b", "c"]),
        ("a\r\nb", ["a", "b"]),
        ("  a  \n\n\n\n  b  ", ["a", "b"]),
    ],
)
def test_paragraphs(text: str, paragraphs: list[str]) -> None:
    assert said(text, "paragraph") == paragraphs


@pytest.mark.parametrize(
    "piece", [".", "x", "!? ", "a. ", "e.g. ", '."', "\r\n \r", "\n", " ", "。", ")", "12. ", "ab-\r", "-\u00ad"]
)
def test_a_huge_text_is_covered_to_its_end(piece: str) -> None:
    text = piece * ((2**16 if " " in piece else 2**18) // len(piece))
    assert max((unit.end for unit in units(text)), default=0) == len(text.rstrip())


# Prose that was cut short ends with a whole sentence and a mark.


LONG = "It names light. It says nothing of water, which the key wants. What it says of soil is wr"


@pytest.mark.parametrize(
    ("text", "longest", "kept"),
    [
        (" It names light. ", 600, "It names light."),
        (LONG, len(LONG), "It names light. It says nothing of water, which the key wants. […]"),
        (LONG, 40, "It names light. […]"),
        ("It names light.", 15, "It names light."),
        ("It names light", 14, "It names […]"),
        ("Das ist alles. Mehr steht da nicht, denn", 40, "Das ist alles. […]"),
        ("x" * 50, 20, "x" * 15 + " […]"),
    ],
)
def test_what_was_cut_ends_with_a_whole_sentence(text, longest, kept):
    assert whole_sentences(text, longest) == kept


@given(st.text(st.sampled_from('ab .!?\n…。"”)é')), st.integers(12, 60))
def test_nothing_is_added_but_the_mark_and_twice_is_once(text, longest):
    made = whole_sentences(text, longest)
    assert whole_sentences(made, longest) == made
    assert len(made) <= longest
    assert text.strip().startswith(made.removesuffix(MARK).rstrip())
    assert made.endswith(MARK) or made == text.strip()
