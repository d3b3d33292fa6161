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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import Page, Section, body, marked, rendered
from rubricflow.tasks.core.store.catalogue import remember_feedback
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.text.highlight import Highlight, joined, pieces
from rubricflow.tasks.core.text.traces import headings
from rubricflow.tasks.grading.gradebook.book import (
    Credit,
    Gradebook,
    GradedAnswer,
    GradedQuestion,
    StudentGrades,
    how_reached,
    level_words,
    points_words,
    told_credit,
)
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
    ours = open_folder(to)
    names = [page_name(student, ours.secret) for student in book.students]
    # The marker first: a killed writer then leaves no page that nobody knows of.
    _mark(ours, ours.pages | set(names))
    for student, name in zip(book.students, names, strict=True):
        write_atomically(to / PAGES / name, student_page(book, student).encode())
    links = [f"{PAGES}/{name}" for name in names]
    write_atomically(to / INDEX, index_page(book, links).encode())
    for name in ours.pages - set(names):
        (to / PAGES / name).unlink(missing_ok=True)
    _mark(ours, set(names))
    pages: dict[str, str] = {}
    for student, link in zip(book.students, links, strict=True):
        pages |= {answer.response_id: link for answer in student.answers}
    remember_feedback(run, to, pages)
    return len(names)


def open_folder(folder: Path) -> FeedbackFolder:
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


def student_page(book: Gradebook, student: StudentGrades) -> str:
    """One student's page: a whole HTML document that needs no other file."""
    sections = []
    for place, answer in enumerate(student.answers, 1):
        question = book.questions[answer.item_id]
        shown = body(TEMPLATE, "answered", answer_part(question, answer, answer.item_id in student.repeated))
        own_number = answer.item_id[1:] if _NUMBERED.fullmatch(answer.item_id) else place
        sections.append(Section(f"q{place}", f"Question {own_number}", say.visible(question.text), body=shown))
    title = say.visible(student.display_name)
    scored = student.scores
    unjudged = len(student.unjudged_questions)
    waiting = len(student.open_questions) - unjudged
    lead = f"There is no score{' yet' if waiting else ''}: why stands with each answer."
    if scored:
        lead = (
            f"{points_words(student.points)} of {number(sum(book.questions[item].scale.max for item in scored))} points"
        )
        lead += f" so far. {say.plural(waiting, 'question has', 'questions have')} no score yet" if waiting else ""
        lead += f". {say.plural(unjudged, 'answer')} could not be judged" if unjudged else ""
        lead += "."
    page = Page("Feedback", book.study, title, tuple(sections), date=book.graded_on, lead=lead)
    return rendered(page, STYLE)


def answer_part(question: GradedQuestion, answer: GradedAnswer, repeated: bool) -> dict[str, object]:
    """What a student is told of an answer, as the template takes it. While it has no score nothing is said of its
    criteria: who reads them could tell the score that nobody has checked. repeated: whether it is not the only answer
    to its question."""
    score = answer.final_score
    counts = score is not None and not repeated
    groups = told_credit(question, answer) if counts else Credit((), (), ())
    highlights = []
    numbered = []
    for place, level in enumerate((*groups.counted, *groups.cost), 1):
        marking = Marking(place, level.criterion.weight > 0)
        highlights += [Highlight(quotation.start, quotation.end, marking) for quotation in level.quotations]
        numbered.append((place, say.visible(level.criterion.text), say.visible(level_words(level))))
    titles = headings(answer.text) if question.bundle.protocol.units == "turns" else ()
    without_score = UNJUDGED if answer.decided_by == "cannot_be_judged" else WAITING
    return {
        "score": points_words(score) if counts else None,
        "out_of": str(number(question.scale.max)),
        "state": REPEATED if repeated else without_score,
        "text": marked(
            pieces(answer.text, joined(highlights), titles),
            lambda markings: "got" if all(marking.earns for marking in markings) else "lost",
            lambda marking: marking.number,
        ),
        "how": how_reached(question, answer) if counts else "",
        "counted": numbered[: len(groups.counted)],
        "missing": [say.visible(criterion.text) for criterion in groups.missing],
        "cost": numbered[len(groups.counted) :],
        "note": say.visible(answer.note) if answer.note else None,
    }


class Marking(NamedTuple):
    """What words of the answer stand for."""

    number: int
    earns: bool


def index_page(book: Gradebook, links: Sequence[str]) -> str:
    """The teacher's list of all students. links: where the page of each student in the gradebook is."""
    rows = []
    for student, link in zip(book.students, links, strict=True):
        row = {
            "link": link,
            "name": say.visible(student.display_name),
            "id": say.visible(student.student or ""),
            "points": points_words(student.points) if student.scores else "",
            "out_of": number(book.highest),
            "waiting": len(student.open_questions - student.unjudged_questions),
            "unjudged": len(student.unjudged_questions),
        }
        rows.append(row)
    waiting, unjudged = (sum(int(str(row[name])) for row in rows) for name in ("waiting", "unjudged"))
    title = f"{say.plural(len(rows), 'student')}, {say.plural(waiting, 'answer waits', 'answers wait')} for a person"
    title += f", {say.plural(unjudged, 'answer')} cannot be judged" if unjudged else ""
    lead = f"{book.verdict.sentence} For teachers only: this page names everybody; give students their own page alone."
    section = Section("students", "", "Students", body=body(TEMPLATE, "index", rows))
    page = Page("Feedback", book.study, title, (section,), date=book.graded_on, lead=lead, missing=book.quotes.warning)
    return rendered(page, STYLE)
