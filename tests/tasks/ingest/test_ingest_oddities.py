"""What is odd about responses: said, counted, named, and nothing stopped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.ingest.canonical import Answers
from tasks.ingest.oddities import CELL, Oddities, folded, sentence

TEXT = "Heat is the random motion of the particles of a body; cold bodies have slower particles."


def told(texts: list[str], authors: list[str | None] | None = None) -> dict[str, tuple[int, list[str]]]:
    names = [f"r{place}" for place in range(len(texts))]
    students = authors or [f"s{place}" for place in range(len(texts))]
    count = len(texts)
    oddities = Oddities()
    oddities.look(
        Answers(
            [*range(count)],
            names,
            ["i"] * count,
            students,
            texts,
            [None] * count,
            [[]] * count,
            [None] * count,
            [None] * count,
        )
    )
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


def test_short_answers_may_be_the_same() -> None:
    assert told(["Heat is motion."] * 4) == {}


def test_a_student_who_answers_twice() -> None:
    assert told(["a", "b", "c"], ["anna", "ben", "anna"]) == {"same_student": (1, ["r0 and r2"])}
    assert told(["a", "b"], [None, None]) == {}


def test_a_warning_in_words() -> None:
    assert sentence("same_text", 7, ["r0 and r2"]) == "different students hand in the same text: 7 (r0 and r2, …)"


@given(st.text())
def test_folding_is_done_once(text: str) -> None:
    assert folded(folded(text)) in (folded(text), folded(folded(folded(text))))
