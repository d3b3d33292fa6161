"""The few questions that a first study needs an answer to, each with a guess in case no person is asked; a file of
questions with one of answers; and what `init` reports of the files that it read and wrote."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.data import Pattern
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.core.text.tokens import decimal_of
from rubricflow.tasks.grading.ingest.draft.drafted import STEPS, UNWRITTEN, Draft, DraftedItem, Known, is_on_grid
from rubricflow.tasks.grading.ingest.draft.guess import Column, asks, guessed
from rubricflow.tasks.grading.ingest.draft.roles import Roles, is_named, numbers_said, points_in

MOST_QUESTIONS = 5
USUAL_POINTS = 10.0
"""The most points of an answer where nothing shows them."""
QUESTIONS = "questions.csv"
"""What a table of questions is called that `init` writes."""
QUESTION_COLUMNS = {"item_id": "question", "question": "wording", "reference_answer": "model_answer"}
"""Canonical column of `items` → its column."""
_ASKED, _SHOWN = 12, 10
"""Questions that are named when their points are asked for, and in the report."""
Ask = Callable[[str, str], str]
"""(question, guess) → a person's answer; the guess if no person is asked."""


class Asking:
    """Asks at most MOST_QUESTIONS questions; afterwards guesses stand."""

    def __init__(self, ask: Ask) -> None:
        self._ask, self._left = ask, MOST_QUESTIONS

    def __call__(self, question: str, guess: str) -> str:
        if self._left == 0:
            return guess
        self._left -= 1
        return self._ask(question, guess).strip()


def confirmed_roles(roles: Roles, columns: Sequence[Column], file: Path, ask: Asking) -> Roles:
    """The guessed roles as a person confirms or corrects them; InputError for no answers, or a column that is not
    there."""
    header = [column.name for column in columns]
    listed = ", ".join(header)
    guess = _shown(roles.answer)
    answer = ask(f"The columns of {file.name} are: {listed}.\nWhich of them holds the answers?", guess)
    if not answer:
        hint = "call the column that holds them 'answer', or run init without --yes"
        raise InputError(f"no column looks like one of answers; there are {listed}", file=file, hint=hint)
    if answer != guess:
        # What was taken for the question may be the very column of the answers.
        others: JsonDict = {role: None for role in ("item", "question", "reference") if getattr(roles, role) == answer}
        roles = replace(roles, answer=(answer,) if answer in header and asks(answer) else answer, **others)
    writer = ask("Which says who wrote it? (empty: none)", ", ".join(roles.student))
    if writer != ", ".join(roles.student):
        roles = replace(roles, student=_names_in(writer))
    if not roles.wide and len(columns) > 1 + len(roles.student):
        guess = roles.item or _shown(roles.question)
        item = ask("Which says what question it answers? (empty: all answer the same one)", guess)
        roles = roles if item == guess else replace(roles, item=item or None, question=None)
    if roles.scores or any(column.numeric for column in columns):
        guess = ", ".join(_shown(pattern, roles.answer, header) for pattern in roles.scores)
        words = ask("Which hold marks that people gave? (several with commas between; empty: none)", guess)
        roles = roles if words == guess else replace(roles, scores=_names_in(words))
    for name in (roles.answer, roles.item, roles.question, *roles.student, *roles.scores):
        if isinstance(name, str) and "{n}" not in name and name not in header:
            raise InputError(f"there is no column '{name}'; there are {listed}", file=file)
    return roles


def _shown(pattern: Pattern | None, answer: Pattern | None = None, header: Sequence[str] = ()) -> str:
    """Columns as a question names them; those to the right of the answers by their names."""
    if isinstance(pattern, dict):
        return ", ".join(header[header.index(name) + 1] for name in answer or ())
    return ", ".join(pattern) if isinstance(pattern, tuple) else str(pattern or "")


def _names_in(words: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in words.split(",") if name.strip())


def worded(items: Sequence[DraftedItem], ask: Asking) -> tuple[DraftedItem, ...]:
    """The questions, the wording of the only one asked for where the file lacks it."""
    if len(items) != 1 or items[0].question is not None:
        return tuple(items)
    wording = ask("What was the question? Its wording is not in the file. (empty: write it later)", "")
    return (replace(items[0], question=wording or None),)


def students_apart(draft: Draft, roles: Roles, ask: Asking) -> Roles:
    """The roles with a person's answer about names that nothing else tells apart: whether each is one student's."""
    if not draft.namesakes:
        return roles
    name, rows = next(iter(draft.namesakes.items()))
    others = f" (and {len(draft.namesakes) - 1} more names)" if len(draft.namesakes) > 1 else ""
    places = ", ".join(map(str, rows[:-1]))
    question = (
        f"{name} stands in rows {places} and {rows[-1]} with answers to the same question{others}.\n"
        "Are these different students (two) or one who answered again (one)?"
    )
    answer = ask(question, "two")
    if answer.casefold() not in ("one", "two"):
        raise InputError(f"'{answer}' is neither one nor two")
    return replace(roles, namesakes=answer.casefold() == "two")


def scales(draft: Draft, items: Sequence[DraftedItem], ask: Asking) -> list[tuple[DraftedItem, Scale]]:
    """Each question with its scale: from 0 to the most points that the file has or a person answers, in steps no larger
    than the draft's that reach them."""
    guesses = _guessed_points(draft, items)
    if any(item.points is None for item in items):
        known = f"Together they are worth {draft.total:g}. " if draft.total and len(items) > 1 else ""
        named = "; ".join(say.question(item.item_id, item.question) for item in items[:_ASKED])
        named += f"; … {items[-1].item_id}" if len(items) > _ASKED else ""
        each = f" One number for all, or one for each of {named}." if len(items) > 1 else ""
        shown = [f"{value:g}" for value in (guesses[:1] if len(set(guesses)) == 1 else guesses)]
        words = ask(f"{known}How many points is a full answer worth?{each}", ", ".join(shown))
        said = numbers_said(words, len(items))
        if said is None:
            raise InputError(f"'{words}' is neither a number of points above 0 nor {len(items)} of them")
        guesses = said
    scaled = []
    for item, points in zip(items, guesses, strict=True):
        most = max(points, item.best or 0)
        step = next((step for step in STEPS if step <= draft.step and is_on_grid(most, step)), most)
        scaled.append((item, Scale(min=0, max=most, step=step)))
    return scaled


def _guessed_points(draft: Draft, items: Sequence[DraftedItem]) -> list[float]:
    """The most points of each question: those of the file; else what is left of the total, in equal parts, where these
    are whole or half points; else the best mark of any question, or of its own where that is half of it or less."""
    unknown = sum(item.points is None for item in items)
    left = (draft.total or 0) - math.fsum(item.points or 0 for item in items)
    share = left / unknown if unknown else 0.0
    best = max((item.best for item in items if item.best is not None), default=None)
    most = float(math.ceil(best)) if best else USUAL_POINTS
    is_shared = share > 0 and math.isclose(share * 2, round(share * 2)) and share >= (best or 0)
    guesses = []
    for item in items:
        own = float(math.ceil(item.best)) if item.best else most
        fallback = own if 2 * own <= most else most
        guesses.append(item.points if item.points is not None else share if is_shared else fallback)
    return guesses


def known_questions(columns: Sequence[Column]) -> Known:
    """What a table of questions may call them: by all its cells but the wordings, which number them."""
    wording = _wording(columns)
    words = [(" ".join(cell.split()),) for cell in wording.cells] if wording else []
    ids = frozenset(cell.strip() for column in columns if column is not wording for cell in column.cells)
    return Known(ids, {text: f"Q{place}" for place, text in enumerate(dict.fromkeys(words), 1)})


def _wording(columns: Sequence[Column]) -> Column | None:
    """The column of wordings: the one that is called so, else the longest texts that are no model answers."""
    roles = guessed(columns)
    texts = sorted((column for column in columns if not column.numeric), key=lambda column: -column.length)
    free = [column for column in texts if column.name != roles.reference]
    return next((column for column in free if column.name == roles.question), next(iter(free), None))


def listed_questions(
    file: Path, columns: Sequence[Column], items: Sequence[DraftedItem], numbered: str
) -> tuple[JsonDict, tuple[DraftedItem, ...]]:
    """(the file's entry in a study, the questions with what the file has of them).

    Questions are found by their ids or, failing that, by their wording, which numbers them then; numbered: the column
    of these numbers. InputError where no column holds the ids or the wording of all questions that are answered.
    """
    item_ids = {item.item_id for item in items}
    numbers = known_questions(columns).numbers
    key = next((column for column in columns if item_ids <= {cell.strip() for cell in column.cells}), None)
    others = [column for column in columns if column is not key]
    wording = _wording(others)
    if key is None and not (wording and item_ids <= set(numbers.values())):
        rule = f"no column holds all ids of the questions that are answered: {', '.join(sorted(item_ids)[:5])}"
        raise InputError(rule, file=file, hint="the ids stand in the answers' column of questions")
    if wording is None:
        raise InputError("no column holds the wording of the questions", file=file, hint="call it 'question'")
    if key is None:
        places = {numbers[" ".join(cell.split()),]: row for row, cell in enumerate(wording.rows) if cell.strip()}
    else:
        places = {cell.strip(): row for row, cell in enumerate(key.rows)}
    roles = guessed(others)
    reference = next((column.rows for column in columns if column.name == roles.reference), None)
    numeric = [column for column in others if column.numeric]
    worth = [column for role in ("points", "score") for column in numeric if is_named(column.name, role)]
    described = []
    for item in items:
        row = places[item.item_id]
        text = wording.rows[row].strip() or None
        model = reference[row].strip() if reference else ""
        most = (decimal_of(worth[0].rows[row]) if worth else None) or item.points
        most = most or points_in(text or "", is_header=False)
        described.append(replace(item, question=text, reference=model or None, points=most))
    mapping = {"item_id": key.name if key else numbered, "question": wording.name}
    mapping |= {"reference_answer": str(roles.reference)} if reference else {}
    made = {"numbered": {numbered: [wording.name]}} if key is None else {}
    return {"file": file, "items": mapping} | made, tuple(described)


def question_table(items: Sequence[DraftedItem]) -> str:
    """The table of questions (CSV), with a mark where a wording is to be written."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(QUESTION_COLUMNS.values())
    for item in items:
        unwritten = f"{UNWRITTEN} the wording of question {item.item_id}"
        writer.writerow([item.item_id, item.question or unwritten, item.reference or ""])
    return text.getvalue()


def seen(about: str, draft: Draft, roles: Roles, scaled: Sequence[tuple[DraftedItem, Scale]]) -> list[str]:
    """What was seen and guessed, a line each."""
    tops = sorted({scale.max for _, scale in scaled})
    points = f"{tops[0]:g}" if len(tops) == 1 else f"{tops[0]:g} to {tops[-1]:g}"
    lines = [
        f"{about}: {draft.answers:,} answers to {len(scaled)} question{'s' if len(scaled) != 1 else ''}, "
        f"{draft.marked:,} of them with a mark, at most {points} points each"
    ]
    lines += [f"{say.question(item.item_id, item.question)}: {scale.max:g} points" for item, scale in scaled[:_SHOWN]]
    if len(scaled) > _SHOWN:
        lines.append(f"and {len(scaled) - _SHOWN} more questions, up to {scaled[-1][0].item_id}")
    if draft.by_row:
        lines.append("nothing tells the answers apart but the row they stand in: keep the order of the rows")
    elif draft.student:
        lines.append(f"students are told apart by {' and '.join(draft.student)}")
    for name, rows in draft.namesakes.items():
        people = f"{len(rows)} students of one name" if roles.namesakes else "one student who answered again"
        lines.append(f"{name} stands in rows {', '.join(map(str, rows))}: taken for {people}")
    lines += draft.remarks
    if any(item.points is None for item, _ in scaled):
        lines.append("the most points of an answer do not stand in the file: look at `points` in the rubrics")
    return lines


def to_write(items: Sequence[DraftedItem], texts: Mapping[Path, str], to: Path, rubrics: Path) -> list[str]:
    """What a person has to write before grading means anything, a line each."""
    lines = []
    unworded = sum(item.question is None for item in items)
    if unworded:
        lines.append(f"write the wording of {unworded} of {len(items)} questions into {to.with_name(QUESTIONS)}")
    if rubrics in texts and any(item.reference is None for item in items):
        lines.append(f"write what a full answer says into {rubrics}, wherever it says {UNWRITTEN}")
    elif rubrics in texts:
        lines.append(f"look through {rubrics}: each sentence of a model answer has become a criterion")
    return lines
