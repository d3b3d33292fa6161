"""Scores and levels in words: read as the study says, refused by name otherwise."""

from __future__ import annotations

import math
import re
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.data import ScoreColumns, Source
from rubricflow.tasks.grading.ingest.canonical import marks, scores
from rubricflow.tasks.grading.ingest.columns import CellPlace, Chunk, numbers_of
from rubricflow.tasks.grading.ingest.draft.drafted import disagreeing_sums
from rubricflow.tasks.grading.ingest.draft.roles import numbers_said, points_in, without_points

SHOWN = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=6)


def scored(words: dict[str, float | None], *cells: Any) -> list[float | None]:
    source = Source.model_validate({"file": "x.csv", "scores": [{"rater": "a", "score": "verdict", "words": words}]})
    return scores(Chunk(source, pd.DataFrame({"verdict": list(cells)}, dtype=object)))[0].score


def test_words_are_the_numbers_that_the_study_says() -> None:
    words = {"correct": 2, "Partially correct": 1, "3 - good": 3, "absent": None}
    cells = ["correct", " CORRECT\n", "partially correct", "3 - good", "Absent", "", None, math.nan]
    assert scored(words, *cells) == [2, 2, 1, 3, None, None, None, None]


def test_where_numbers_are_words_the_others_have_no_meaning() -> None:
    assert scored({"1": 0, "2": 1}, "1", 2.0, " 2 ") == [0, 1, 1]
    with pytest.raises(InputError, match="'3' is none of the words 1, 2"):
        scored({"1": 0, "2": 1}, "1", "3")


@pytest.mark.parametrize(("words", "is_said"), [({"3/5 (late)": 3}, True), ({"1": 0, "2": 1}, False)])
def test_what_is_no_word_is_said_to_be_no_number_where_numbers_count(words: dict[str, Any], is_said: bool) -> None:
    with pytest.raises(InputError, match="none of the words") as stop:
        scored(words, "2½/5")
    assert ("no number" in str(stop.value)) == is_said


def test_an_unknown_word_is_named_with_its_place_and_the_known_words() -> None:
    with pytest.raises(InputError, match="'corect' is none of the words correct, incorrect") as stop:
        scored({"correct": 1, "incorrect": 0}, "correct", "corect")
    assert (stop.value.file, stop.value.row, stop.value.field) == ("x.csv", 2, "verdict")


@pytest.mark.parametrize("cell", ["good", "NA", "n/a", "-", "4/5/x", "1 000", "2½", "½", "٣", True, b"1"])
def test_without_words_what_is_no_number_is_refused_with_what_to_do(cell: Any) -> None:
    with pytest.raises(InputError, match=r"is not a finite number .*'words'"):
        scored({}, cell)


@pytest.mark.parametrize("cell", ["1,000,000", "1,234.5", "3,", ",5", "3.5.2024", "2024-05-03", "3-May", "5. Mär"])
def test_what_only_looks_like_one_is_refused(cell: str) -> None:
    with pytest.raises(InputError, match=f"'{re.escape(cell)}' is not a finite number"):
        scored({}, cell)


def test_a_mark_may_say_out_of_how_many_points_it_is_and_keeps_that() -> None:
    rater = {"rater": "a", "score": "s", "traits": {"ideas": "i"}, "words": {"3/4": 1}}
    source = Source.model_validate({"file": "x.csv", "scores": [rater]})
    (read,) = scores(Chunk(source, pd.DataFrame({"s": ["4/5", "-- / 5", "3/4"], "i": ["", "85 %", "2"]})))
    assert read.score == [4, None, 1]
    assert read.traits == [[], [("ideas", 85)], [("ideas", 2)]]
    assert read.signals == [[("out_of", 5)], [("out_of ideas", 100)], []]


def test_traits_take_the_words_of_their_rater() -> None:
    rater = {"rater": "a", "traits": {"ideas": "i"}, "words": {"A": 5, "F": 0}}
    source = Source.model_validate({"file": "x.csv", "scores": [rater]})
    assert scores(Chunk(source, pd.DataFrame({"i": ["a", "F"]})))[0].traits == [[("ideas", 5.0)], [("ideas", 0.0)]]


def marked(words: dict[str, Any], *cells: Any) -> list[int]:
    columns = {"response_id": "r", "rater_id": {"const": "a"}, "criterion_id": {"const": "P1"}, "level": "verdict"}
    source = Source.model_validate({"file": "m.csv", "marks": columns, "words": words})
    frame = pd.DataFrame({"r": [f"r{n}" for n in range(len(cells))], "verdict": list(cells)}, dtype=object)
    return marks(Chunk(source, frame))["decision"].to_pylist()


def test_marks_take_words_for_levels() -> None:
    assert marked({"no": 0, "in part": 1, "Yes": 2}, "yes", "In Part", "no ", "1") == [2, 1, 0, 1]
    with pytest.raises(InputError, match=r"m\.csv, row 2, field 'verdict': 'maybe' is none of the words no, yes"):
        marked({"no": 0, "yes": 1}, "no", "maybe")


@pytest.mark.parametrize("words", [{"yes": 0.5}, {"yes": -1}, {"yes": None}, {"yes": 1, "YES ": 2}, {" ": 0}])
def test_what_is_no_level_and_words_that_read_the_same_are_refused(words: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        marked(words)


@pytest.mark.parametrize("words", [{"yes": math.inf}, {"Straße": 0, "STRASSE": 1}, {"": 0}])
def test_scores_refuse_them_too(words: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ScoreColumns.model_validate({"rater": "a", "score": "s", "words": words})


def test_words_beside_scores_stand_with_their_rater() -> None:
    with pytest.raises(ValidationError, match="those of scores stand with their rater"):
        Source.model_validate({"file": "x.csv", "words": {"yes": 1}, "scores": [{"rater": "a", "score": "s"}]})


@given(st.dictionaries(SHOWN, st.integers(0, 9), min_size=1), st.lists(SHOWN), st.sampled_from([str, str.upper]))
def test_a_cell_is_its_word_s_number_or_refused(words: dict[str, int], cells: list[str], written: Any) -> None:
    folded = {word.strip().casefold(): number for word, number in words.items()}
    read = numbers_of(words)
    for cell in [*words, *cells]:
        known = folded.get(written(cell).strip().casefold())
        try:
            number = read(f" {written(cell)}\t", CellPlace("f", 1, "c"))
        except InputError:
            assert known is None
        else:
            assert number == known or (known is None and number == float(written(cell).replace(",", ".")))


# The most points of a question as headers say them, as people say them, and beside graded totals.


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
