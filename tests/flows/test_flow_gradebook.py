"""The commands that write grades and feedback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders.command import command
from builders.files import read_csv
from builders.graded import answer, graded_run
from typer.testing import Result

from rubricflow.flows import gradebook

ANSWERS = (answer("a1", "q1", "ann"), answer("b1", "q1", "ben", route="review"))


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study file, whose run stands in for what plan would find."""
    run = graded_run(tmp_path, ANSWERS)
    monkeypatch.setattr(gradebook, "graded_run", lambda *_: run)
    monkeypatch.setattr(gradebook, "write_page", lambda run: run.folder / "report.html")
    return tmp_path / "study.yaml"


def gradebook_of(name: str, study: Path, to: Path, *options: Any) -> Result:
    house = study.parent / "warehouse"
    return command(name, study, "--to", to, "--warehouse", house, *options)


def test_grades_are_written_and_what_waits_is_said(study: Path) -> None:
    to = study.parent / "grades.csv"
    result = gradebook_of("grades", study, to)
    assert result.exit_code == 0
    assert "1 of 2 answers have a score: 1 released, 0 settled by a person" in result.output
    assert f"next: rubricflow review {study}" in result.output
    assert [(row["student"], row["score"]) for row in read_csv(to)] == [("ann", "2"), ("ben", "")]


@pytest.mark.parametrize(
    ("to", "options", "words"),
    [
        ("grades.pdf", (), "a .csv for a spreadsheet or an .xlsx"),
        ("grades.xlsx", ("--form", "moodle"), "moodle reads no other"),
        ("grades.csv", ("--form", "canvas", "--wide"), "columns of its own"),
        ("grades.csv", ("--form", "moodle", "--include-waiting"), "have no place in moodle's form"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    study: Path, to: str, options: tuple[str, ...], words: str
) -> None:
    result = gradebook_of("grades", study, study.parent / to, *options)
    assert result.exit_code == 2
    assert words in result.output
    assert not (study.parent / to).exists()


def test_a_file_that_was_changed_is_kept_unless_told(study: Path) -> None:
    to = study.parent / "grades.csv"
    assert gradebook_of("grades", study, to).exit_code == 0
    assert gradebook_of("grades", study, to, "--wide").exit_code == 0
    to.write_text("changed")
    assert gradebook_of("grades", study, to).exit_code == 2
    assert to.read_text() == "changed"
    assert gradebook_of("grades", study, to, "--overwrite").exit_code == 0


def test_feedback_says_where_it_is_and_for_whom(study: Path) -> None:
    to = study.parent / "feedback"
    result = gradebook_of("feedback", study, to)
    assert result.exit_code == 0
    assert "2 pages, one a student, to give out" in result.output
    assert "for teachers only" in result.output
    assert len(list((to / "students").glob("*.html"))) == 2
