"""The gradebook as sheets: a row an answer, or a row a student, and what there is to know about them; and sheets as CSV
and Excel workbooks. No cell of them runs as a formula, and numbers are numbers.

In a CSV file an apostrophe goes before what a spreadsheet would run. A workbook says of each cell what it is, so that
texts stay as they are. Learning platforms take one total a student, and no student who waits: Moodle's grading
worksheet of an assignment is found by its English column names, Canvas's import by the order of its first columns.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias, cast

from openpyxl import Workbook
from openpyxl.cell.cell import Cell
from openpyxl.styles import Alignment, Font
from openpyxl.utils import get_column_letter

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS
from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.contracts.tables.people import SCORE_SETTLED
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.verdict import against_constant, marked_by, score_step
from rubricflow.tasks.core.text.formulas import guarded
from rubricflow.tasks.grading.gradebook.book import (
    DecidedBy,
    Gradebook,
    GradedAnswer,
    StudentGrades,
    how_reached,
    level_words,
    points_words,
    told_credit,
)

LONGEST = 32_000
"""Characters of a cell; Excel's holds 32,767."""
NARROWEST, WIDEST = 8, 60
"""Characters of a column."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
Value: TypeAlias = str | int | float | None
UNCHECKED = "score_not_checked_by_a_person"
"""The column of scores that wait: its name says what they are."""
STATES: Mapping[DecidedBy, str] = {
    "machine": "released",
    "person": "settled by a person",
    "waits": "waits for a person",
    "cannot_be_judged": "cannot be judged",
}
MARKED = "marked by a person"
ANSWER_COLUMNS: Mapping[str, str] = {
    "student": "the student's id, as the data give it",
    "student_name": "the student's name, where the data give it",
    "question": "the question, a number with the beginning of its wording",
    "answer_id": "the answer's id",
    "score": "the score that goes out; empty where the answer waits for a person",
    UNCHECKED: "the machine's score of an answer that waits: no grade, nobody has looked at it",
    "out_of": "the highest score of the question",
    "state": "released, marked by a person, settled by a person, waits for a person, or cannot be judged",
    "low": "lowest score that a person is likely to give, where the machine's score goes out",
    "high": "highest such score",
    "route": "whether the machine's score was released or sent to a person; empty where people marked the answer",
    "route_reason": "why it was sent to a person",
    "settled_by": "how people settled the score, or who marked the answer",
    "note": "what the teacher says to the student",
    "criteria": "each criterion with the level reached and the words that show it",
    "history": "the scores on the way to the last one: who gave them, when and why",
}
STUDENT_COLUMNS: Mapping[str, str] = {
    "student": ANSWER_COLUMNS["student"],
    "student_name": ANSWER_COLUMNS["student_name"],
    "total": "the points of all questions; empty while anything waits",
    "so_far": "the points of the questions that have a score",
    "out_of": "the highest points of all questions",
    "waiting": "how many questions the student answered that have no score",
    "not_answered": "how many questions the student did not answer",
}


@dataclass(frozen=True)
class GradeSheet:
    """A table for people: rows as wide as the header."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def answer_sheet(book: Gradebook, include_waiting: bool = False) -> GradeSheet:
    """A row for every answer. include_waiting: a column of its own for scores that nobody has checked."""
    left_out = {UNCHECKED} if not include_waiting else set()
    if not any(answer.student_name for answer in book.answers):
        left_out.add("student_name")
    header = tuple(name for name in ANSWER_COLUMNS if name not in left_out)
    rows = []
    for answer in book.answers:
        cells = _answer_cells(book, answer)
        rows.append(tuple(cells[name] for name in header))
    return GradeSheet("Grades", header, tuple(rows))


def _answer_cells(book: Gradebook, answer: GradedAnswer) -> dict[str, Value]:
    question = book.questions[answer.item_id]
    low, high = (answer.low, answer.high) if answer.decided_by == "machine" else (None, None)
    reasons = {**ROUTE_REASONS, **UNSCORED_REASONS}
    settled_by = SCORE_SETTLED.get(answer.settled_by or "")
    if answer.settled_by == "marked":
        settled_by = say.plain(marked_by(answer.marks))
    criteria = []
    for criterion, level, quotations in answer.levels:
        reached = "not decided" if level is None else f"{level} of {criterion.top}"
        quotes = ", ".join(f"“{quotation.text}”" for quotation in quotations)
        criteria.append(f"{criterion.text.rstrip('. ')}: {reached}" + (f" ({quotes})" if quotes else ""))
    return {
        "student": answer.student,
        "student_name": answer.student_name,
        "question": say.question(answer.item_id, question.text),
        "answer_id": answer.response_id,
        "score": number(answer.final_score),
        UNCHECKED: number(answer.machine_score) if answer.waits else None,
        "out_of": number(question.scale.max),
        "state": MARKED if answer.stands_as_marked else STATES[answer.decided_by],
        "low": number(low),
        "high": number(high),
        "route": answer.route and ("released" if answer.route == "release" else "to a person"),
        "route_reason": answer.route and reasons.get(answer.unscored_reason or answer.route_reason or ""),
        "settled_by": settled_by,
        "note": answer.note,
        "criteria": "\n".join(criteria) or None,
        # It begins with the machine's score, which nobody has checked while the answer waits.
        "history": None if answer.waits else "\n".join(map(score_step, answer.history)) or None,
    }


def student_sheet(book: Gradebook, include_waiting: bool = False) -> GradeSheet:
    """A row for every student, a column for every question. include_waiting: after each question a column of its own
    for scores that nobody has checked."""
    header = ["student", "student_name"] if any(student.name for student in book.students) else ["student"]
    names = len(header)
    for question in book.questions.values():
        shown = say.question(question.item_id, question.text)
        name = f"question {shown}" if shown in STUDENT_COLUMNS else shown
        header += [name, f"{name} {UNCHECKED}"] if include_waiting else [name]
    rows = []
    for student in book.students:
        row: list[Value] = [student.student if student.student is not None else student.display_name, student.name]
        row = row[:names]
        for item in book.questions:
            row.append(number(student.scores.get(item)))
            if include_waiting:
                waiting = [
                    answer.machine_score for answer in student.answers if answer.item_id == item and answer.waits
                ]
                row.append(number(waiting[0]) if len(waiting) == 1 else None)
        points = number(student.points)
        unscored = len(student.open_questions)
        unanswered = len(book.questions) - len({answer.item_id for answer in student.answers})
        rows.append((*row, None if unscored else points, points, number(book.highest), unscored, unanswered))
    return GradeSheet("Grades", (*header, *[*STUDENT_COLUMNS][2:]), tuple(rows))


def about_sheet(book: Gradebook, wide: bool) -> GradeSheet:
    """What there is to know: the run, its promise, how many scores there are of each kind, and what columns mean."""
    meanings = STUDENT_COLUMNS if wide else ANSWER_COLUMNS
    rows: list[tuple[Value, ...]] = [
        ("study", book.study),
        ("run", book.run_id),
        ("graded on", book.graded_on),
        ("written on", date.today().isoformat()),
        ("graded by", book.rater),
    ]
    said = {"verdict": book.verdict.sentence, "promise": book.verdict.promise, "caution": book.verdict.caution}
    rows += [(name, words) for name, words in said.items() if words]
    for rule in book.promises:
        where = f"promise of {'all questions' if rule['scope'] == 'all' else rule['scope']}"
        if rule["threshold"] is None:
            rows.append((where, f"nothing is released by the machine: {rule['note'] or 'no promise can be kept'}"))
        elif book.verdict.released:
            rows.append((where, against_constant(rule)))
    marked = sum(answer.stands_as_marked for answer in book.answers)
    counts = {MARKED: marked} if marked else {}
    counts |= {words: book.count(name) - marked * (name == "person") for name, words in STATES.items()}
    rows += [(words, say.plural(some, "answer")) for words, some in counts.items()]
    rows += [(f"question {item}", question.text) for item, question in book.questions.items()]
    rows += [(f"column {name}", meaning) for name, meaning in meanings.items()]
    if wide:
        rows.append(("other columns", "a question each: the score that goes out, empty where there is none"))
    return GradeSheet("About", ("what", "is"), tuple(rows))


def number(value: float | None) -> Value:
    """A score as a cell: a whole number without a decimal point."""
    if value is None:
        return None
    rounded = round(value, 9)
    return int(rounded) if float(rounded).is_integer() else rounded


def totals(book: Gradebook) -> list[str]:
    """How many answers have a score and how many wait, in sentences."""
    machine, person = book.count("machine"), book.count("person")
    waiting, unjudged = book.count("waits"), book.count("cannot_be_judged")
    marked = sum(answer.stands_as_marked for answer in book.answers)
    by_people = f"{marked:,} marked by people, " if marked else ""
    lines = [
        f"{machine + person:,} of {say.plural(len(book.answers), 'answer')} have a score: "
        f"{by_people}{machine:,} released, {person - marked:,} settled by a person"
    ]
    if waiting:
        lines.append(f"{say.plural(waiting, 'answer waits', 'answers wait')} for a person")
    if unjudged:
        lines.append(f"{say.plural(unjudged, 'answer')} cannot be judged, as people said")
    return lines


# Sheets as files.


def as_csv(sheet: GradeSheet, for_spreadsheets: bool = True) -> bytes:
    """The sheet as CSV in UTF-8. for_spreadsheets: with a byte order mark, by which Excel knows the encoding."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([guarded(_readable(name)) for name in sheet.header])
    for row in sheet.rows:
        writer.writerow([guarded(_readable(cell)) if isinstance(cell, str) else cell for cell in row])
    content = text.getvalue().encode()
    return _BYTE_ORDER_MARK + content if for_spreadsheets else content


def as_workbook(sheets: Sequence[GradeSheet]) -> bytes:
    """The sheets as an Excel workbook, each with a header that stays in view and columns as wide as their texts."""
    workbook = Workbook()
    workbook.remove(workbook.worksheets[0])
    for sheet in sheets:
        page = workbook.create_sheet(sheet.title)
        for row, cells in enumerate((sheet.header, *sheet.rows), 1):
            for column, value in enumerate(cells, 1):
                _write(cast(Cell, page.cell(row, column)), value)
        for column, cells in enumerate(zip(sheet.header, *sheet.rows, strict=True), 1):
            lines = chain.from_iterable(str(cell).split("\n") for cell in cells if cell is not None)
            width = min(WIDEST, max(NARROWEST, 2 + max(map(len, lines))))
            page.cell(1, column).font = Font(bold=True)
            page.column_dimensions[get_column_letter(column)].width = width
        page.freeze_panes = "A2"
    file = io.BytesIO()
    workbook.save(file)
    return file.getvalue()


def _write(cell: Cell, value: Value) -> None:
    """A text is marked as one, or Excel would run what begins with an equals sign."""
    if not isinstance(value, str):
        cell.value = value
        return
    if not value:
        return
    cell.value = _readable(value)
    cell.data_type = "s"
    cell.quotePrefix = True
    cell.alignment = Alignment(wrap_text=True, vertical="top")


def _readable(text: str) -> str:
    """A text as a cell can hold it: line breaks of one kind, nothing that cannot be seen, not too long."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    shown = say.visible(lines).replace("\ufffe", "⟨U+FFFE⟩").replace("\uffff", "⟨U+FFFF⟩")
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}\n[… cut here]"


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
        name = student.student or ""
        own = (student.student or "").isascii() and (student.student or "").isdigit()
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
