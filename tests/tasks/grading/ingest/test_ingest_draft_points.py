"""The most points of a question as headers say them, as people say them, and beside graded totals."""

from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.grading.ingest.draft.drafted import disagreeing_sums
from rubricflow.tasks.grading.ingest.draft.roles import numbers_said, points_in, without_points

UNITS = ["pts", "P.", "Punkte", "points", "Pkt.", "puntos", "punti", "pontos", "punten", "poäng", "pistettä", "marks"]


@given(
    st.integers(1, 99),
    st.integers(1, 400).map(lambda number: number / 4),
    st.sampled_from(UNITS),
    st.sampled_from(["({} {})", "[{} {}]", ", {} {}", ": {} {}"]),
    st.sampled_from(".,"),
)
def test_a_header_says_its_points_beside_its_own_number(n: int, points: float, unit: str, form: str, sign: str) -> None:
    said = form.format(f"{points:g}".replace(".", sign), unit)
    assert points_in(f"Frage {n} {said}") == points
    assert without_points(f"Frage {n} {said}").strip() == f"Frage {n}"


@pytest.mark.parametrize(
    "header",
    ["Punkte 1", "Aufgabe 2 Punkte", "Question 3 points", "Kurs 2024/25", "Antwort 7", "in 1990", "Explain a/b", "P 4"],
)
def test_a_questions_own_number_is_none_of_points(header: str) -> None:
    assert points_in(header) is None


def test_a_wording_that_ends_with_a_fraction_says_no_points() -> None:
    assert points_in("Compute 1 / 2", is_header=False) is None
    assert points_in("Compute 1 / 2 (3 pts)", is_header=False) == 3
    assert points_in("Why is it so? 4 points", is_header=False) == 4


@given(
    st.lists(st.integers(1, 40).map(lambda number: number / 2), min_size=1, max_size=6), st.sampled_from(["; ", " "])
)
def test_points_are_said_for_each_question_or_for_all(points: list[float], separator: str) -> None:
    for sign in ".,":
        words = separator.join(f"{value:g}".replace(".", sign) for value in points)
        assert numbers_said(words, len(points)) == points or (len(points) == 1 and sign == ",")
    assert numbers_said("5", 3) == [5, 5, 5]
    assert numbers_said("4,5", 2) == [4, 5]
    assert numbers_said("4,5", 1) == [4.5]
    assert numbers_said("0", 1) is numbers_said("", 2) is numbers_said("four", 1) is None


def test_a_total_that_a_platform_scaled_agrees() -> None:
    sums = pd.Series({1: 3.0, 2: 4.5})
    assert disagreeing_sums(sums, sums, None) == []
    assert disagreeing_sums(sums, 2 * sums, 2) == []
    assert disagreeing_sums(sums, pd.Series({1: 6, 2: 8}), 2) == [(1, 3, 6), (2, 4.5, 8)]
