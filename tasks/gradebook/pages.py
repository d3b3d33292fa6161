"""Feedback as pages: one a student, which holds nothing of others and no words of ours, and one list for the teacher.

Everything on them follows from the tables: no model writes, nothing runs, nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from tasks.display import say
from tasks.display.marked import marked
from tasks.display.page import body, rendered
from tasks.display.section import Page, Section
from tasks.gradebook.book import CriterionLevel, Gradebook, GradedAnswer, GradedQuestion, StudentGrades
from tasks.gradebook.credit import Credit, credit, explains, level_words
from tasks.gradebook.sheets import number
from tasks.text.highlight import Highlight, joined, pieces

TEMPLATE = Path(__file__).with_name("feedback.html.j2")
STYLE = Path(__file__).with_name("feedback.css")
WAITING = "A person is still looking at this answer: it has no score yet."
UNJUDGED = "This answer could not be judged. Please talk to your teacher."
REPEATED = "There is more than one answer to this question: your teacher says which one counts."
NOTHING = Credit((), (), ())


class NumberedCriterion(NamedTuple):
    """A criterion under the number by which the answer's words point to it."""

    number: int
    text: str
    level: str
    """The level in words where it is reached in part."""


@dataclass(frozen=True)
class AnswerPart:
    """What the page says of one answer."""

    score: str | None
    out_of: str
    state: str
    """Why there is no score."""
    text: Markup
    counted: tuple[NumberedCriterion, ...]
    missing: tuple[str, ...]
    cost: tuple[NumberedCriterion, ...]
    note: str | None


class Marking(NamedTuple):
    """What words of the answer stand for."""

    number: int
    earns: bool


def student_page(book: Gradebook, student: StudentGrades) -> str:
    """One student's page: a whole HTML document that needs no other file."""
    sections = tuple(_section(book, student, place) for place in range(len(student.answers)))
    title = say.visible(student.display_name)
    page = Page("Feedback", book.study, title, sections, date=book.graded_on, lead=_lead(book, student))
    return rendered(page, STYLE.read_text(encoding="utf-8"))


def _lead(book: Gradebook, student: StudentGrades) -> str:
    """The points that are sure, and how much is still open."""
    scored = student.scores
    highest = sum(book.questions[item].scale.max for item in scored)
    if not scored:
        return "There is no score yet: a person is still looking at the answers."
    points = f"{number(student.points)} of {number(highest)} points"
    waiting = len(student.open_questions)
    if not waiting:
        return f"{points}."
    return f"{points} so far. {say.plural(waiting, 'question has', 'questions have')} no score yet."


def _section(book: Gradebook, student: StudentGrades, place: int) -> Section:
    answer = student.answers[place]
    question = book.questions[answer.item_id]
    part = answer_part(question, answer, repeated=answer.item_id in student.repeated)
    drawn = body(TEMPLATE, "answered", part, {})
    return Section(f"q{place + 1}", f"Question {place + 1}", say.visible(question.text), body=drawn)


def answer_part(question: GradedQuestion, answer: GradedAnswer, repeated: bool = False) -> AnswerPart:
    """What a student is told of an answer. While it has no score nothing is said of its criteria: who reads them could
    tell the score that nobody has checked. repeated: whether it is not the only answer to its question."""
    counts = answer.final_score is not None and not repeated
    groups = credit(question.bundle, answer.levels) if counts and explains(question, answer) else NOTHING
    return AnswerPart(
        score=str(number(answer.final_score)) if counts else None,
        out_of=str(number(question.scale.max)),
        state=_state(answer, repeated),
        text=_marked(answer.text, groups),
        counted=_numbered(groups.counted, 1),
        missing=tuple(say.visible(criterion.text) for criterion in groups.missing),
        cost=_numbered(groups.cost, 1 + len(groups.counted)),
        note=say.visible(answer.note) if answer.note else None,
    )


def _state(answer: GradedAnswer, repeated: bool) -> str:
    if repeated:
        return REPEATED
    return UNJUDGED if answer.decided_by == "cannot_be_judged" else WAITING


def _numbered(levels: Sequence[CriterionLevel], first: int) -> tuple[NumberedCriterion, ...]:
    criteria = []
    for place, level in enumerate(levels, first):
        text, words = say.visible(level.criterion.text), say.visible(level_words(level))
        criteria.append(NumberedCriterion(place, text, words))
    return tuple(criteria)


def _marked(text: str, groups: Credit) -> Markup:
    """The whole answer with the words that count marked, each run with the numbers of its criteria."""
    highlights: list[Highlight[Marking]] = []
    for place, level in enumerate((*groups.counted, *groups.cost), 1):
        marking = Marking(place, level.criterion.weight > 0)
        highlights += [Highlight(quotation.start, quotation.end, marking) for quotation in level.quotations]
    return marked(pieces(text, joined(highlights)), _kind, lambda marking: marking.number)


def _kind(markings: Sequence[Marking]) -> str:
    return "got" if all(marking.earns for marking in markings) else "lost"


def index_page(book: Gradebook, links: Mapping[int, str]) -> str:
    """The teacher's list of all students. links: place of the student in the gradebook → where their page is."""
    rows = [_row(book, student, links[place]) for place, student in enumerate(book.students)]
    waiting = sum(len(student.open_questions) for student in book.students)
    title = f"{say.plural(len(rows), 'student')}, {say.plural(waiting, 'answer waits', 'answers wait')} for a person"
    lead = "For teachers only: this page names everybody. Give each student the page that their name leads to, alone."
    section = Section("students", "", "Students", body=body(TEMPLATE, "index", rows, {}))
    page = Page("Feedback", book.study, title, (section,), date=book.graded_on, lead=lead)
    return rendered(page, STYLE.read_text(encoding="utf-8"))


def _row(book: Gradebook, student: StudentGrades, link: str) -> dict[str, object]:
    return {
        "link": link,
        "name": say.visible(student.display_name),
        "id": say.visible(student.student or ""),
        "points": number(student.points) if student.scores else "",
        "out_of": number(book.highest),
        "waiting": len(student.open_questions),
    }
