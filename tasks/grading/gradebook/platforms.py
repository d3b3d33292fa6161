"""The gradebook in the form in which learning platforms take grades: one total a student, and no student who waits.

Moodle: the grading worksheet of an assignment, found by its English column names. Canvas: the import of the gradebook,
found by the order of its first columns; an empty cell there would take a grade away, so nobody has one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Literal, NamedTuple

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.display import say
from rubricflow.tasks.grading.gradebook.book import (
    CriterionLevel,
    Gradebook,
    GradedAnswer,
    StudentGrades,
    credit,
    explains,
    level_words,
)
from rubricflow.tasks.grading.gradebook.sheets import GradeSheet, Value, number

Platform = Literal["moodle", "canvas"]
MOODLE = (
    "Identifier",
    "Full name",
    "Email address",
    "Grade",
    "Maximum Grade",
    "Last modified (grade)",
    "Feedback comments",
)
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
POINTS = "    Points Possible"
"""The row below Canvas's header that says how much an assignment is worth begins with this."""


class PlatformSheet(NamedTuple):
    """A sheet for a platform, and what its user has to know."""

    sheet: GradeSheet
    remarks: tuple[str, ...]


def platform_sheet(book: Gradebook, platform: Platform) -> PlatformSheet:
    """The totals of the students of whom nothing waits. InputError where an answer names no student."""
    nameless = sum(student.student is None for student in book.students)
    if nameless:
        rule = f"{say.plural(nameless, 'answer names', 'answers name')} no student, so that nobody can get the grade"
        raise InputError(rule, hint="map the column of the student's id in the study file: author_id")
    complete = [student for student in book.students if not student.open_questions]
    waiting = len(book.students) - len(complete)
    remarks = [f"{say.plural(len(complete), 'student')} in it"]
    if waiting:
        remarks.append(f"{say.plural(waiting, 'student')} left out: an answer of theirs still waits for a person")
    sheet, how = _FORMS[platform](book, complete)
    return PlatformSheet(sheet, (*remarks, how))


def _moodle(book: Gradebook, students: list[StudentGrades]) -> tuple[GradeSheet, str]:
    highest = number(book.highest)
    rows: list[tuple[Value, ...]] = []
    for student in students:
        address = student.student if "@" in (student.student or "") else None
        names = (student.student, student.name, address)
        # Feedback on all answers as Moodle keeps it, in HTML
        paragraphs = ("<br>".join(map(escape, _lines(book, answer))) for answer in student.answers)
        rows.append(
            (*names, number(student.points), highest, None, "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs))
        )
    return GradeSheet("moodle", MOODLE, tuple(rows)), (
        f"upload it in the assignment (View all submissions > Upload grading worksheet), whose maximum grade has to be "
        f"{highest}; where the identifiers are not Moodle's own (Participant 123), import it in the gradebook instead "
        "(Grades > Import > CSV) and map Identifier to ID number, username or email address"
    )


def _canvas(book: Gradebook, students: list[StudentGrades]) -> tuple[GradeSheet, str]:
    points: tuple[Value, ...] = (POINTS, None, None, None, None, number(book.highest))
    rows = [(*_canvas_names(student), number(student.points)) for student in students]
    return GradeSheet("canvas", (*CANVAS, book.study), (points, *rows)), (
        f"import it in the gradebook (Import); Canvas asks whether '{book.study}' is a new assignment or an old one, "
        "and shows every change before it is made"
    )


def _canvas_names(student: StudentGrades) -> tuple[Value, ...]:
    """Canvas's own id is a number; any other id is one of the school's."""
    student_id = student.student or ""
    canvas_id = student_id if student_id.isascii() and student_id.isdigit() else None
    school_id = None if canvas_id else student_id
    return student.display_name, canvas_id, school_id, school_id, student.section


_FORMS: Mapping[Platform, Callable[[Gradebook, list[StudentGrades]], tuple[GradeSheet, str]]] = {
    "moodle": _moodle,
    "canvas": _canvas,
}


def _lines(book: Gradebook, answer: GradedAnswer) -> Iterator[str]:
    question = book.questions[answer.item_id]
    yield f"{say.question(answer.item_id, question.text)}: {number(answer.final_score)} of {number(question.scale.max)}"
    if explains(question, answer):
        groups = credit(question.bundle, answer.levels)
        yield from _listed("Counted", [_with_level(level) for level in groups.counted])
        yield from _listed("Missing", [criterion.text for criterion in groups.missing])
        yield from _listed("Cost points", [level.criterion.text for level in groups.cost])
    if answer.note:
        yield f"Your teacher: {answer.note}"


def _with_level(level: CriterionLevel) -> str:
    """The criterion's text, with the level in words where it is reached in part."""
    words = level_words(level)
    return f"{level.criterion.text} ({words})" if words else level.criterion.text


def _listed(title: str, texts: list[str]) -> Iterator[str]:
    if texts:
        yield f"{title}: {'; '.join(text.rstrip('. ') for text in texts)}"
