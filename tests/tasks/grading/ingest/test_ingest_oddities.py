"""What is odd about responses: said, counted, named, and nothing stopped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.grading.ingest.canonical import Answers
from rubricflow.tasks.grading.ingest.oddities import CELL, Oddities, folded, sentence

TEXT = "Heat is the random motion of the particles of a body; cold bodies have slower particles."


def chunk(texts: list[str], authors: list[str | None], items: list[str], first: int) -> Answers:
    count = len(texts)
    nothing = [None] * count
    names = [f"r{place}" for place in range(first, first + count)]
    return Answers(names, items, authors, texts, nothing, [[]] * count, nothing, nothing, nothing)


def told(texts: list[str], authors: list[str | None] | None = None) -> dict[str, tuple[int, list[str]]]:
    students = authors or [f"s{place}" for place in range(len(texts))]
    oddities = Oddities()
    oddities.look(chunk(texts, students, ["i"] * len(texts), 0))
    return {row["kind"]: (row["responses"], row["examples"]) for row in oddities.rows()}


def test_plain_answers_are_not_odd() -> None:
    assert told(["Heat is motion.", "a < b and b > c", "R&D; 5 < 6", "Garçon, Ação, SÃO"] * 2) == {}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("markup", "<p>Heat</p>"),
        ("markup", "Heat<br/>moves"),
        ("markup", "Heat&nbsp;moves"),
        ("garbled", "WÃ¤rme"),
        ("garbled", "itâ€™s heat"),
        ("garbled", "caf\ufffd"),
        ("cut", "x" * CELL),
        ("empty", " \n"),
        ("empty", ""),
    ],
)
def test_what_a_text_shows_by_itself(kind: str, text: str) -> None:
    assert told([text]) == {kind: (1, ["r0"])}


@pytest.mark.parametrize(("length", "kinds"), [(399, set()), (400, {"long"})])
def test_among_short_texts_one_of_four_hundred_characters_is_long(length: int, kinds: set[str]) -> None:
    assert set(told([f"yes {place}" for place in range(6)] + ["x" * length])) == kinds


def test_a_text_ten_times_as_long_as_usual() -> None:
    assert told(["word " * 20] * 6 + ["word " * 200]) == {
        "same_text": (5, [f"r0 and r{place}" for place in range(1, 6)]),
        "long": (1, ["r6"]),
    }
    assert told(["yes"] * 6 + ["it is so because heat moves"]) == {}


@given(st.sampled_from([str.upper, str.lower, lambda text: f"  {text}!\n", lambda text: text.replace(" ", "  ")]))
def test_the_same_text_by_another_student(change: Any) -> None:
    assert told([TEXT, "other", change(TEXT)]) == {"same_text": (1, ["r0 and r2"])}
    assert "same_text" not in told([TEXT, change(TEXT)], ["anna", "anna"])


ANSWERS = st.tuples(
    st.sampled_from(["short", TEXT, TEXT.upper(), "x" * 80]),
    st.sampled_from([None, "anna", "ben"]),
    st.sampled_from("ij"),
)


@given(st.lists(st.lists(ANSWERS, max_size=5), max_size=6))
def test_repetitions_are_those_of_the_first_by_item(chunks: list[list[tuple[str, str | None, str]]]) -> None:
    """Held against a search through all earlier responses."""
    oddities, earlier = Oddities(), list[tuple[str, str | None, str]]()
    students, copies = 0, 0
    for rows in chunks:
        first = len(earlier)
        oddities.look(chunk(*([row[part] for row in rows] for part in range(3)), first))  # type: ignore[arg-type]
        for text, author, item in rows:
            own = [row for row in earlier if row[2] == item]
            students += author is not None and any(row[1] == author for row in own)
            alike = [row for row in own if len(folded(text)) >= 60 and folded(row[0]) == folded(text)]
            copies += bool(alike) and (author is None or alike[0][1] != author)
            earlier.append((text, author, item))
    counts = {row["kind"]: row["responses"] for row in oddities.rows()}
    assert (counts.get("same_student", 0), counts.get("same_text", 0)) == (students, copies)


def test_short_answers_may_be_the_same() -> None:
    assert told(["Heat is motion."] * 4) == {}


def test_a_student_who_answers_twice() -> None:
    assert told(["a", "b", "c"], ["anna", "ben", "anna"]) == {"same_student": (1, ["r0 and r2"])}
    assert told(["a", "b"], [None, None]) == {}


def test_a_warning_in_words() -> None:
    assert sentence("same_text", 7, ["r0 and r2"]) == "different students hand in the same text: 7 (r0 and r2, …)"
