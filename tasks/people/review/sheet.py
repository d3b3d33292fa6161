"""Votes by spreadsheet: a CSV file out, with a row for every concept of every queued response; that or a workbook back
in."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import UnreadableCell, quoted
from rubricflow.tasks.core.store.sheets import open_sheet
from rubricflow.tasks.core.text.formulas import guarded, unguarded
from rubricflow.tasks.core.text.numbers import number_of
from rubricflow.tasks.people.review.ledger import CANNOT_BE_JUDGED, Act
from rubricflow.tasks.people.review.questions import (
    Case,
    ReviewAnswer,
    ReviewQuestion,
    acts_of,
    cases_of,
    fault,
    unanswered,
)
from rubricflow.tasks.people.review.subject import DIGEST, Subject

COLUMNS = (
    "rank",
    "response_id",
    "criterion_id",
    "question",
    "response",
    "concept",
    "levels",
    "level",
    "comment",
    "rater_id",
    "digest",
)
NEEDED = ("response_id", "criterion_id", "level", "comment", "digest")
"""The columns that are read back, beside `rater_id` where it is there."""
LONGEST = 32_000
"""Characters of a text; a spreadsheet's cell holds little more, and spills the rest over the rows below."""


def as_csv(questions: Iterable[ReviewQuestion]) -> bytes:
    """A sheet to vote in, UTF-8 with a byte order mark, as spreadsheets want it; without any machine's or person's
    levels. Who votes writes a level or 'x' into `level`, may write a `comment` and, in a sheet that holds several
    persons' votes, a `rater_id`, and leaves the rest as it is.

    No cell of it runs as a formula, and ids come back as they were even through a spreadsheet that would take them for
    numbers or dates.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for question in questions:
        # Column → cell of a question's row
        cells = {
            "rank": str(question.rank),
            "response_id": _id_cell(question.response_id),
            "criterion_id": _id_cell(question.criterion_id or ""),
            "question": _text_cell(question.question),
            "response": _text_cell(question.response),
            "concept": _text_cell(question.concept or "Score"),
            "levels": _text_cell("\n".join(question.choices.values())),
            "digest": question.digest,
        }
        writer.writerow([cells.get(name, "") for name in COLUMNS])
    return b"\xef\xbb\xbf" + text.getvalue().encode(errors="replace")


def read_sheet(path: Path, study: str, questions: Iterable[ReviewQuestion], rater_id: str | None = None) -> list[Act]:
    """The acts of a filled sheet, or of several put together: votes in the order of their rows, and a submit of each
    response. Responses without any level are passed over. rater_id: whose rows those are that name nobody.

    A row that says what it said in an earlier import adds nothing to the ledger; who goes back to an earlier level
    after another import says why in the comment. InputError names file, row (from 1 below the header), field and rule:
    an unknown response or concept, a level off the scale, a row given twice, 'x' without a comment, a response with
    levels for some of its concepts only, a vote of nobody, a sheet without its columns.
    """
    cases = cases_of(questions)
    filled: dict[tuple[str, Case], dict[Subject, ReviewAnswer]] = {}
    first_rows: dict[tuple[str, Subject], int] = {}
    for row, cells in _rows(path):
        question = _question(path, row, cells, cases)
        rater = cells.get("rater_id", "").strip() or (rater_id or "").strip()
        earlier = first_rows.setdefault((rater, question.subject), row)
        if earlier != row:
            raise InputError(f"says again what row {earlier} says", file=path, row=row, field="criterion_id")
        answer = _answer(path, row, cells, question)
        if answer is None:
            continue
        if not rater:
            raise InputError("names nobody, and the rater is not given", file=path, row=row, field="rater_id")
        filled.setdefault((rater, question.case), {})[question.subject] = answer
    for (rater, case), answers in filled.items():
        missing = unanswered(cases[case], answers)
        if missing:
            row = first_rows[rater, next(iter(answers))]
            raise InputError(f"the response has levels, but none for {missing}", file=path, row=row, field="level")
    acts: list[Act] = []
    for (rater, _), answers in filled.items():
        acts += acts_of(study, rater, answers, blind=True)
    return acts


def _text_cell(text: str) -> str:
    """A text to read, cut where a cell ends."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    safe = guarded(lines)
    return safe if len(safe) <= LONGEST else f"{safe[:LONGEST]}\n[… cut here]"


def _id_cell(text: str) -> str:
    """An id as a text cell: the apostrophe keeps 007 from becoming 7, and MAR-1 from becoming a date."""
    return "'" + guarded(text)


def _id(cell: str) -> str:
    return unguarded(cell.removeprefix("'"))


def _rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Number and cells of each row that is not blank, of a CSV file or a workbook (see `open_sheet`)."""
    sheet = open_sheet(path)
    for name in NEEDED:
        if name not in sheet.columns:
            raise InputError("there must be one such column, as the sheet was written", file=path, field=name)
    for row in sheet.rows():
        cells = dict(zip(sheet.columns, row.cells, strict=True))
        for name in NEEDED:
            if isinstance(cells[name], UnreadableCell):
                rule, hint = cells[name]
                raise InputError(rule, file=path, line=row.line, row=row.number, field=name, hint=hint)
        yield row.number, cells


def _question(
    path: Path, row: int, cells: Mapping[str, str], cases: Mapping[Case, Mapping[Subject, ReviewQuestion]]
) -> ReviewQuestion:
    """What a row is about."""
    response, criterion = _id(cells["response_id"]), _id(cells["criterion_id"])
    case = cases.get((response, "label" if criterion else "score"))
    if case is None:
        raise InputError(f"{quoted(response)} is not asked about", file=path, row=row, field="response_id")
    question = case.get((response, criterion or None))
    if question is None:
        raise InputError(f"{quoted(criterion)} is not asked about", file=path, row=row, field="criterion_id")
    return question


def _answer(path: Path, row: int, cells: Mapping[str, str], question: ReviewQuestion) -> ReviewAnswer | None:
    """The answer in a row; None where there is none."""
    level = cells["level"].strip().removeprefix("'").lower()
    if not level:
        return None
    value, comment = _choice(level, question), cells["comment"].strip() or None
    broken = fault(question, value, comment)
    if broken:
        raise InputError(broken, file=path, row=row, field="comment" if value == CANNOT_BE_JUDGED else "level")
    if not DIGEST.fullmatch(cells["digest"].strip()):
        raise InputError("is not as it was written", file=path, row=row, field="digest")
    return ReviewAnswer(value, comment, cells["digest"].strip())


def _choice(cell: str, question: ReviewQuestion) -> str:
    """The choice that a cell means: a spreadsheet may write 2 as 2.0, or with a comma."""
    number = number_of(cell.replace(",", "."))
    if number is None:
        return cell
    return next((choice for choice in question.choices if float(choice) == number), cell)
