"""The folder of feedback: names that nobody guesses by accident, and pages of earlier times taken away.

Feedback as pages: one a student, which holds nothing of others and no words of ours, and one list for the teacher.

Everything on them follows from the tables: no model writes, nothing runs, nothing is fetched.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.marked import marked
from rubricflow.tasks.core.display.page import body, rendered
from rubricflow.tasks.core.display.section import Page, Section
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.store.recorded import remember_feedback
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.text.highlight import Highlight, joined, pieces
from rubricflow.tasks.grading.gradebook.book import (
    CriterionLevel,
    Gradebook,
    GradedAnswer,
    GradedQuestion,
    StudentGrades,
)
from rubricflow.tasks.grading.gradebook.credit import Credit, credit, explains, level_words, parted
from rubricflow.tasks.grading.gradebook.sheets import number

MARKER = ".rubricflow-feedback.json"
"""What says that a folder is ours: its secret and the pages in it."""
INDEX = "index.html"
PAGES = "students"
"""The folder of the pages that go to students, apart from the teacher's list."""
_SLUG = 40
_NUMBERED = re.compile("Q[0-9]{1,9}")
_SECRET = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class FeedbackFolder:
    """A folder of ours. secret: goes into the names of pages, so that who knows an id knows no other's page."""

    folder: Path
    secret: str
    pages: frozenset[str]
    """Names of the pages that were written before."""


def write_feedback(book: Gradebook, run: Run, to: Path) -> int:
    """Write a page for every student and the teacher's list; returns how many pages. InputError where the folder holds
    other things."""
    ours = opened(to)
    names = [page_name(student, ours.secret) for student in book.students]
    # The marker first: a killed writer then leaves no page that nobody knows of.
    _mark(ours, ours.pages | set(names))
    for student, name in zip(book.students, names, strict=True):
        write_atomically(to / PAGES / name, student_page(book, student).encode())
    links = {place: f"{PAGES}/{name}" for place, name in enumerate(names)}
    write_atomically(to / INDEX, index_page(book, links).encode())
    for name in ours.pages - set(names):
        (to / PAGES / name).unlink(missing_ok=True)
    _mark(ours, set(names))
    pages: dict[str, str] = {}
    for place, student in enumerate(book.students):
        pages |= {answer.response_id: links[place] for answer in student.answers}
    remember_feedback(run, to, pages)
    return len(names)


def opened(folder: Path) -> FeedbackFolder:
    """A folder of ours, or a new or empty one; InputError for any other."""
    try:
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            return FeedbackFolder(folder, secrets.token_hex(16), frozenset())
        record = json.loads((folder / MARKER).read_bytes())
        secret, pages = record["secret"], record["pages"]
        if not _SECRET.fullmatch(secret) or any(Path(name).name != name for name in pages):
            raise ValueError("it was changed")
    except (OSError, ValueError, KeyError, TypeError) as error:
        rule = "holds other things than feedback that rubricflow wrote"
        raise InputError(rule, file=folder, hint="name a new folder") from error
    return FeedbackFolder(folder, secret, frozenset(pages))


def page_name(student: StudentGrades, secret: str) -> str:
    """The file of a student's page: what can be read of the id, and a digest that nobody makes without the secret."""
    kind, name = ("answer", student.answers[0].response_id) if student.student is None else ("student", student.student)
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    slug = re.sub("[^a-z0-9]+", "-", letters)[:_SLUG].strip("-") or kind
    keyed = f"{secret}:{kind}:{name}".encode(errors="surrogatepass")
    return f"{slug}-{hashlib.sha256(keyed).hexdigest()[:16]}.html"


def _mark(ours: FeedbackFolder, pages: set[str] | frozenset[str]) -> None:
    record = {"secret": ours.secret, "pages": sorted(pages)}
    write_atomically(ours.folder / MARKER, json.dumps(record, indent=1).encode())


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
    parted: str
    """Where the score is not what the criteria come to, in a sentence; '' otherwise."""
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
    points = f"{_points(student.points)} of {number(highest)} points"
    waiting = len(student.open_questions)
    if not waiting:
        return f"{points}."
    return f"{points} so far. {say.plural(waiting, 'question has', 'questions have')} no score yet."


def _section(book: Gradebook, student: StudentGrades, place: int) -> Section:
    answer = student.answers[place]
    question = book.questions[answer.item_id]
    part = answer_part(question, answer, repeated=answer.item_id in student.repeated)
    drawn = body(TEMPLATE, "answered", part)
    own_number = answer.item_id[1:] if _NUMBERED.fullmatch(answer.item_id) else place + 1
    return Section(f"q{place + 1}", f"Question {own_number}", say.visible(question.text), body=drawn)


def answer_part(question: GradedQuestion, answer: GradedAnswer, repeated: bool = False) -> AnswerPart:
    """What a student is told of an answer. While it has no score nothing is said of its criteria: who reads them could
    tell the score that nobody has checked. repeated: whether it is not the only answer to its question."""
    counts = answer.final_score is not None and not repeated
    explained = counts and explains(question, answer)
    groups = credit(question.bundle, answer.levels) if explained else NOTHING
    points = parted(answer) if explained else None
    if points is not None and not answer.levels_are_peoples and points < (answer.final_score or 0):
        # The teacher found more in the answer than these criteria: what they miss may be what was found.
        groups = groups._replace(missing=())
    return AnswerPart(
        score=_points(answer.final_score) if counts else None,
        out_of=str(number(question.scale.max)),
        state=_state(answer, repeated),
        parted="" if points is None else _parted(answer, points, bool(groups.counted)),
        text=_marked(answer.text, groups),
        counted=_numbered(groups.counted, 1),
        missing=tuple(say.visible(criterion.text) for criterion in groups.missing),
        cost=_numbered(groups.cost, 1 + len(groups.counted)),
        note=say.visible(answer.note) if answer.note else None,
    )


def _points(score: float | None) -> str:
    """A score to read: a mean of several marks may have no end."""
    return str(number(None if score is None else round(score, 3)))


def _parted(answer: GradedAnswer, points: float, counted: bool) -> str:
    """Where the person's score and the criteria part."""
    who = "Your teachers" if len(answer.marks) > 1 else "Your teacher"
    criteria = "the criteria listed here" if counted else "the rubric's criteria alone"
    return f"{who} gave {_points(answer.final_score)}; {criteria} make {_points(points)}."


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
    section = Section("students", "", "Students", body=body(TEMPLATE, "index", rows))
    page = Page("Feedback", book.study, title, (section,), date=book.graded_on, lead=lead)
    return rendered(page, STYLE.read_text(encoding="utf-8"))


def _row(book: Gradebook, student: StudentGrades, link: str) -> dict[str, object]:
    return {
        "link": link,
        "name": say.visible(student.display_name),
        "id": say.visible(student.student or ""),
        "points": _points(student.points) if student.scores else "",
        "out_of": number(book.highest),
        "waiting": len(student.open_questions),
    }
