"""The few questions that a first study needs an answer to, each with a guess that stands where nobody is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Pattern
from rubricflow.tasks.core.display import say
from rubricflow.tasks.grading.ingest.draft.drafted import STEPS, USUAL_POINTS, Draft, DraftedItem
from rubricflow.tasks.grading.ingest.draft.guess import Column
from rubricflow.tasks.grading.ingest.draft.points import numbers_said, share_of
from rubricflow.tasks.grading.ingest.draft.roles import Roles

MOST_QUESTIONS = 5
_SHOWN = 12
"""Questions that are named when their points are asked for."""
Ask = Callable[[str, str], str]
"""(question, guess) → what a person says; the guess where nobody is asked."""


class Asking:
    """Asks at most MOST_QUESTIONS questions; afterwards guesses stand."""

    def __init__(self, ask: Ask) -> None:
        self._ask, self._left = ask, MOST_QUESTIONS

    def __call__(self, question: str, guess: str) -> str:
        if self._left == 0:
            return guess
        self._left -= 1
        return self._ask(question, guess).strip()


def settled(roles: Roles, columns: Sequence[Column], file: Path, ask: Asking) -> Roles:
    """The guessed roles as a person confirms or corrects them; InputError for no answers, or a column that is not
    there."""
    header = [column.name for column in columns]
    answer = ask(
        f"The columns of {file.name} are: {', '.join(header)}.\nWhich of them holds the answers?", _shown(roles.answer)
    )
    if not answer:
        hint = "call the column that holds them 'answer', or run init without --yes"
        raise InputError(f"no column looks like one of answers; there are {', '.join(header)}", file=file, hint=hint)
    roles = roles if answer == _shown(roles.answer) else replace(roles, answer=answer)
    writer = ask("Which says who wrote it? (empty: none)", ", ".join(roles.student))
    roles = replace(roles, student=_columns_named(writer, roles.student))
    if not roles.wide and len(columns) > 1 + len(roles.student):
        guess = roles.item or _shown(roles.question)
        item = ask("Which says what question it answers? (empty: all answer the same one)", guess)
        roles = roles if item == guess else replace(roles, item=item or None, question=None)
    if any(column.numeric for column in columns):
        shown = ", ".join(_shown(pattern, roles.answer, header) for pattern in roles.scores)
        words = ask("Which hold marks that people gave? (several with commas between; empty: none)", shown)
        roles = roles if words == shown else replace(roles, scores=_columns_named(words, ()))
    _are_there(roles, header, file)
    return roles


def _shown(pattern: Pattern | None, answer: Pattern | None = None, header: Sequence[str] = ()) -> str:
    """Columns as a question names them; those to the right of the answers by their names."""
    if isinstance(pattern, dict):
        return ", ".join(header[header.index(name) + 1] for name in answer or ())
    return ", ".join(pattern) if isinstance(pattern, tuple) else str(pattern or "")


def _columns_named(words: str, guess: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that a person names; a guess that stands may have commas in a name."""
    if words == ", ".join(guess):
        return guess
    return tuple(name.strip() for name in words.split(",") if name.strip())


def _are_there(roles: Roles, header: Sequence[str], file: Path) -> None:
    """InputError for a column that the file does not have."""
    for name in (roles.answer, roles.item, roles.question, *roles.student, *roles.scores):
        if isinstance(name, str) and "{n}" not in name and name not in header:
            raise InputError(f"there is no column '{name}'; there are {', '.join(header)}", file=file)


def worded(items: Sequence[DraftedItem], ask: Asking) -> tuple[DraftedItem, ...]:
    """The questions, the wording of the only one asked for where the file lacks it."""
    if len(items) != 1 or items[0].question is not None:
        return tuple(items)
    wording = ask("What was the question? Its wording is not in the file. (empty: write it later)", "")
    return (replace(items[0], question=wording or None),)


def students_apart(draft: Draft, roles: Roles, ask: Asking) -> Roles:
    """The roles with what a person says of names that nothing else tells apart: whether each is one student's."""
    if not draft.namesakes:
        return roles
    name, rows = draft.namesakes[0]
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
    """Each question with its scale: from 0 to the most points that the file says or a person answers."""
    guesses = _guessed_points(draft, items)
    if any(item.points is None for item in items):
        same = len(set(guesses)) == 1
        known = f"Together they are worth {draft.total:g}. " if draft.total and len(items) > 1 else ""
        each = f" One number for all, or one for each of {_listed(items)}." if len(items) > 1 else ""
        words = ask(
            f"{known}How many points is a full answer worth?{each}",
            f"{guesses[0]:g}" if same else ", ".join(f"{value:g}" for value in guesses),
        )
        said = numbers_said(words, len(items))
        if said is None:
            raise InputError(f"'{words}' is neither a number of points above 0 nor {len(items)} of them")
        guesses = said
    tops = [max(points, item.best or 0) for item, points in zip(items, guesses, strict=True)]
    return [(item, _scale(top, draft.step)) for item, top in zip(items, tops, strict=True)]


def _guessed_points(draft: Draft, items: Sequence[DraftedItem]) -> list[float]:
    """The most points of each question: what the file says; else what is left of the total, in equal parts; else the
    best mark of any question, or of its own where that is half of it or less."""
    unknown = [item for item in items if item.points is None]
    left = (draft.total or 0) - math.fsum(item.points or 0 for item in items)
    share = share_of(left, len(unknown)) if unknown else None
    best = max((item.best for item in items if item.best is not None), default=None)
    most = float(math.ceil(best)) if best else USUAL_POINTS
    guesses = []
    for item in items:
        own = float(math.ceil(item.best)) if item.best else most
        fallback = own if 2 * own <= most else most
        shared = share if share is not None and share >= (best or 0) else fallback
        guesses.append(shared if item.points is None else item.points)
    return guesses


def _listed(items: Sequence[DraftedItem]) -> str:
    """The questions by name and the beginning of their wording."""
    shown = [say.question(item.item_id, item.question) for item in items[:_SHOWN]]
    return "; ".join(shown) + (f"; … {items[-1].item_id}" if len(items) > _SHOWN else "")


def _scale(most: float, step: float) -> Scale:
    """From 0 to `most` in steps no larger than `step` that reach it."""
    fitting = [size for size in STEPS if size <= step and abs(most / size - round(most / size)) < 1e-6]
    return Scale(min=0, max=most, step=fitting[0] if fitting else most)
