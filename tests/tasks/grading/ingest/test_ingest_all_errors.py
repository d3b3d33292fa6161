"""All that is wrong with the sources is said at once, each by its line, and nothing that only follows from it."""

from __future__ import annotations

from pathlib import Path

import openpyxl
import pytest

from rubricflow.tasks.core.contracts.errors import InputError, InputErrors
from rubricflow.tasks.core.contracts.settings.data import Data, Split
from rubricflow.tasks.grading.ingest.sources import read_as, streams
from rubricflow.tasks.grading.ingest.survey import Survey, survey

ITEMS = "nr,wording\nq1,Why?\nq2,How?\n"
ANSWERS = "id,nr,text,mark\nx1,q1,Heat.,1\nx2,q2,Cold.,2\nx3,q1,Warm.,\n"
DATA = {
    "sources": [
        {"file": "items.csv", "items": {"item_id": "nr", "question": "wording"}},
        {
            "file": "answers.csv",
            "responses": {"response_id": "id", "item_id": "nr", "text": "text"},
            "scores": [{"rater": "anna", "score": "mark"}],
        },
        {"file": "ben.csv", "scored": "id", "scores": [{"rater": "ben", "score": "mark"}]},
    ]
}


def surveyed(folder: Path, items: str = ITEMS, answers: str = ANSWERS, ben: str = "id,mark\nx1,1\n") -> Survey:
    for name, content in (("items.csv", items), ("answers.csv", answers), ("ben.csv", ben)):
        (folder / name).write_text(content)
    return survey(streams(Data.model_validate(DATA), folder), Split(), "mean")


def told(folder: Path, **files: str) -> list[str]:
    with pytest.raises(InputError) as stop:
        surveyed(folder, **files)
    errors = stop.value.errors if isinstance(stop.value, InputErrors) else [stop.value]
    return [str(error).partition(" (there")[0].partition(" (where")[0] for error in errors]


def test_errors_of_all_rows_and_columns_are_told(tmp_path: Path) -> None:
    answers = 'id,nr,text,mark\nx1,q1,"Heat\nmoves.",good\n,q1,Cold.,2\nx1,q9,Warm.,1\nx4,q1\n'
    assert told(tmp_path, answers=answers) == [
        "answers.csv, line 2 (row 1), column 'mark': 'good' is not a finite number",
        "answers.csv, line 4 (row 2), column 'id': is empty",
        "answers.csv, line 5 (row 3), column 'id': response id 'x1' occurs twice",
        "answers.csv, line 6 (row 4): has 2 cells, the header has 4"
        " (a text that holds the delimiter, a quotation mark or a line break stands in quotes)",
    ]


def test_what_only_follows_is_not_told(tmp_path: Path) -> None:
    (only,) = told(tmp_path, items="number,wording\nq1,Why?\nq2,How?\n")
    assert only.startswith("items.csv, field 'nr': no such column")
    assert told(tmp_path, answers=ANSWERS.replace("x1", ""), ben="id,mark\nx1,1\n") == [
        "answers.csv, line 2 (row 1), column 'id': is empty"
    ]


def test_errors_of_later_files_are_told_too(tmp_path: Path) -> None:
    assert told(tmp_path, answers=ANSWERS.replace("Heat.,1", "Heat.,one"), ben="id,mark\nx9,1\n") == [
        "answers.csv, line 2 (row 1), column 'mark': 'one' is not a finite number",
        "ben.csv, line 2 (row 1), column 'id': response 'x9' is unknown",
    ]


def test_one_file_that_is_missing_hides_no_error_of_another(tmp_path: Path) -> None:

    data = Data.model_validate({"sources": [{**DATA["sources"][0], "file": "none.csv"}, DATA["sources"][1]]})
    (tmp_path / "answers.csv").write_text(ANSWERS.replace("Heat.,1", "Heat.,one"))
    with pytest.raises(InputErrors) as stop:
        survey(streams(data, tmp_path), Split(), "mean")
    assert [error.rule.split(" is")[0] for error in stop.value.errors] == ["no such file", "'one'"]


def test_a_column_that_is_misspelt_is_told_with_where_the_study_names_it(tmp_path: Path) -> None:
    (only,) = told(tmp_path, answers=ANSWERS.replace("text", "Text "))
    assert only.endswith("(did you mean 'Text'?)")


def test_decimal_commas_are_read_and_mixed_ones_refused(tmp_path: Path) -> None:
    commas = 'id;nr;text;mark\nx1;q1;"Heat; 3.5";1,5\nx2;q2;Cold.;2\n'
    assert surveyed(tmp_path, answers=commas).labelled == bytearray([1, 1])
    assert told(tmp_path, answers=commas + "x3;q1;Warm.;2.5\n") == [
        "answers.csv, line 4 (row 3), column 'mark': '2.5' stands next to '1,5' in row 1"
        " (write all decimals of a column with a point, or all with a comma)"
    ]


def test_blanks_around_ids_and_lost_zeros(tmp_path: Path) -> None:
    answers = ANSWERS.replace("x1", " 001 ")
    assert list(surveyed(tmp_path, answers=answers, ben="id,mark\n001 ,1\n").places) == ["001", "x2", "x3"]
    with pytest.raises(InputError, match=r"response '1' is unknown \(there is '001'"):
        surveyed(tmp_path, answers=answers, ben="id,mark\n1,1\n")


def test_a_workbook_is_a_source_like_any_other(tmp_path: Path) -> None:
    surveyed(tmp_path)
    book = openpyxl.Workbook()
    book.active.title = "Class 7b"
    for row in (["id", "nr", "text", "mark"], ["001", "q1", "Heat.", 1.5], [2, "q2", "=1+1", None]):
        book.active.append(row)
    book.save(tmp_path / "answers.xlsx")
    text = {**DATA["sources"][1], "file": "answers.xlsx"}
    data = Data.model_validate({"sources": [DATA["sources"][0], text]})
    assert read_as(data, tmp_path)["answers.xlsx"] == "sheet 'Class 7b'"
    with pytest.raises(InputError, match=r"^answers\.xlsx, line 3 \(row 2\), column 'text': holds a formula"):
        survey(streams(data, tmp_path), Split(), "mean")


def test_columns_of_one_name_leave_a_wide_file_its_lines(tmp_path: Path) -> None:
    (tmp_path / "quiz.csv").write_text(
        'id,"1: Why?",1.0,"2: How?",1.0\n001,"Heat\nrises.",1,Wind.,0\n002,Cold.,1,Rain.,x\n'
    )
    source = {
        "file": "quiz.csv",
        "wide": {"text": "{n}: {question}", "mark": {"right_of": "text"}},
        "ids": {"answer": ["id", "question"]},
        "items": {"item_id": "question", "question": "question"},
        "responses": {"response_id": "answer", "item_id": "question", "text": "text"},
        "scores": [{"rater": "ann", "score": "mark"}],
    }
    data = Data.model_validate({"sources": [source]})
    assert read_as(data, tmp_path) == {"quiz.csv": "UTF-8, cells parted by commas"}
    with pytest.raises(InputError, match=r"^quiz\.csv, line 4 \(row 2\), column 'mark'"):
        survey(streams(data, tmp_path), Split(), "mean")
