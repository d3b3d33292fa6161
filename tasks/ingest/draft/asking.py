"""The few questions that a first study needs an answer to, each with a guess that stands where nobody is asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tasks.contracts.bundle import Scale
from tasks.contracts.errors import InputError
from tasks.contracts.settings.reshaping import Pattern
from tasks.ingest.draft.drafted import STEPS, USUAL_POINTS, DraftedItem
from tasks.ingest.draft.guess import number
from tasks.ingest.draft.roles import Roles

MOST_QUESTIONS = 5
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


def settled(roles: Roles, header: Sequence[str], file: Path, ask: Asking) -> Roles:
    """The guessed roles as a person confirms or corrects them; InputError for no answers, or a column that is not
    there."""
    columns = f"The columns of {file.name} are: {', '.join(header)}.\n"
    answer = ask(f"{columns}Which of them holds the answers?", _shown(roles.answer))
    if not answer:
        hint = "call the column that holds them 'answer', or run init without --yes"
        raise InputError(f"no column looks like one of answers; there are {', '.join(header)}", file=file, hint=hint)
    roles = roles if answer == _shown(roles.answer) else replace(roles, answer=answer)
    writer = ask("Which says who wrote it? (empty: none)", ", ".join(roles.student))
    roles = replace(roles, student=_columns_named(writer, roles.student))
    if not roles.wide:
        guess = roles.item or _shown(roles.question)
        item = ask("Which says what question it answers? (empty: all answer the same one)", guess)
        roles = roles if item == guess else replace(roles, item=item or None, question=None)
    marks = tuple(map(_shown, roles.scores))
    words = ask("Which hold marks that people gave? (several with commas between; empty: none)", ", ".join(marks))
    roles = replace(roles, scores=_columns_named(words, marks))
    _are_there(roles, header, file)
    return roles


def _shown(pattern: Pattern | None) -> str:
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


def scales(items: Sequence[DraftedItem], step: float, ask: Asking) -> list[tuple[DraftedItem, Scale]]:
    """Each question with its scale: from 0 to the most points that the file says or a person answers."""
    best = max((item.best for item in items if item.best is not None), default=None)
    most = float(math.ceil(best)) if best else USUAL_POINTS
    if any(item.points is None for item in items):
        words = ask("How many points is a full answer worth?", f"{most:g}")
        value = number(words)
        if value is None or value <= 0:
            raise InputError(f"'{words}' is no number of points above 0")
        most = value
    return [(item, _scale(max(item.points or most, item.best or 0), step)) for item in items]


def _scale(most: float, step: float) -> Scale:
    """From 0 to `most` in steps no larger than `step` that reach it."""
    fitting = [size for size in STEPS if size <= step and abs(most / size - round(most / size)) < 1e-6]
    return Scale(min=0, max=most, step=fitting[0] if fitting else most)
