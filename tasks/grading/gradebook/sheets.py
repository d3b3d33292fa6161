"""The gradebook as sheets: a row an answer, or a row a student, and what there is to know about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from itertools import chain
from typing import Any, TypeAlias

from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS
from rubricflow.tasks.core.contracts.tables.judging import UNSCORED_REASONS
from rubricflow.tasks.core.contracts.tables.people import SCORE_SETTLED
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.reasons import against_constant, marked_by, score_step
from rubricflow.tasks.grading.gradebook.book import (
    CriterionLevel,
    DecidedBy,
    Gradebook,
    GradedAnswer,
    GradedQuestion,
    StudentGrades,
)

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
    "waiting": "how many questions the student answered that have no score yet",
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
    by_machine = answer.decided_by == "machine"
    return {
        "student": answer.student,
        "student_name": answer.student_name,
        "question": say.question(answer.item_id, book.questions[answer.item_id].text),
        "answer_id": answer.response_id,
        "score": number(answer.final_score),
        UNCHECKED: number(answer.machine_score) if answer.waits else None,
        "out_of": number(book.questions[answer.item_id].scale.max),
        "state": MARKED if answer.stands_as_marked else STATES[answer.decided_by],
        "low": number(answer.low) if by_machine else None,
        "high": number(answer.high) if by_machine else None,
        "route": answer.route and ("released" if answer.route == "release" else "to a person"),
        "route_reason": answer.route
        and {**ROUTE_REASONS, **UNSCORED_REASONS}.get(answer.unscored_reason or answer.route_reason or ""),
        "settled_by": _settled_by(answer),
        "note": answer.note,
        "criteria": "\n".join(map(_criterion, answer.levels)) or None,
        # It begins with the machine's score, which nobody has checked while the answer waits.
        "history": None if answer.waits else "\n".join(map(score_step, answer.history)) or None,
    }


def _settled_by(answer: GradedAnswer) -> str | None:
    if answer.settled_by == "marked":
        return say.plain(marked_by(answer.marks))
    return SCORE_SETTLED.get(answer.settled_by or "")


def _criterion(level: CriterionLevel) -> str:
    reached = "not decided" if level.level is None else f"{level.level} of {level.criterion.top}"
    quotes = ", ".join(f"“{quotation.text}”" for quotation in level.quotations)
    return f"{level.criterion.text.rstrip('. ')}: {reached}" + (f" ({quotes})" if quotes else "")


def student_sheet(book: Gradebook, include_waiting: bool = False) -> GradeSheet:
    """A row for every student, a column for every question. include_waiting: after each question a column of its own
    for scores that nobody has checked."""
    columns = chain.from_iterable(_question_columns(question, include_waiting) for question in book.questions.values())
    has_names = any(student.name for student in book.students)
    first = ("student", "student_name") if has_names else ("student",)
    last = tuple(name for name in STUDENT_COLUMNS if name not in ("student", "student_name"))
    rows = []
    for student in book.students:
        names: tuple[Value, ...] = (
            student.student if student.student is not None else student.display_name,
            student.name,
        )
        scores = chain.from_iterable(_question_cells(student, item, include_waiting) for item in book.questions)
        answered = {answer.item_id for answer in student.answers}
        waiting = len(student.open_questions)
        total = None if waiting else number(student.points)
        totals = (total, number(student.points), number(book.highest), waiting, len(book.questions) - len(answered))
        rows.append((*names[: len(first)], *scores, *totals))
    return GradeSheet("Grades", (*first, *columns, *last), tuple(rows))


def _question_columns(question: GradedQuestion, include_waiting: bool) -> list[str]:
    shown = say.question(question.item_id, question.text)
    name = f"question {shown}" if shown in STUDENT_COLUMNS else shown
    return [name, f"{name} {UNCHECKED}"] if include_waiting else [name]


def _question_cells(student: StudentGrades, item: str, include_waiting: bool) -> list[Value]:
    cells = [number(student.scores.get(item))]
    if include_waiting:
        waiting = [answer for answer in student.answers if answer.item_id == item and answer.waits]
        cells.append(number(waiting[0].machine_score) if len(waiting) == 1 else None)
    return cells


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
    rows += [("promise", promise_words(rule, _released(book, rule["scope"]))) for rule in book.promises]
    marked = sum(answer.stands_as_marked for answer in book.answers)
    counts = {MARKED: marked} if marked else {}
    counts |= {words: book.count(name) - marked * (name == "person") for name, words in STATES.items()}
    rows += [(words, say.plural(some, "answer")) for words, some in counts.items()]
    rows += [(f"question {item}", question.text) for item, question in book.questions.items()]
    rows += [(f"column {name}", meaning) for name, meaning in meanings.items()]
    if wide:
        rows.append(("other columns", "a question each: the score that goes out, empty where there is none"))
    return GradeSheet("About", ("what", "is"), tuple(rows))


def _released(book: Gradebook, scope: str) -> int:
    """How many scores the machine released of the questions that a promise is about."""
    answers = [answer for answer in book.answers if scope in ("all", answer.item_id)]
    return sum(answer.route == "release" for answer in answers)


def promise_words(rule: Mapping[str, Any], released: int) -> str:
    """A row of `release_rules` as one sentence, which promises nothing where nothing is released."""
    where = "" if rule["scope"] == "all" else f"Question {rule['scope']}: "
    if rule["threshold"] is None:
        return f"{where}nothing is released by the machine: {rule['note'] or 'no promise can be kept'}"
    if not released:
        return f"{where}nothing is released by the machine: every answer needs a person for a reason of its own"
    share, tolerance = say.rate(rule["target"]), rule["tolerance"]
    steps = f"{tolerance:g} {'step' if tolerance == 1 else 'steps'}"
    sure = f"promised with {say.rate(rule['confidence'])} confidence, from {say.plural(rule['n'], 'marked answer')}"
    return (
        f"{where}of the released scores at most {share} are more than {steps} from a person's score; {sure}; on these "
        f"{against_constant(rule)}"
    )


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
