"""`init` on marks as platforms and people write them: with the points that they are out of, as shares, with flags, with
words for what nobody has marked; and comments next to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from init_scene import guess, points_of, read

from rubricflow.flows.init import init
from rubricflow.flows.validate import prove
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from tests.builders.exports import HOW, WHY
from tests.builders.files import write_csv

STUDENTS = ("Ada Berg", "Can Öz", "Eva Lind", "Finn Frey")
SAID = ("It is hollow inside.", "Steel is light.", "It weighs as much as the water.", "")
FORMS: dict[str, Callable[[float, int], str]] = {
    "google": lambda mark, most: f"{mark:.2f} / {most}",
    "german": lambda mark, most: f"{mark:g} von {most}".replace(".", ","),
    "slash": lambda mark, most: f"{mark:g}/{most}",
    "unit": lambda mark, most: f"{mark:g} out of {most} pts",
    "with its share": lambda mark, most: f"{mark:g} / {most} ({100 * mark / most:.1f}%)",
}
BLANK = st.sampled_from(["", "–", "-- / {most}", "not graded", "Bewertung notwendig", "EX"])
MARKS = st.lists(st.one_of(st.integers(0, 40), BLANK), min_size=2, max_size=7)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(list(FORMS)),
    st.integers(1, 20),
    MARKS.filter(lambda marks: len({"–", "not graded", "Bewertung notwendig", "EX"} & set(marks)) < 4),
    st.booleans(),
)
def test_marks_come_back_in_whatever_form_they_are_written(
    form: str, most: int, marks: list[int | str], is_wide: bool
) -> None:
    given = [min(mark / 2, most) if isinstance(mark, int) else None for mark in marks]
    written = [
        FORMS[form](value, most) if value is not None else str(mark).format(most=most)
        for value, mark in zip(given, marks, strict=True)
    ]
    expected = {f"s{row}-Q1": value for row, value in enumerate(given) if value is not None}
    with TemporaryDirectory() as name:
        folder = Path(name)
        if is_wide:
            rows = [[f"s{row}", f"Since the air in it is {row}.", mark, "", ""] for row, mark in enumerate(written)]
            write_csv(folder / "a.csv", ["student", WHY, f"{WHY} [Score]", HOW, f"{HOW} [Score]"], rows)
        else:
            rows = [[f"s{row}", WHY, f"Since {row}.", mark] for row, mark in enumerate(written)]
            write_csv(folder / "a.csv", ["student", "question", "answer", "mark"], rows)
        init([folder / "a.csv"], folder / "study.yaml", guess)
        if any(expected.values()):  # zeros alone are what nobody has marked
            assert read(folder / "study.yaml").scores == expected
            assert points_of(folder / "study.yaml")["Q1"] == most
            assert not [message for kind, _, message in prove(folder / "study.yaml") if kind == "wrong"]
        else:
            assert read(folder / "study.yaml").scores == {}


def google(folder: Path) -> Path:
    """A quiz of Google Forms as CSV: nobody has marked the last student's first answer."""
    header = ["Timestamp", "Username", "Total score", "Your name", "Your name [Score]", "Your name [Feedback]"]
    header += [name for question in (WHY, HOW) for name in (question, f"{question} [Score]", f"{question} [Feedback]")]
    rows = []
    for place, (name, said) in enumerate(zip(STUDENTS, SAID, strict=True)):
        first = ["-- / 3" if place == 3 else f"{place}.00 / 3", "Say why it is light, too." if place == 1 else ""]
        second = ["It foams with fat.", "1.50 / 2", "Which end of it does that?"]
        rows.append(["2026/11/02", f"s{place}@x.example", "5.00 / 5", name, "-- / 0", "", said, *first, *second])
    write_csv(folder / "google.csv", header, rows)
    return folder / "google.csv"


def microsoft(folder: Path) -> Path:
    """The same of Microsoft Forms as a workbook, which does not say what a question is worth."""
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    names = [f"{before}{question}" for question in (WHY, HOW) for before in ("", "Points - ", "Feedback - ")]
    sheet.append(["Id", "Start time", "Email", "Name", "Total points", "Quiz feedback", *names])
    for place, (name, said) in enumerate(zip(STUDENTS, SAID, strict=True)):
        first = [None if place == 3 else place, "Say why it is light, too." if place == 1 else None]
        second = ["It foams with fat.", 1.5, "Which end of it does that?"]
        sheet.append([place + 1, "2026-11-02", f"s{place}@x.example", name, None, None, said or "-", *first, *second])
    book.save(folder / "microsoft.xlsx")
    return folder / "microsoft.xlsx"


@pytest.mark.parametrize("export", [google, microsoft])
def test_comments_next_to_marks_are_no_questions_and_reach_the_student(
    tmp_path: Path, export: Callable[[Path], Path]
) -> None:
    init([export(tmp_path)], tmp_path / "study.yaml", guess)
    found = read(tmp_path / "study.yaml")
    kept = json.dumps(load_study(tmp_path / "study.yaml").model_dump(mode="json"), sort_keys=True)
    assert Study.model_validate(json.loads(kept)) == load_study(tmp_path / "study.yaml")  # as a manifest has it
    assert {question for question, _ in found.items.values()} == {WHY, HOW}
    who = "s{}@x.example-Q{}".format
    assert found.scores == {who(n, 1): n for n in range(3)} | {who(n, 2): 1.5 for n in range(4)}
    assert found.notes == {who(1, 1): "Say why it is light, too."} | {
        who(n, 2): "Which end of it does that?" for n in range(4)
    }
    assert {row["author_name"] for row in found.responses} == set(STUDENTS)


def test_flags_and_words_stand_in_the_study_with_what_they_count(tmp_path: Path) -> None:
    marks = ["3", "2,5 (late)", "late", "1*", "EX", "0 – copied"]
    write_csv(tmp_path / "a.csv", ["student", "answer", "mark"], [[f"s{n}", "So.", m] for n, m in enumerate(marks)])
    init([tmp_path / "a.csv"], tmp_path / "study.yaml", guess)
    assert read(tmp_path / "study.yaml").scores == {"s0-Q1": 3, "s1-Q1": 2.5, "s3-Q1": 1, "s5-Q1": 0}


def test_a_cell_with_digits_that_are_no_mark_is_left_to_be_mended(tmp_path: Path) -> None:
    rows = [["s0", "So.", "3"], ["s1", "No.", "2½"], ["s2", "Hm.", "1"]]
    write_csv(tmp_path / "a.csv", ["student", "answer", "mark"], rows)
    init([tmp_path / "a.csv"], tmp_path / "study.yaml", guess)
    with pytest.raises(InputError) as stop:
        list(prove(tmp_path / "study.yaml"))
    assert (stop.value.row, stop.value.field) == (2, "mark")


def test_percentages_of_a_workbook_are_out_of_100_as_it_shows_them(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    sheet.append(["student", "answer", "mark"])
    for row, share in enumerate([0.07, 0.5, 1]):
        sheet.append([f"s{row}", "So.", share])
        sheet.cell(row + 2, 3).number_format = "0%"
    book.save(tmp_path / "a.xlsx")
    init([tmp_path / "a.xlsx"], tmp_path / "study.yaml", guess)
    assert read(tmp_path / "study.yaml").scores == {"s0-Q1": 7, "s1-Q1": 50, "s2-Q1": 100}
    assert points_of(tmp_path / "study.yaml") == {"Q1": 100}


def test_columns_that_are_called_marks_and_hold_words_are_named(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ["student", "answer", "Grade"], [[f"s{n}", "So.", g] for n, g in enumerate("ABF")])
    started = init([tmp_path / "a.csv"], tmp_path / "study.yaml", guess)
    assert any("'Grade'" in line and "'B'" in line for line in started.lines)


def test_the_three_headers_of_qualtrics_are_one(tmp_path: Path) -> None:
    names = [["ResponseId", "Q1", "Q2"], ["Response ID", WHY, HOW]]
    rows = [['{"ImportId":"_recordId"}', '{"ImportId":"QID1_TEXT"}', '{"ImportId":"QID2_TEXT"}'], ["R_1", "So.", "No."]]
    write_csv(tmp_path / "a.csv", names[0], [names[1], *rows])
    init([tmp_path / "a.csv"], tmp_path / "study.yaml", guess)
    assert [row["text"] for row in read(tmp_path / "study.yaml").responses] == ["So.", "No."]


LABELS = ("Points Possible", "Overall average", "Durchschnitt", "Moyenne", "Total", "Std. Dev.", "平均")


@settings(max_examples=25, deadline=None)
@given(
    label=st.sampled_from(LABELS).flatmap(lambda label: st.sampled_from((label, label.upper(), label.lower()))),
    blanks=st.tuples(st.sampled_from(("", " ", "    ")), st.sampled_from(("", "  "))),
    place=st.integers(0, 3),
    names=st.lists(st.from_regex(r"[B-Z][a-z]{3,8}, Ada", fullmatch=True), min_size=3, max_size=3, unique=True),
    cell=st.sampled_from(("", "(read only)", "5")),
    has_ids=st.booleans(),
)
def test_a_row_of_points_or_averages_is_no_student_wherever_it_stands(
    label: str, blanks: tuple[str, str], place: int, names: list[str], cell: str, has_ids: bool
) -> None:
    texts = ("It pushes water away.", "It is hollow and light.", "Air is inside of it.")
    rows = [
        [name, f"s{n}", text, f"{n + 1}", text, f"{n}"] for n, (name, text) in enumerate(zip(names, texts, strict=True))
    ]
    header = ["Student", "SIS User ID", "Answer 1", "Score 1", "Answer 2", "Score 2"]
    ours = [0, 1, 2, 3, 4, 5] if has_ids else [0, 2, 3, 4, 5]
    added = [label.join(blanks), "", cell, "7", cell, "4"]
    found, worth = [], {}
    with TemporaryDirectory() as folder:
        for table in (rows, [*rows[:place], added, *rows[place:]]):
            study = Path(folder) / "study.yaml"
            write_csv(Path(folder) / "a.csv", [header[n] for n in ours], [[row[n] for n in ours] for row in table])
            init([Path(folder) / "a.csv"], study, guess, overwrite=True)
            read_back = read(study)
            found.append((read_back.answers, read_back.scores, read_back.items.keys()))
            worth = points_of(study)
    assert found[0] == found[1]
    assert worth == ({"Q1": 7, "Q2": 4} if "oints" in label.lower() else {"Q1": 3, "Q2": 3})


def test_a_student_with_an_answer_of_their_own_stays_whatever_their_name(tmp_path: Path) -> None:
    rows = [["Total", "It is hollow, and light for its size.", "2"], ["Average", "Nobody knows, I think.", "1"]]
    write_csv(tmp_path / "a.csv", ["Student", "Answer", "Score"], rows)
    init([tmp_path / "a.csv"], tmp_path / "study.yaml", guess)
    assert read(tmp_path / "study.yaml").scores == {"Total-Q1": 2, "Average-Q1": 1}
