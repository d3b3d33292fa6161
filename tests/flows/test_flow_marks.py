"""A class of which people marked a part, from the file to the grades, the feedback and the review page, and back."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from builders.files import read_csv, write_csv
from tiny_study import make_study

from rubricflow.flows import gradebook
from rubricflow.flows.grade import grade
from rubricflow.flows.review import board_of
from rubricflow.flows.votes import export_votes
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.people.review.board import Board
from rubricflow.tasks.people.review.ledger import Act, Ledger, ledger_file
from rubricflow.tasks.people.review.reviews import Reviews
from rubricflow.tasks.people.review.view import list_cases, show_case

COUNT = 16
NOTE = "Die Wärme hast du gut erklärt."
Marks = Mapping[int, tuple[str, str]]
"""Number of the answer → the marks of raters one and two, '' for none."""
HALF: Marks = {0: ("3", ""), 2: ("4", "2"), 5: ("", "1"), 6: ("2", "3"), 8: ("2", "2"), 11: ("0", ""), 12: ("", "4")}


def class_of(folder: Path, marks: Marks, more: str = "") -> Path:
    """A study of answers x0, x1, … by students s0, s1, …, with these marks; `more` is added to its file."""
    study = make_study(folder, COUNT)
    rows = []
    for n in range(COUNT):
        one, two = marks.get(n, ("", ""))
        rows.append([f"x{n}", "ab"[n % 2], f"s{n}", f"answer {n} " + "word " * ((n * 7) % 5), one, two])
        rows[-1].append(NOTE if n in marks else "")
    write_csv(folder / "answers.csv", ["id", "item", "student", "text", "one", "two", "Kommentar"], rows)
    text = study.read_text()
    text = text.replace("text: text}", "text: text, author_id: student}").replace(
        "      groups: {school: school}\n", ""
    )
    text = text.replace("score: one}", "score: one, notes: Kommentar}").replace("target: one, draws: 50", "draws: 0")
    study.write_text(text + more)
    return study


def grades(study: Path, house: Path) -> dict[str, dict[str, str]]:
    to = study.parent / "grades.csv"
    gradebook.grades(str(study), to, overwrite=True, warehouse=str(house))
    return {row["student"]: row for row in read_csv(to)}


def pages(study: Path, house: Path) -> dict[str, str]:
    """Student → what they read."""
    gradebook.feedback(str(study), study.parent / "feedback", warehouse=str(house))
    found = {}
    for path in (study.parent / "feedback" / "students").glob("*.html"):
        text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        found[path.name.split("-")[0]] = re.sub(r"\s+", " ", unescape(text))
    return found


def decide(board: Board, house: Path, name: str, value: str) -> None:
    (ballot,) = (one for one in board.ballots(board.cases[board.places[name]]) if one["criterion_id"] is None)
    fixed: dict[str, Any] = {
        "study": "tiny",
        "subject_kind": "score",
        "response_id": name,
        "criterion_id": None,
        "rater_id": "eva",
    }
    with Ledger(ledger_file(house)) as ledger:
        acts: list[tuple[Any, str | None, str]] = [("vote", value, ballot["digest"]), ("submit", None, "")]
        for kind, said, about in acts:
            ledger.add(Act(**fixed, act_id=str(uuid.uuid4()), kind=kind, value=said, digest=about))


def mean(given: tuple[str, str]) -> float:
    numbers = [float(mark) for mark in given if mark]
    return sum(numbers) / len(numbers)


def test_what_people_marked_stands_everywhere_as_theirs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, house = class_of(tmp_path, HALF), tmp_path / "house"
    grade(str(study), str(house))
    said = capsys.readouterr().out
    assert f"{len(HALF)} answers have people's scores." in " ".join(said.split())
    (report,) = house.glob("tiny-*/report.html")
    assert f"{len(HALF)} answers have people&#39;s scores." in report.read_text(encoding="utf-8")

    rows = grades(study, house)
    assert {name: float(row["score"]) for name, row in rows.items() if row["state"] == "marked by a person"} == {
        f"s{n}": mean(given) for n, given in HALF.items()
    }
    assert (rows["s2"]["settled_by"], rows["s5"]["settled_by"]) == ("marked 4 by one and 2 by two", "marked 1 by two")
    assert all(not rows[f"s{n}"]["route_reason"] for n in HALF)
    assert rows["s1"]["score"] == ""

    read = pages(study, house)
    assert "3 of 4 points" in read["s0"]
    assert NOTE in read["s2"]
    assert "From your teacher" not in read["s1"]

    board = board_of(study, house)
    marked = {f"x{n}" for n in HALF}
    assert {case.response_id for case in board.cases if case.marked} == marked
    assert [case.marked for case in board.cases] == sorted(case.marked for case in board.cases)
    reviews = Reviews(board)
    shown = show_case(reviews, board.cases[board.places["x2"]], "eva")
    assert (shown["why"], shown["marked"]) == ("Marked 4 by \u2068one\u2069 and 2 by \u2068two\u2069: 3 counts", True)
    assert {row["response_id"] for row in list_cases(reviews, "eva")["cases"] if not row["asked"]} == marked
    assert export_votes(study, house, None, tmp_path / "queue.csv") == COUNT - len(HALF)

    decide(board, house, "x2", "1")
    decide(board, house, "x1", "4")
    rows = grades(study, house)
    assert [(rows[name]["score"], rows[name]["state"]) for name in ("s1", "s2")] == [
        ("4", "settled by a person"),
        ("1", "settled by a person"),
    ]
    assert "1 of 4 points" in pages(study, house)["s2"]

    # A mark that changes in the file after that is the latest decision; what else was decided stays.
    class_of(tmp_path, {**HALF, 2: ("4", "4")})
    with pytest.raises(InputError, match="not graded"):
        grades(study, house)
    grade(str(study), str(house))
    rows = grades(study, house)
    assert [(rows[name]["score"], rows[name]["state"]) for name in ("s1", "s2")] == [
        ("4", "settled by a person"),
        ("4", "marked by a person"),
    ]
    steps = [line.split(" (")[0] for line in rows["s2"]["history"].split("\n")]
    assert steps[1:] == ["4", "2", "1", "4"]
    case = next(case for case in board_of(study, house).cases if case.response_id == "x2")
    assert len(case.history) == len(steps)


def test_a_class_of_which_all_is_marked_asks_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marks = {n: (str(n % 5), str((n + 1) % 5) if n % 3 else "") for n in range(COUNT)}
    study, house = class_of(tmp_path, marks), tmp_path / "house"
    grade(str(study), str(house))
    assert f"{COUNT} answers have people's scores." in " ".join(capsys.readouterr().out.split())
    rows = grades(study, house)
    assert {name: float(row["score"]) for name, row in rows.items()} == {f"s{n}": mean(of) for n, of in marks.items()}
    assert all(case.marked for case in board_of(study, house).cases)
    with pytest.raises(InputError, match="waits for people"):
        export_votes(study, house, None, tmp_path / "queue.csv")


@pytest.mark.parametrize(("marks", "more"), [({}, ""), (HALF, "marks: calibrate\n")])
def test_without_marks_or_where_they_only_calibrate_the_machine_and_the_page_decide(
    tmp_path: Path, marks: Marks, more: str, capsys: pytest.CaptureFixture[str]
) -> None:
    study, house = class_of(tmp_path, marks, more), tmp_path / "house"
    grade(str(study), str(house))
    assert "marked by people" not in capsys.readouterr().out
    assert "marked by a person" not in {row["state"] for row in grades(study, house).values()}
    assert not any(case.marked for case in board_of(study, house).cases)
