"""`init`: learning platforms' exports and other tables become a study that holds, with at most five questions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from init_scene import Read, guess, points_of, read

from rubricflow.flows.init import init
from rubricflow.flows.validate import prove
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.grading.ingest.draft.asking import MOST_QUESTIONS
from rubricflow.tasks.grading.lock.rubric import authored
from tests.builders import exports
from tests.builders.exports import FLOATS, HOW, SOAP, WHY
from tests.builders.files import write_csv


def of_moodle_quiz(found: Read) -> None:
    assert found.items == {"Q1": (WHY, FLOATS), "Q2": (HOW, SOAP)}
    assert found.answers["ada@school.example-Q1"] == ("Q1", "ada@school.example", "Ada Berg", "It is hollow.")
    assert found.answers["can@school.example-Q1"][3] == "Steel is light if x < 3 & dry."
    assert found.answers["eva@school.example-Q2"][3] == ""
    assert (len(found.answers), found.scores) == (6, {})


def of_bare_moodle_quiz(found: Read) -> None:
    assert set(found.items) == {"Q1", "Q2"}
    assert found.answers["eva@school.example-Q2"] == ("Q2", "eva@school.example", "Eva Lind", "")


def of_moodle_assignment(found: Read) -> None:
    assert set(found.items) == {"Q1"}
    text = "Soap has two ends, and x < y.\n\n  * fat\n  * water"
    assert found.answers["Participant 4711-Q1"] == ("Q1", "Participant 4711", "Ada Berg", text)
    assert found.answers["Participant 4713-Q1"][3] == ""
    assert found.scores == {"Participant 4711-Q1": 15.0, "Participant 4712-Q1": 4.5}


def of_canvas_quiz(found: Read) -> None:
    assert found.items == {"501": (WHY, None), "502": (HOW, None)}
    assert found.answers["81-Q501"] == ("501", "81", "Ada Berg", "It is hollow, and light.")
    assert found.scores == {"81-Q501": 3.5, "81-Q502": 2, "82-Q501": 0, "82-Q502": 0, "83-Q501": 4, "83-Q502": 0}


def of_blackboard_test(found: Read) -> None:
    assert found.items == {"Q1": (WHY, None), "Q2": (HOW, None)}
    texts = {key: answer[3] for key, answer in found.answers.items()}
    assert texts == {
        "aberg-Q1": "It is hollow.",
        "aberg-Q2": "Foam.",
        "coez-Q2": "It mixes.",
        "coez-Q1": "Air.",
    }
    assert found.scores == {"aberg-Q1": 3, "aberg-Q2": 1, "coez-Q2": 2, "coez-Q1": 4}


def test_html_of_a_platform_is_taken_out_without_being_asked(tmp_path: Path) -> None:
    export = exports.moodle_quiz(tmp_path)
    text = export.read_text(encoding="utf-8-sig")
    export.write_text(text.replace("It is hollow.", "<p>It is <strong>hollow</strong>.</p>"), encoding="utf-8")
    study = tmp_path / "study.yaml"
    init([export], study, lambda question, guess: guess)
    answers = [answer for texts in read(study).answers.values() for answer in texts]
    assert "It is hollow." in answers
    assert "Steel is light if x < 3 & dry." in answers


PLATFORMS = [
    (exports.moodle_quiz, of_moodle_quiz, {"Q1": 5, "Q2": 5}, 0),
    (lambda folder: exports.moodle_quiz(folder, questions=False), of_bare_moodle_quiz, {"Q1": 5, "Q2": 5}, 4),
    (exports.moodle_assignment, of_moodle_assignment, {"Q1": 20}, 2),
    (exports.canvas_quiz, of_canvas_quiz, {"501": 4, "502": 2}, 2),
    (exports.blackboard_test, of_blackboard_test, {"Q1": 5, "Q2": 2}, 2),
]
"""How an export is made, what ingest is to make of it, the most points by question, and what is left to write."""


@pytest.mark.parametrize(
    ("export", "holds", "points", "unwritten"),
    PLATFORMS,
    ids=["moodle quiz", "moodle quiz, answers alone", "moodle assignment", "canvas quiz", "blackboard test"],
)
def test_an_export_becomes_a_study_that_holds(
    tmp_path: Path,
    export: Callable[[Path], Path],
    holds: Callable[[Read], None],
    points: dict[str, float],
    unwritten: int,
) -> None:
    asked: list[str] = []
    started = init([export(tmp_path)], tmp_path / "study.yaml", lambda q, default: asked.append(q) or default)
    holds(read(tmp_path / "study.yaml"))
    assert points_of(tmp_path / "study.yaml") == points
    told = list(prove(tmp_path / "study.yaml"))
    assert [message for kind, _, message in told if kind == "wrong"] == []
    marks = [what for kind, what, message in told if kind == "warning" and "WRITE HERE" in message]
    assert len(marks) == unwritten
    assert bool(marks) == any("write" in line for line in started.to_do)
    assert len(asked) <= 1


LONG_TABLE = ["pupil", "question", "answer", "mark"]
WIDE_TABLE = ["pupil", "answer_1", "score_1", "answer_2", "score_2"]


@pytest.mark.parametrize("names", [("p", "q", "r"), ("p", "p", "p")], ids=["ids of pupils", "ids of rows"])
@pytest.mark.parametrize(("header", "column"), [(LONG_TABLE, 3), (WIDE_TABLE, 2), (WIDE_TABLE, 4)])
def test_a_mark_off_the_scale_is_named_by_file_row_and_column_in_a_drafted_study(
    tmp_path: Path, names: tuple[str, ...], header: list[str], column: int
) -> None:
    answers = [[WHY, "so it is", "2"], [WHY, "not at all", "1"], [WHY, "it floats", "0"]]
    if header is WIDE_TABLE:
        answers = [["so it is", "2", "no way", "1"], ["not at all", "0", "yes, why", "2"], ["it floats", "1", "x", "0"]]
    rows = [[name, *cells] for name, cells in zip(names, answers, strict=True)]
    write_csv(tmp_path / "a.csv", header, rows)
    init([tmp_path / "a.csv"], tmp_path / "study.yaml", guess)
    rows[1][column] = "99"
    write_csv(tmp_path / "a.csv", header, rows)
    with pytest.raises(InputError, match=r"99, off the scale 0 to 2") as refused:
        list(prove(tmp_path / "study.yaml"))
    assert (refused.value.file, refused.value.row, refused.value.field) == ("a.csv", 2, header[column])


def test_every_key_that_is_written_has_its_comment(tmp_path: Path) -> None:
    init([exports.blackboard_test(tmp_path)], tmp_path / "study.yaml", guess)
    lines = (tmp_path / "study.yaml").read_text().splitlines()
    keys = [n for n, line in enumerate(lines) if line.startswith("      ") and line[6] not in "# "]
    assert keys
    assert all(lines[n - 1].startswith("      # ") for n in keys)


def test_files_that_are_there_are_not_replaced_unless_told(tmp_path: Path) -> None:
    export, study = exports.moodle_quiz(tmp_path), tmp_path / "study.yaml"
    (tmp_path / "rubrics.yaml").write_text("mine")
    with pytest.raises(InputError, match=r"rubrics\.yaml: is there already"):
        init([export], study, guess)
    assert not study.exists()
    init([export], study, guess, overwrite=True)
    assert (tmp_path / "rubrics.yaml").read_text() != "mine"


def test_two_attempts_are_told_apart_by_their_order(tmp_path: Path) -> None:
    header = ["Email address", "State", "Started on", "Response 1"]
    write_csv(tmp_path / "a.csv", header, [["a@x.example", "Finished", f"{n} May", f"answer {n}"] for n in (1, 2)])
    init([tmp_path / "a.csv"], tmp_path / "study.yaml", guess)
    assert set(read(tmp_path / "study.yaml").answers) == {"a@x.example-Q1", "a@x.example-Q1-2"}


def test_the_grade_of_a_moodle_quiz_of_one_question_is_its_mark(tmp_path: Path) -> None:
    header = ["E-Mail-Adresse", "Status", "Bewertung/5,00", "Antwort 1"]
    write_csv(
        tmp_path / "a.csv", header, [["a@x.example", "Beendet", "3", "So"], ["b@x.example", "Beendet", "4", "Nein"]]
    )
    init([tmp_path / "a.csv"], tmp_path / "study.yaml", guess)
    assert read(tmp_path / "study.yaml").scores == {"a@x.example-Q1": 3, "b@x.example-Q1": 4}
    assert points_of(tmp_path / "study.yaml") == {"Q1": 5}


LONG = ["Schüler", "Frage", "Antwort", "Musterlösung", "Punkte", "student_id"]
FORM = ["Timestamp", "Email Address", WHY, HOW]


@pytest.mark.parametrize(
    ("header", "rows", "answers", "scores"),
    [
        (
            LONG,
            [["Ada", WHY, "Es ist hohl.", FLOATS, "2", "x"], ["Can", WHY, "Keine Ahnung.", FLOATS, "0", "x"]],
            {"Ada-Q1": "Es ist hohl.", "Can-Q1": "Keine Ahnung."},
            {"Ada-Q1": 2, "Can-Q1": 0},
        ),
        (
            FORM,
            [["1 May", "a@x.example", "Because it is hollow.", "It mixes fat and water."]],
            {"a@x.example-Q1": "Because it is hollow.", "a@x.example-Q2": "It mixes fat and water."},
            {},
        ),
        (
            ["Matrikelnr", "Frage 1: Was ist Dichte? (max. 3 P.)", "Anmerkung", "Punkte"],
            [
                ["7", "Masse durch Volumen, also wie schwer.", "gut", "2,5"],
                ["8", "Das weiß ich leider nicht.", "", "0"],
            ],
            {"7-Q1": "Masse durch Volumen, also wie schwer.", "8-Q1": "Das weiß ich leider nicht."},
            {"7-Q1": 2.5, "8-Q1": 0},
        ),
        (
            ["pupil", "answer_1", "score_1", "answer_2", "score_2", "mark"],
            [["p", "so", "1", "no", "2", "9"], ["q", "hm", "0", "eh", "1", "9"]],
            {"p-Q1": "so", "p-Q2": "no", "q-Q1": "hm", "q-Q2": "eh"},
            {"p-Q1": 1, "p-Q2": 2, "q-Q1": 0, "q-Q2": 1},
        ),
        (
            ["text"],
            [["Only answers here."], ["And another."]],
            {"Q1-001": "Only answers here.", "Q1-002": "And another."},
            {},
        ),
    ],
    ids=["german, long", "a form, questions as names", "one question as a name", "numbered columns", "answers alone"],
)
def test_other_tables_are_guessed(
    tmp_path: Path, header: list[str], rows: list[list[str]], answers: dict[str, str], scores: dict[str, float]
) -> None:
    write_csv(tmp_path / "a.csv", header, rows)
    init([tmp_path / "a.csv"], tmp_path / "study.yaml", guess)
    found = read(tmp_path / "study.yaml")
    assert {key: answer[3] for key, answer in found.answers.items()} == answers
    assert found.scores == scores


def test_a_table_of_questions_beside_the_answers(tmp_path: Path) -> None:
    write_csv(
        tmp_path / "answers.csv", ["id", "nr", "text"], [[f"r{n}", "a" if n % 2 else "b", "Because."] for n in range(6)]
    )
    questions = [["a", WHY, FLOATS, "4"], ["b", HOW, SOAP, "2"]]
    write_csv(tmp_path / "questions.csv", ["nr", "wording", "model answer", "max points"], questions)
    said = iter(["text", "", "nr", ""])
    init([tmp_path / "questions.csv", tmp_path / "answers.csv"], tmp_path / "study.yaml", lambda *_: next(said))
    found = read(tmp_path / "study.yaml")
    assert found.items == {"a": (WHY, FLOATS), "b": (HOW, SOAP)}
    assert set(found.answers) == {f"r{n}" for n in range(6)}
    assert points_of(tmp_path / "study.yaml") == {"a": 4, "b": 2}


def test_a_column_that_a_person_names_wrongly_is_an_error_and_nothing_is_written(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ["who", "answer"], [["p", "so"]])
    said = iter(["answer", "whom", "", ""])
    with pytest.raises(InputError, match="there is no column 'whom'; there are who, answer"):
        init([tmp_path / "a.csv"], tmp_path / "study.yaml", lambda *_: next(said))
    assert not (tmp_path / "study.yaml").exists()


def test_a_column_of_answers_that_a_person_names_is_no_question_and_its_name_may_be_one(tmp_path: Path) -> None:
    write_csv(
        tmp_path / "a.csv", ["id", "comment", WHY], [["p", "A long remark of the teacher.", "So."], ["q", "", "No."]]
    )
    guesses = []

    def person(question: str, guess: str) -> str:
        guesses.append(guess)
        return WHY if "answers" in question else guess

    init([tmp_path / "a.csv"], tmp_path / "study.yaml", person)
    assert WHY not in guesses
    found = read(tmp_path / "study.yaml")
    assert {answer[3] for answer in found.answers.values()} == {"So.", "No."}
    assert found.items == {"Q1": (WHY, None)}


@pytest.mark.parametrize(
    ("heading", "asks"),
    [
        ("Describe the water cycle. (4 pts)", True),
        ("What the student wrote down", False),
        ("Remarks by the class", False),
    ],
)
def test_a_heading_that_asks_nothing_is_no_wording(tmp_path: Path, heading: str, asks: bool) -> None:
    write_csv(
        tmp_path / "a.csv", ["id", heading], [["p", "It rains, and runs off to the sea."], ["q", "It just rains."]]
    )
    init([tmp_path / "a.csv"], tmp_path / "study.yaml", guess)
    found = read(tmp_path / "study.yaml")
    ((question, _),) = found.items.values()
    assert (question == heading) == asks
    assert len(found.answers) == 2


def test_the_only_question_is_asked_for(tmp_path: Path) -> None:
    said = iter([WHY])
    init([exports.moodle_assignment(tmp_path)], tmp_path / "study.yaml", lambda *_: next(said))
    assert read(tmp_path / "study.yaml").items == {"Q1": (WHY, None)}


def test_two_columns_of_marks_are_two_raters_though_their_names_differ_by_case_alone(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ["student", "answer", "Mark", "mark"], [["p", "so", "1", "2"], ["q", "no", "0", "1"]])
    init([tmp_path / "a.csv"], tmp_path / "study.yaml", guess)
    (source,) = [source for source in load_study(tmp_path / "study.yaml").data.sources if source.scores]
    assert [(columns.rater, columns.score) for columns in source.scores] == [
        ("mark", "Mark"),
        ("mark (column 2)", "mark"),
    ]


def test_a_workbook_is_looked_at(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (["student", "answer", "mark"], [7, "So.", 1.5], [8, "No.", None]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    started = init([tmp_path / "a.xlsx"], tmp_path / "study.yaml", guess)
    assert "2 answers to 1 question, 1 of them with a mark, at most 2 points" in started.lines[0]


WORDS = [
    "answer",
    "Antwort 1",
    "Antwort 2",
    "text",
    "id",
    "student",
    "Mark",
    "frage",
    "a: b",
    "x # y",
    "n",
    "{n}",
    "no",
]
NAMES = st.one_of(st.sampled_from(WORDS), st.text("a:#{}'\"\\é-,?=1e", min_size=1, max_size=6))
SAID = ["", "1", "2.5", "1e3", "Why so?", "because it is", "<p>so</p>", "- x: y"]
CELLS = st.one_of(st.sampled_from(SAID), st.text(max_size=5))


@given(st.lists(NAMES, min_size=1, max_size=6, unique_by=str.strip), st.data())
def test_what_is_written_for_any_table_can_be_read_or_nothing_is_written(
    header: list[str], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.lists(CELLS, min_size=len(header), max_size=len(header)), min_size=1, max_size=4))
    asked: list[str] = []
    with TemporaryDirectory() as folder:
        study = Path(folder) / "study.yaml"
        write_csv(Path(folder) / "a.csv", header, [[cell.replace("\0", "") for cell in row] for row in rows])
        try:
            init([Path(folder) / "a.csv"], study, lambda q, default: asked.append(q) or default)
        except InputError:
            assert not study.exists()
            return
        assert len(asked) <= MOST_QUESTIONS
        load_study(study)
        assert read(study).answers
        authored(study.with_name("rubrics.yaml"))


def test_nothing_is_asked_for_more_than_five_times(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ["a", "b"], [["one two three four", "x"]])
    asked: list[Any] = []
    init([tmp_path / "a.csv"], tmp_path / "study.yaml", lambda q, default: asked.append(q) or default)
    assert len(asked) == MOST_QUESTIONS
