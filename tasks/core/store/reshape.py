"""A chunk of a source in the form in which its columns map: a row an answer, with the ids and names that it lacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.data import PLACEHOLDER, QUESTION, ROW, Pattern, Source
from rubricflow.tasks.core.store.cells import id_of, need, text_or_none, with_columns
from rubricflow.tasks.core.text.markup import plain

_WHOLE = re.compile("[0-9]{1,9}")
Words = tuple[str, ...]
QuestionIds = dict[str, dict[Words, str]]
"""New column of `numbered` → words of a question → its id."""


@dataclass
class Counted:
    """What numbering needs to know of the rows before a chunk."""

    ids: QuestionIds = field(default_factory=dict)
    rows: dict[str, dict[Words, tuple[int, int]]] = field(default_factory=dict)
    """New column of `repeats` → words → (how many rows had them, the last one)."""


def reshaped(source: Source, frame: pd.DataFrame, counted: Counted | None = None) -> pd.DataFrame:
    """The chunk after the source's `without`, `blank`, `wide`, `numbered`, `repeats`, `ids`, `names` and `labels`, in
    this order.

    Rows that come of one row keep its place in the index. counted: what the chunks before it had, which this one is
    added to; None for a file of one chunk. InputError names the file and the column: one that is not
    there, one to be made that is there already, a pattern that no column keeps, a row with an answer whose id lacks a
    part.
    """
    for column, labels in source.without.items():
        need(frame, column, source.file)
        left_out = {label.strip().casefold() for label in labels}
        frame = frame[~frame[column].astype(str).str.strip().str.casefold().isin(left_out)]
    if source.blank:
        frame = frame.map(lambda cell: "" if isinstance(cell, str) and cell.strip() in source.blank else cell)
    counted, order = counted or Counted(), []
    if source.wide:
        order = [question.words[QUESTION] for question in questions_of(list(frame.columns), source.wide, source.file)]
        frame = melted(frame, source.wide, source.file)
    for name, columns in source.numbered.items():
        known = counted.ids.setdefault(name, {})
        for question in order if columns == (QUESTION,) else ():
            _number((question,), known)
        rows = _parts(source, frame, name, columns)
        frame = with_columns(frame, {name: [None if None in row else _number(row, known) for row in rows]})
    for name, columns in source.repeats.items():
        seen = counted.rows.setdefault(name, {})
        rows = _parts(source, frame, name, columns)
        numbers = []
        for place, words in zip(frame.index.tolist(), rows, strict=True):
            key = _squeezed(part or "" for part in words)
            many, last = seen.get(key, (0, -1))
            if place != last:
                many, last = seen[key] = many + 1, place
            numbers.append(str(many) if many > 1 else "")
        frame = with_columns(frame, {name: numbers})
    for name, columns in source.ids.items():
        frame = _with_id(source, frame, name, columns, id_of)
    for name, columns in source.names.items():
        rows = _parts(source, frame, name, columns, html=False)
        joined = [" ".join(part.strip() for part in row if part is not None) for row in rows]
        frame = with_columns(frame, {name: joined})
    for name, columns in source.labels.items():
        frame = _with_id(source, frame, name, columns, label_of)
    return frame


def _parts(
    source: Source, frame: pd.DataFrame, name: str, columns: Sequence[str], digits: int = 1, html: bool = True
) -> list[tuple[str | None, ...]]:
    """Of each row the texts of the columns that a new column is made of; a row's number has so many digits at least.

    html: whether texts may be HTML where the source's may.
    """
    if name in frame.columns:
        rule = "is to be made of other columns, and the file has a column of that name"
        raise InputError(rule, file=source.file, field=name)
    parts: list[list[str | None]] = []
    for column in columns:
        if column == ROW:
            parts.append([f"{number + 1:0{digits}}" for number in frame.index.tolist()])
            continue
        need(frame, column, source.file)
        texts = [text_or_none(cell) for cell in frame[column]]
        parts.append([plain(text) if text and html and source.html else text for text in texts])
    return list(zip(*parts, strict=True)) if parts else [()] * len(frame)


def _squeezed(words: Iterable[object]) -> Words:
    return tuple(" ".join(str(part).split()) for part in words)


def _number(words: Sequence[str | None], known: dict[Words, str]) -> str:
    """Q1 for the first words, Q2 for the next ones; a number is its own, unless another question has it."""
    key = _squeezed(words)
    if key not in known:
        taken = set(known.values())
        own = [f"Q{key[0]}"] if len(key) == 1 and _WHOLE.fullmatch(key[0]) else []
        free = (f"Q{place}" for place in count(len(known) + 1))
        known[key] = next(name for names in (own, free) for name in names if name not in taken)
    return known[key]


def _with_id(
    source: Source, frame: pd.DataFrame, name: str, columns: Sequence[str], join: Callable[[Sequence[str]], str]
) -> pd.DataFrame:
    """The chunk with a column of ids, without the rows that lack a part of it and have no answer."""
    rows = _parts(source, frame, name, columns, digits=3 if join is label_of else 1)
    answer = source.responses.get("text")
    answers = frame[answer].tolist() if isinstance(answer, str) and answer in frame.columns else None
    ids = []
    for place, row in enumerate(rows):
        named = zip(columns, row, strict=True)
        lacking = [column for column, part in named if part is None and column not in source.repeats]
        if lacking and (answers is None or text_or_none(answers[place]) is not None):
            rule = f"is empty, and '{name}' is made of it"
            raise InputError(rule, file=source.file, row=frame.index[place] + 1, field=lacking[0])
        ids.append(None if lacking else join([part for part in row if part is not None]))
    return with_columns(frame, {name: ids}).loc[[answer_id is not None for answer_id in ids]]


def label_of(parts: Iterable[str]) -> str:
    """The id that texts make together for people to read, without what cannot be seen."""
    return "-".join("".join(filter(str.isprintable, " ".join(part.split()))) for part in parts)


class WideQuestion(NamedTuple):
    """One question of a wide file."""

    words: Mapping[str, str]
    """Placeholder → what stands in its place in the columns' names; `n` among them."""
    columns: Mapping[str, str]
    """New column → the column of this question that it takes the place of; without those that the file lacks."""


def melted(frame: pd.DataFrame, wide: Mapping[str, Pattern], file: str) -> pd.DataFrame:
    """A row for each row and question: the columns that belong to no question, those of `wide`, and the placeholders'.

    A question of several columns, all of which are blank in a row, is left out there.
    """
    questions = questions_of(list(frame.columns), wide, file)
    belonging = set[str]().union(*(question.columns.values() for question in questions))
    others = frame[[column for column in frame.columns if column not in belonging]]
    clashing = [name for name in others.columns if name in {*wide, *questions[0].words}]
    if clashing:
        rule = "is to be made of several columns, and the file has a column of that name"
        raise InputError(rule, file=file, field=clashing[0], hint="name the new one otherwise in 'wide'")
    parts = []
    for question in questions:
        columns: dict[str, list[Any]] = {name: [word] * len(frame) for name, word in question.words.items()}
        for name in wide:
            columns[name] = frame[question.columns[name]].tolist() if name in question.columns else [None] * len(frame)
        part = with_columns(others, columns)
        if len(question.columns) > 1:
            rows = zip(*(columns[name] for name in wide), strict=True)
            part = part.loc[[any(map(text_or_none, row)) for row in rows]]
        parts.append(part)
    return pd.concat(parts).sort_index(kind="stable")


def questions_of(header: Sequence[str], wide: Mapping[str, Pattern], file: str) -> list[WideQuestion]:
    """The questions of a wide file, in the order of its columns.

    InputError for a pattern that no column keeps, and for two columns of one kind for one question.
    """
    words: dict[str, dict[str, str]] = {}
    columns: dict[str, dict[str, str]] = {}
    for name, pattern in wide.items():
        if not isinstance(pattern, dict):
            for column, parts in _matches(header, pattern, file):
                question = parts[QUESTION]
                words.setdefault(question, {}).update(parts)
                if columns.setdefault(question, {}).setdefault(name, column) != column:
                    rule = f"the columns '{columns[question][name]}' and '{column}' are both of question '{question}'"
                    raise InputError(rule, file=file, field=name)
    right_of = {name: pattern["right_of"] for name, pattern in wide.items() if isinstance(pattern, dict)}
    while right_of:  # the column right of another one, whose own place is known, unless that is of another question
        name = next(name for name, neighbour in right_of.items() if neighbour not in right_of)  # `Source` has no circle
        neighbour = right_of.pop(name)
        used = set[str]().union(*(of_question.values() for of_question in columns.values()))
        for of_question in columns.values():
            place = header.index(of_question[neighbour]) + 1 if neighbour in of_question else 0
            if 0 < place < len(header) and header[place] not in used:
                of_question[name] = header[place]
    every = set[str]().union(*words.values())
    return [WideQuestion(dict.fromkeys(every, "") | words[question], columns[question]) for question in words]


def _matches(header: Sequence[str], pattern: str | tuple[str, ...], file: str) -> list[tuple[str, dict[str, str]]]:
    """The columns whose names keep a pattern, or those of a list, with what stands in place of the placeholders."""
    if isinstance(pattern, tuple):
        for column in pattern:
            need(pd.DataFrame(columns=pd.Index(header)), column, file)
        return [(column, {QUESTION: column}) for column in pattern]
    rule = matching(pattern)
    matches = [(column, match.groupdict()) for column in header if (match := rule.fullmatch(column))]
    if not matches:
        raise InputError(f"no column is named '{pattern}'; there are {', '.join(header)}", file=file, field="wide")
    return matches


def matching(pattern: str) -> re.Pattern[str]:
    """The columns' names that keep a pattern: blanks around do not count, and a question's number has none in it."""
    expression, end, names = "", 0, set()
    for placeholder in PLACEHOLDER.finditer(pattern):
        name = placeholder[1]
        words = r"\S+?" if name == QUESTION else r".*?"
        group = f"(?P={name})" if name in names else f"(?P<{name}>{words})"
        expression += re.escape(pattern[end : placeholder.start()]) + group
        names.add(name)
        end = placeholder.end()
    return re.compile(rf"\s*{expression}{re.escape(pattern[end:])}\s*", re.DOTALL)
