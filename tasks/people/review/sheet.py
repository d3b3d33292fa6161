"""Votes outside the page: what people are asked, and their answers as acts; by spreadsheet, a CSV file out, with a row
for every concept of every queued response, and that or a workbook back in."""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import UnreadableCell, quoted
from rubricflow.tasks.core.store.sheets import open_sheet
from rubricflow.tasks.core.text.formulas import guarded, readable, unguarded
from rubricflow.tasks.core.text.tokens import number_of
from rubricflow.tasks.people.review.board import Board, QueuedCase
from rubricflow.tasks.people.review.ledger import CANNOT_BE_JUDGED, DIGEST, Act, Subject, SubjectKind

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
"""The columns that are read back, and `rater_id` where it is there."""
Case = tuple[str, SubjectKind]
"""A response, and what is asked of it: levels of its concepts, or its score."""
_ACTS = uuid.UUID("6f0b1c58-6a53-4f0e-9d0c-0d2f6a7b9e41")


class ReviewQuestion(NamedTuple):
    """One question to a person: what is voted on in a queued case."""

    rank: int
    """The case's place in the queue."""
    case: QueuedCase
    ballot: Record
    """As `Board.ballots` has it."""

    @property
    def criterion_id(self) -> str | None:
        """The concept; None for the score."""
        return None if self.ballot["criterion_id"] is None else str(self.ballot["criterion_id"])

    @property
    def subject(self) -> Subject:
        return self.case.response_id, self.criterion_id

    @property
    def choices(self) -> dict[str, str]:
        """What a vote may say, but for 'x' → in words."""
        values = {option["value"]: option["text"] for option in self.ballot["options"]}
        return {value: value if self.criterion_id is None else f"{value} = {text}" for value, text in values.items()}


def questions_of(board: Board) -> list[ReviewQuestion]:
    """What the page asks, for people who answer elsewhere."""
    ranked = enumerate(board.cases, 1)
    return [ReviewQuestion(rank, case, it) for rank, case in ranked for it in board.ballots(case) if it["needed"]]


@dataclass(frozen=True)
class ReviewAnswer:
    """What a person said to one question."""

    value: str
    """A choice, or 'x'."""
    comment: str | None
    digest: str
    """Of what they were shown, which may have changed since."""


def cases_of(questions: Iterable[ReviewQuestion]) -> dict[Case, dict[Subject, ReviewQuestion]]:
    cases = defaultdict[Case, dict[Subject, ReviewQuestion]](dict)
    for question in questions:
        cases[question.case.response_id, question.case.subject_kind][question.subject] = question
    return dict(cases)


def unanswered(case: Iterable[Subject], answers: Mapping[Subject, ReviewAnswer]) -> str:
    """The concepts of a case without an answer, in words; '' for none."""
    return ", ".join(quoted(subject[1]) for subject in case if subject not in answers)


def fault(question: ReviewQuestion, value: str, comment: str | None) -> str | None:
    """The rule that an answer breaks; None where it is fine."""
    if value not in (*question.choices, CANNOT_BE_JUDGED):
        return f"{quoted(value)} is none of {', '.join(question.choices)} and {CANNOT_BE_JUDGED}"
    if value == CANNOT_BE_JUDGED and not (comment or "").strip():
        return f"{CANNOT_BE_JUDGED} needs a comment that says why it cannot be judged"
    return None


def acts_of_answers(
    study: str,
    rater_id: str,
    answers: Mapping[Subject, ReviewAnswer],
    *,
    blind: bool | None,
    origin: Sequence[str] = (),
) -> list[Act]:
    """The answers of a person on one response as votes and their submit.

    The acts' ids come from their content and from `origin`, whatever else tells one answer from the next: the same
    answers are the same acts however often they are read, so that the ledger adds nothing.
    """
    acts = []
    for (response, criterion), answer in answers.items():
        content = [study, rater_id, response, criterion, answer.value, answer.comment, answer.digest, *origin]
        vote = Act(
            act_id=_act_id(content),
            study=study,
            kind="vote",
            subject_kind="score" if criterion is None else "label",
            response_id=response,
            criterion_id=criterion,
            value=answer.value,
            rater_id=rater_id,
            comment=answer.comment,
            blind=blind,
            digest=answer.digest,
        )
        acts.append(vote)
    submitted = _act_id(sorted(vote.act_id for vote in acts))
    blank = replace(acts[0], kind="submit", criterion_id=None, value=None, comment=None, digest="", act_id=submitted)
    return [*acts, blank]


def _act_id(content: Sequence[str | None]) -> str:
    return str(uuid.uuid5(_ACTS, json.dumps(content)))


def as_csv(questions: Iterable[ReviewQuestion]) -> bytes:
    """A sheet to vote in, UTF-8 with a byte order mark, as spreadsheets want it; without any machine's or person's
    levels. Who votes writes a level or 'x' into `level`, may write a `comment` and, in a sheet that holds several
    persons' votes, a `rater_id`, and leaves the rest as it is.

    No cell of it runs as a formula, and ids come back as they were even through a spreadsheet that would take them for
    numbers or dates.
    """
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, restval="", quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writeheader()
    for question in questions:
        texts = {
            "question": question.case.question,
            "response": question.case.text,
            "concept": "Score" if question.criterion_id is None else question.ballot["text"],
            "levels": "\n".join(question.choices.values()),
        }
        for name, words in texts.items():
            texts[name] = readable(words)
        # The apostrophe keeps the id 007 from becoming 7, and MAR-1 from becoming a date.
        cells = {
            "rank": str(question.rank),
            "response_id": "'" + guarded(question.case.response_id),
            "criterion_id": "'" + guarded(question.criterion_id or ""),
            **texts,
            "digest": question.ballot["digest"],
        }
        writer.writerow(cells)
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
    filled = defaultdict[tuple[str, Case], dict[Subject, ReviewAnswer]](dict)
    first_rows: dict[tuple[str, Subject], int] = {}
    sheet = open_sheet(path)
    for name in NEEDED:
        if name not in sheet.columns:
            raise InputError("there must be one such column, as the sheet was written", file=path, field=name)
    for sheet_row in sheet.rows():
        row = sheet_row.number
        cells = dict(zip(sheet.columns, sheet_row.cells, strict=True))
        for name in NEEDED:
            if isinstance(cells[name], UnreadableCell):
                rule, hint = cells[name]
                raise InputError(rule, file=path, line=sheet_row.line, row=row, field=name, hint=hint)
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
        filled[rater, (question.case.response_id, question.case.subject_kind)][question.subject] = answer
    for (rater, case), answers in filled.items():
        missing = unanswered(cases[case], answers)
        if missing:
            row = first_rows[rater, next(iter(answers))]
            raise InputError(f"the response has levels, but none for {missing}", file=path, row=row, field="level")
    acts = []
    for (rater, _), answers in filled.items():
        acts += acts_of_answers(study, rater, answers, blind=True)
    return acts


def _question(
    path: Path, row: int, cells: Mapping[str, str], cases: Mapping[Case, Mapping[Subject, ReviewQuestion]]
) -> ReviewQuestion:
    response, criterion = (unguarded(cells[name].removeprefix("'")) for name in ("response_id", "criterion_id"))
    case = cases.get((response, "label" if criterion else "score"))
    if case is None:
        raise InputError(f"{quoted(response)} is not asked about", file=path, row=row, field="response_id")
    question = case.get((response, criterion or None))
    if question is None:
        raise InputError(f"{quoted(criterion)} is not asked about", file=path, row=row, field="criterion_id")
    return question


def _answer(path: Path, row: int, cells: Mapping[str, str], question: ReviewQuestion) -> ReviewAnswer | None:
    """The answer in a row; None where there is none."""
    value = cells["level"].strip().removeprefix("'").lower()
    if not value:
        return None
    number = number_of(value.replace(",", "."))  # a spreadsheet may write 2 as 2.0, or with a comma
    if number is not None:
        value = next((choice for choice in question.choices if float(choice) == number), value)
    comment = cells["comment"].strip() or None
    seen = cells["digest"].strip()
    broken = fault(question, value, comment)
    if broken:
        raise InputError(broken, file=path, row=row, field="comment" if value == CANNOT_BE_JUDGED else "level")
    if not DIGEST.fullmatch(seen):
        raise InputError("is not as it was written", file=path, row=row, field="digest")
    return ReviewAnswer(value, comment, seen)
