"""The folder of feedback: names that nobody guesses by accident, and pages of earlier times taken away."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from tasks.contracts.errors import InputError
from tasks.gradebook.book import Gradebook, StudentGrades
from tasks.gradebook.pages import index_page, student_page
from tasks.store.files import write_atomically
from tasks.store.handed_out import remember_feedback
from tasks.store.warehouse import Run

MARKER = ".rubricflow-feedback.json"
"""What says that a folder is ours: its secret and the pages in it."""
INDEX = "index.html"
PAGES = "students"
"""The folder of the pages that go to students, apart from the teacher's list."""
_SLUG = 40
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
