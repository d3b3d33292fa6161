"""The gradebook as sheets and files: what is in them, and that nothing in them runs."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pytest
from builders.bundles import bundle, criterion
from builders.graded import answer, graded_run
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.tables.people import SettledScores
from rubricflow.tasks.core.store.files import hand_out
from rubricflow.tasks.core.text.formulas import unguarded
from rubricflow.tasks.grading.gradebook.book import Gradebook
from rubricflow.tasks.grading.gradebook.sheets import (
    CANVAS,
    MOODLE,
    UNCHECKED,
    GradeSheet,
    about_sheet,
    answer_sheet,
    as_csv,
    as_workbook,
    platform_sheet,
    student_sheet,
    totals,
)
from rubricflow.tasks.grading.gradebook.tables import read_gradebook

HOSTILE = "=cmd|' /C calc'!A0"
SIGNS = "=+-@\t\r＝＋－＠"


def book_of(folder: Path, *answers: dict[str, Any], **named: Any) -> Gradebook:
    return read_gradebook(graded_run(folder, answers, **named))


def records(sheet: GradeSheet) -> list[dict[str, Any]]:
    return [dict(zip(sheet.header, row, strict=True)) for row in sheet.rows]


def cells_of(content: bytes, page: str = "Grades") -> list[tuple[Any, ...]]:
    workbook = openpyxl.load_workbook(io.BytesIO(content))
    return [tuple(row) for row in workbook[page].iter_rows(values_only=True)]


def csv_rows(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")))


@pytest.fixture
def two_students(tmp_path: Path) -> Gradebook:
    return book_of(
        tmp_path,
        answer("a1", "q1", "ann"),
        answer("a2", "q2", "ann", route="review", score=3.0),
        answer("b1", "q1", "ben", score=4.0),
        answer("b2", "q2", "ben", score=0.5),
    )


def test_an_answer_has_its_score_interval_route_and_evidence(two_students: Gradebook) -> None:
    first, second, *_ = records(answer_sheet(two_students))
    assert (first["student"], first["question"], first["score"], first["out_of"]) == ("ann", "q1", 2, 4)
    assert (first["low"], first["high"], first["route"], first["state"]) == (1, 3, "released", "released")
    assert first["criteria"] == "Water leaves the cells: 1 of 1 (“Water leaves”)"
    assert (second["score"], second["low"], second["state"]) == (None, None, "waits for a person")
    assert second["route_reason"]


def test_what_waits_is_nowhere_unless_asked_for_and_then_in_a_column_that_says_so(two_students: Gradebook) -> None:
    for sheet in (answer_sheet(two_students), student_sheet(two_students)):
        assert not [name for name in sheet.header if UNCHECKED in name]
        assert 3 not in [value for row in sheet.rows for value in row[:5]]
    assert records(answer_sheet(two_students, True))[1][UNCHECKED] == 3
    assert records(answer_sheet(two_students, True))[1]["score"] is None
    assert records(student_sheet(two_students, True))[0][f"q2 {UNCHECKED}"] == 3


def test_the_history_of_what_still_waits_does_not_tell_the_machines_score(tmp_path: Path) -> None:
    run = graded_run(tmp_path, [answer("a1", route="review", score=3.0), answer("a2", "q2")])
    steps = [{"who": "m", "kind": "machine", "score": 3.0, "at": None, "comment": None}]
    row = {"score": None, "settled_by": "open", "levels": {}, "note": None, "history": steps}
    settled = row | {"score": 4.0, "settled_by": "one_vote"}
    run.commit("settle", "all", {SettledScores: [row | {"response_id": "a1"}, settled | {"response_id": "a2"}]})
    waiting, final = records(answer_sheet(read_gradebook(run)))
    assert (waiting["score"], waiting["history"]) == (None, None)
    assert (final["score"], final["history"]) == (4, "3 (m)")


def test_a_student_has_a_column_a_question_and_a_total_once_nothing_waits(two_students: Gradebook) -> None:
    ann, ben = records(student_sheet(two_students))
    assert (ann["q1"], ann["q2"], ann["total"], ann["so_far"], ann["waiting"]) == (2, None, None, 2, 1)
    assert (ben["q1"], ben["q2"], ben["total"], ben["out_of"], ben["waiting"]) == (4, 0.5, 4.5, 8, 0)


def test_a_question_that_nobody_answered_is_counted(tmp_path: Path) -> None:
    (ann, ben) = records(student_sheet(book_of(tmp_path, answer("a1", "q1", "ann"), answer("b1", "q2", "ben"))))
    assert (ann["q2"], ann["not_answered"], ann["total"]) == (None, 1, 2)
    assert ben["not_answered"] == 1


def test_two_answers_to_one_question_count_in_no_total(tmp_path: Path) -> None:
    book = book_of(tmp_path, answer("a1", "q1", "ann"), answer("a2", "q1", "ann", score=4.0))
    (ann,) = records(student_sheet(book))
    assert (ann["q1"], ann["total"], ann["so_far"], ann["waiting"]) == (None, None, 0, 1)
    assert len(answer_sheet(book).rows) == 2


def test_answers_without_a_student_stand_alone(tmp_path: Path) -> None:
    book = book_of(tmp_path, answer("a1", student=None), answer("a2", student=None), answer("a3", student="ann"))
    assert [row[0] for row in student_sheet(book).rows] == ["answer a1", "answer a2", "ann"]


def test_rows_come_in_the_order_of_the_data_or_by_name_as_the_language_sorts(tmp_path: Path) -> None:
    people = ("Bo Braun", "Ida Åberg", "Ada Böhm", "Zoe ahrens", "Böhm, Ben", "Özil", None)
    rows = [answer(f"a{n}", student=name) for n, name in enumerate(people)]
    run = graded_run(tmp_path, rows)

    def shown(language: str | None) -> list[Any]:
        return [row["student"] for row in records(answer_sheet(read_gradebook(run, language=language)))]

    assert shown(None) == list(people)
    assert shown("de") == ["Ida Åberg", "Zoe ahrens", "Ada Böhm", "Böhm, Ben", "Bo Braun", "Özil", None]
    assert shown("sv") == ["Zoe ahrens", "Bo Braun", "Ada Böhm", "Böhm, Ben", "Ida Åberg", "Özil", None]
    with pytest.raises(InputError, match="'klingon' is no language"):
        shown("klingon")


def test_a_question_without_a_name_has_the_beginning_of_its_wording_at_its_head(tmp_path: Path) -> None:
    book = book_of(tmp_path, answer("a1", "Q10", "ann"), answer("a2", "Q2", "ann"))
    wordings = [question.text for question in book.questions.values()]
    header = student_sheet(book).header
    assert [name.split(" (")[0] for name in header[1:3]] == ["Q2", "Q10"]
    assert all(wording[:20] in name for name, wording in zip(header[1:3], wordings, strict=True))


def test_a_question_called_like_a_column_is_told_apart(tmp_path: Path) -> None:
    header = student_sheet(book_of(tmp_path, answer("a1", "total"), answer("a2", "waiting"))).header
    assert len(set(header)) == len(header)
    assert "question total" in header


def test_the_second_page_says_run_promise_and_columns(tmp_path: Path) -> None:
    rule = {"scope": "all", "tolerance": 1.0, "target": 0.05, "confidence": 0.9, "n": 120, "threshold": 0.04}
    rule |= {"released": 50, "wrong": 1, "worth": 50.0, "levels": [1.0]}
    rule |= {"constant": 0.4, "constant_released": 0.3, "exact": 0.5, "exact_released": 0.6}
    book = book_of(tmp_path, answer("a1"), rules=[rule])
    about = dict(about_sheet(book, wide=False).rows)
    assert (about["run"], about["graded on"], about["graded by"]) == ("class-0123456789", "2026-11-20", "m")
    assert about["verdict"] == "Release the one score."
    assert "at most 5% of released scores are more than 1 of 4 points off" in str(about["promise"])
    assert all(share in str(about["promise of all questions"]) for share in ("40%", "30%", "50%", "60%"))
    assert {f"column {name}" for name in answer_sheet(book, True).header} - {"column student_name"} <= about.keys()


@pytest.mark.parametrize("threshold", [None, 0.04])
def test_where_nothing_is_released_nothing_is_promised(tmp_path: Path, threshold: float | None) -> None:
    rule = {"scope": "q1", "tolerance": 1.0, "target": 0.05, "confidence": 0.9, "n": 120, "threshold": threshold}
    rule |= {"note": None if threshold else "too few labels", "released": 0, "wrong": 0, "worth": 0.0, "levels": []}
    rule |= {"constant": 0.4, "constant_released": 0.3, "exact": 0.5, "exact_released": 0.6}
    about = dict(about_sheet(book_of(tmp_path, answer("a1", route="review"), rules=[rule]), wide=False).rows)
    assert about["verdict"] == "Release no score: a person should grade it."
    assert "promise" not in about
    said = None if threshold else "nothing is released by the machine: too few labels"
    assert about.get("promise of q1") == said


def test_a_workbook_is_read_back_as_it_was_written(two_students: Gradebook) -> None:
    sheet = answer_sheet(two_students)
    content = as_workbook([sheet, about_sheet(two_students, wide=False)])
    assert cells_of(content) == [sheet.header, *sheet.rows]
    frame = pd.read_excel(io.BytesIO(content))
    assert frame["score"].tolist()[2:] == [4.0, 0.5]
    workbook = openpyxl.load_workbook(io.BytesIO(content))
    assert workbook.sheetnames == ["Grades", "About"]
    assert workbook["Grades"].freeze_panes == "A2"
    assert workbook["Grades"].column_dimensions["A"].width >= 8


CELLS = st.one_of(
    st.none(),
    st.integers(-(10**9), 10**9),
    st.floats(-1e6, 1e6).map(lambda value: round(value, 9)),
    st.text(max_size=30),
    st.text(alphabet=SIGNS + ",;\"' \n0a_x", max_size=12),
    st.from_regex(r"\A[=+\-@]?_x00[0-9A-F]{2}_[a-z]?\Z"),
)


@settings(max_examples=60)
@example([HOSTILE, "\x00", "\ud800", "_x000D_", "\uffff"])
@given(st.lists(CELLS, min_size=1, max_size=5))
def test_no_cell_of_a_workbook_is_a_formula_and_texts_stay_as_they_are(values: list[Any]) -> None:
    values = ["first", *values]
    content = as_workbook([GradeSheet("Grades", tuple(f"c{n}" for n in range(len(values))), (tuple(values),))])
    (row,) = list(openpyxl.load_workbook(io.BytesIO(content))["Grades"].iter_rows(min_row=2))
    for value, cell in zip(values, row, strict=True):
        assert cell.data_type in ("n", "s")
        if isinstance(value, str) and value.isprintable():
            assert (cell.value or "") == value
        elif not isinstance(value, str):
            assert cell.value == value
    page = zipfile.ZipFile(io.BytesIO(content)).read("xl/worksheets/sheet1.xml")
    assert b"<f>" not in page


@settings(max_examples=60)
@example([HOSTILE, "-1.5", "a,=b", "\t=x", "-5", "-0 "])
@given(st.lists(CELLS, min_size=1, max_size=5))
def test_no_cell_of_a_csv_file_runs_and_numbers_are_numbers(values: list[Any]) -> None:
    content = as_csv(GradeSheet("Grades", tuple(f"c{n}" for n in range(len(values))), (tuple(values),)))
    header, row = csv_rows(content)
    assert len(row) == len(values) == len(header)
    for value, cell in zip(values, row, strict=True):
        if isinstance(value, str):
            is_number = cell.strip().lstrip("+-").replace(".", "", 1).isdigit()
            assert is_number or not cell.startswith(tuple(SIGNS))
            if value.isprintable():
                assert unguarded(cell) == value
        elif value is not None:
            assert float(cell) == value


def test_moodle_gets_a_total_a_student_and_nobody_who_waits(tmp_path: Path) -> None:
    book = book_of(
        tmp_path,
        answer("a1", "q1", "Participant 12"),
        answer("b1", "q1", "ben@school.example", route="review"),
        answer("c1", "q1", "cyd@school.example", score=0.0, levels={"P1": (0, ""), "P2": (0, "")}),
    )
    sheet, remarks = platform_sheet(book, "moodle")
    assert sheet.header == MOODLE
    first, cyd = records(sheet)
    assert (first["Identifier"], first["Email address"], first["Grade"], first["Maximum Grade"]) == (
        "Participant 12",
        None,
        2,
        4,
    )
    assert (cyd["Email address"], cyd["Grade"]) == ("cyd@school.example", 0)
    how = "This score follows from the points listed here."
    assert first["Feedback comments"] == f"<p>q1: 2 of 4<br>{how}<br>Counted: Water leaves the cells</p>"
    assert any("1 student left out" in remark for remark in remarks)


def test_moodle_shows_what_is_markup_as_it_stands(tmp_path: Path) -> None:
    hostile = bundle(criterion("P1", text="x < 3 <script>alert(1)</script>"), ends=(0, 4))
    sheet, _ = platform_sheet(book_of(tmp_path, answer("a1"), bundle=hostile), "moodle")
    (row,) = records(sheet)
    assert "<script>" not in row["Feedback comments"]
    assert "x &lt; 3" in row["Feedback comments"]


def test_canvas_finds_its_columns_and_no_empty_grade(tmp_path: Path) -> None:
    answers = [
        answer("a1", student="4711"),
        answer("b1", student="ben", score=3.0),
        answer("c1", student="c", score=None),
    ]
    answers[2]["route"] = "review"
    book = book_of(tmp_path, *answers, groups={"Section": "7b"})
    sheet, _ = platform_sheet(book, "canvas")
    header, points, *students = csv_rows(as_csv(sheet, for_spreadsheets=False))
    assert header == [*CANVAS, "class"]
    assert points == ["    Points Possible", "", "", "", "", "4"]
    assert students == [["4711", "4711", "", "", "7b", "2"], ["ben", "", "ben", "ben", "7b", "3"]]


@pytest.mark.parametrize("platform", ["moodle", "canvas"])
def test_a_platform_needs_to_know_whose_answer_it_is(tmp_path: Path, platform: Any) -> None:
    with pytest.raises(InputError, match=r"1 answer names no student.*author_id"):
        platform_sheet(book_of(tmp_path, answer("a1", student=None)), platform)


def test_it_is_said_how_many_wait(two_students: Gradebook) -> None:
    assert totals(two_students) == [
        "3 of 4 answers have a score: 3 released, 0 settled by a person",
        "1 answer waits for a person",
    ]


def test_a_file_is_written_over_only_as_it_was_written(tmp_path: Path) -> None:
    house, file = tmp_path / "house", tmp_path / "grades.csv"
    house.mkdir()
    hand_out(house, file, b"one")
    hand_out(house, file, b"two")
    file.write_bytes(b"my own remarks")
    with pytest.raises(InputError, match="is not as rubricflow wrote it"):
        hand_out(house, file, b"three")
    assert file.read_bytes() == b"my own remarks"
    hand_out(house, file, b"three", overwrite=True)
    assert file.read_bytes() == b"three"


def test_a_file_of_somebody_else_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "grades.csv"
    file.write_bytes(b"")
    with pytest.raises(InputError, match="--overwrite"):
        hand_out(tmp_path, file, b"one")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grades.csv"]
