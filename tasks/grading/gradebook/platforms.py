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
    Gradebook,
    GradedAnswer,
    StudentGrades,
    how_reached,
    level_words,
    points_words,
    told_credit,
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
    waiting = sum(bool(student.open_questions - student.unjudged_questions) for student in book.students)
    remarks = [f"{say.plural(len(complete), 'student')} in it"]
    if waiting:
        remarks.append(f"{say.plural(waiting, 'student')} left out: an answer of theirs still waits for a person")
    if unjudged := len(book.students) - len(complete) - waiting:
        remarks.append(f"{say.plural(unjudged, 'student')} left out: an answer of theirs cannot be judged")
    sheet, how = _FORMS[platform](book, complete)
    return PlatformSheet(sheet, (*remarks, how))


def _moodle(book: Gradebook, students: list[StudentGrades]) -> tuple[GradeSheet, str]:
    highest = number(book.highest)
    rows = []
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
    rows: list[tuple[Value, ...]] = [(POINTS, None, None, None, None, number(book.highest))]
    for student in students:
        # Canvas's own id is a number; any other id is one of the school's.
        name, own = student.student or "", (student.student or "").isascii() and (student.student or "").isdigit()
        ids = (name, None, None) if own else (None, name, name)
        rows.append((student.display_name, *ids, student.section, number(student.points)))
    return GradeSheet("canvas", (*CANVAS, book.study), tuple(rows)), (
        f"import it in the gradebook (Import); Canvas asks whether '{book.study}' is a new assignment or an old one, "
        "and shows every change before it is made"
    )


_FORMS: Mapping[Platform, Callable[[Gradebook, list[StudentGrades]], tuple[GradeSheet, str]]] = {
    "moodle": _moodle,
    "canvas": _canvas,
}


def _lines(book: Gradebook, answer: GradedAnswer) -> Iterator[str]:
    question = book.questions[answer.item_id]
    out_of = number(question.scale.max)
    yield f"{say.question(answer.item_id, question.text)}: {points_words(answer.final_score)} of {out_of}"
    yield how_reached(question, answer)
    groups, counted = told_credit(question, answer), []
    for level in groups.counted:
        words = level_words(level)  # of a level that is reached in part
        counted.append(f"{level.criterion.text} ({words})" if words else level.criterion.text)
    missing = [criterion.text for criterion in groups.missing]
    cost = [level.criterion.text for level in groups.cost]
    for title, texts in (("Counted", counted), ("Missing", missing), ("Cost points", cost)):
        if texts:
            yield f"{title}: {'; '.join(text.rstrip('. ') for text in texts)}"
    if answer.note:
        yield f"Your teacher: {answer.note}"
