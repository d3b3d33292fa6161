"""A study's source and its questions, from what the columns of a file are for."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pandas as pd

from tasks.contracts.settings.reshaping import QUESTION, ROW, Pattern
from tasks.contracts.settings.study import Source
from tasks.ingest.draft.guess import number
from tasks.ingest.draft.roles import Roles
from tasks.store.cells import text_or_none
from tasks.store.reshape import matching, reshaped
from tasks.store.sheets import told_apart
from tasks.text.markup import is_markup, plain

UNWRITTEN = "WRITE HERE"
"""What stands, in a file that `init` wrote, where a person has to write something."""
USUAL_POINTS = 10.0
"""The most points of an answer where nothing tells."""
STEPS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.01)
"""Distances between scores that people use, the largest first."""
_OF_WIDE = ("answer", "question", "model_answer", "possible", "mark")
_MADE = (*_OF_WIDE, "answer_id", "question_id", "student_id", "student_name")
"""What columns are called that a draft makes."""
_TRAILING = re.compile(r" \(column \d+\)$")


@dataclass(frozen=True)
class DraftedItem:
    """A question as far as the file tells it."""

    item_id: str
    question: str | None
    reference: str | None
    points: float | None
    """The most points that the file says it bears."""
    best: float | None
    """The best mark that anybody got."""


@dataclass(frozen=True)
class Draft:
    """How a file maps, and its questions."""

    source: dict[str, Any]
    """What a study says of the file."""
    items: tuple[DraftedItem, ...]
    """In the order of the file."""
    answers: int
    """Rows of answers, empty ones included."""
    marked: int
    """Answers with a mark."""
    step: float
    """The largest distance between scores on which all marks lie."""
    asks_wording: bool
    """Whether the wording of a question is not in the file."""
    by_row: bool
    """Whether answers are told apart by the number of their row, as nothing else does."""


def drafted(file: str, roles: Roles, frame: pd.DataFrame) -> Draft:
    """The draft of a file of answers; roles.answer must be there."""
    names = _new_names(frame.columns)
    wide = _wide(roles, names)
    flat = _flat(roles, names) if wide else roles
    source: dict[str, Any] = {"file": file, "blank": list(roles.blank), "wide": wide, "html": roles.html}
    source["responses"] = {"text": flat.answer}
    rows = reshaped(Source.model_validate(source), frame)
    if roles.title and _holds_markup(rows[str(flat.answer)]):
        source["html"] = True
        rows = reshaped(Source.model_validate(source), frame)
    made_item, item = _item_id(flat, rows, names)
    made_student, student = _made(flat.student, names["student_id"])
    source["names"], author_name = _made(flat.names, names["student_name"])
    source["ids"] = made_item | made_student
    rows = reshaped(Source.model_validate(source), frame)
    made_answer, response = _response_id(flat, item, rows, names, bool(wide))
    source["ids"] |= made_answer
    mapping = {"response_id": response, "item_id": item, "author_id": student, "author_name": author_name}
    source["responses"] = {key: column for key, column in mapping.items() if column} | source["responses"]
    rows = reshaped(Source.model_validate(source), frame)
    scores = _scores(flat, rows)
    source["groups"] = {_slug(group): group for group in flat.groups}
    raters = ["teacher"] if roles.title and len(scores) == 1 else told_apart([_slug(column) for column in scores])
    source["scores"] = [{"rater": rater, "score": column} for rater, column in zip(raters, scores, strict=True)]
    items = _items(flat, item, rows, scores, _points_in_names(roles, frame.columns.tolist()))
    asks_wording = any(entry.question is None for entry in items)
    source["items"] = {} if asks_wording else _item_columns(flat, item, rows)
    filled = {key: value for key, value in source.items() if value}
    return Draft(
        source=filled,
        items=items,
        answers=len(rows),
        marked=_marked(rows, scores),
        step=_step(_marks(rows, scores)),
        asks_wording=asks_wording,
        by_row=any(ROW in columns for columns in source["ids"].values()),
    )


def _marks(rows: pd.DataFrame, scores: Sequence[str]) -> list[float]:
    """All marks of some columns."""
    return list(chain.from_iterable(_numbers(rows[column]) for column in scores))


def _step(marks: Sequence[float]) -> float:
    """The largest distance between scores that people use on which all marks lie."""
    fitting = (step for step in STEPS if all(_on_grid(mark, step) for mark in marks))
    return next(fitting, STEPS[-1])


def _holds_markup(answers: pd.Series) -> bool:
    """Whether a platform's answers were written in an editor that makes HTML: one such cell is enough, since a cell
    that is none stays as it is."""
    return any(is_markup(cell) for cell in answers if isinstance(cell, str))


def _new_names(columns: Iterable[str]) -> dict[str, str]:
    """What new columns are called: as they would be, or so with an underscore where the file has that name already."""
    existing = set(columns)
    return {name: _free_name(name, existing) for name in _MADE}


def _free_name(name: str, existing: Container[str]) -> str:
    while name in existing:
        name += "_"
    return name


def _marked(rows: pd.DataFrame, scores: Sequence[str]) -> int:
    """Answers with a mark."""
    columns = (rows[name] for name in scores)
    return sum(any(map(text_or_none, row)) for row in zip(*columns, strict=True))


def _wide(roles: Roles, names: Mapping[str, str]) -> dict[str, Pattern]:
    """What `wide` says: new column → the question's columns."""
    if not roles.wide or roles.answer is None:
        return {}
    marks = [pattern for pattern in roles.scores if _is_pattern(pattern)]
    several: dict[str, Pattern | None] = {"answer": roles.answer, "question": roles.question}
    several |= {"model_answer": roles.reference, "possible": roles.points, "mark": next(iter(marks), None)}
    wide = {names[name]: pattern for name, pattern in several.items() if pattern is not None and _is_pattern(pattern)}
    beside = {"right_of": "answer"}
    return {name: {"right_of": names["answer"]} if pattern == beside else pattern for name, pattern in wide.items()}


def _is_pattern(pattern: Pattern | None) -> bool:
    return pattern is not None and (not isinstance(pattern, str) or "{n}" in pattern)


def _flat(roles: Roles, names: Mapping[str, str]) -> Roles:
    """The roles of the columns that a wide file has once it is a row an answer."""
    wide = _wide(roles, names)
    by_name = isinstance(roles.answer, tuple)
    new = {name: column for name, column in names.items() if column in wide}
    in_answer = "question" if "{question}" in str(roles.answer) else None
    scores = [new["mark"]] if "mark" in new else []
    plain_scores = [pattern for pattern in roles.scores if not _is_pattern(pattern)]
    return replace(
        roles,
        answer=names["answer"],
        item=None if by_name else QUESTION,
        question=QUESTION if by_name else new.get("question", in_answer),
        reference=new.get("model_answer"),
        scores=(*scores, *plain_scores),
        points=new.get("possible"),
        response=None,
    )


def _item_id(roles: Roles, rows: pd.DataFrame, names: Mapping[str, str]) -> tuple[dict[str, list[str]], Any]:
    """(ids to make, column of the question's id): its number where that stands for one wording, else its wording."""
    if roles.item and not (roles.question and _varies(rows, roles.item, str(roles.question))):
        return {}, roles.item
    if roles.question:
        return {names["question_id"]: [str(roles.question)]}, names["question_id"]
    return {}, {"const": "question"}


def _made(columns: Sequence[str], name: str) -> tuple[dict[str, list[str]], str | None]:
    """(what is to be made of several columns, the column that stands for them)."""
    if len(columns) > 1:
        return {name: list(columns)}, name
    return {}, next(iter(columns), None)


def _varies(rows: pd.DataFrame, by: str, column: str) -> bool:
    """Whether a column says different things of one id."""
    pairs = {(text_or_none(key), text_or_none(cell)) for key, cell in zip(rows[by], rows[column], strict=True)}
    return len(pairs) > len({key for key, _ in pairs})


def _response_id(
    roles: Roles, item: Any, rows: pd.DataFrame, names: Mapping[str, str], wide: bool
) -> tuple[dict[str, list[str]], str]:
    """(ids to make, column of the answer's id): the file's own, else student and question, with the attempt or, where
    nothing else tells answers apart, the row's number."""
    if roles.response and _tells_apart(rows, [roles.response]):
        return {}, roles.response
    question = [item] if isinstance(item, str) else []
    for attempt in ([], [roles.attempt] if roles.attempt else []):
        key = [*roles.student, *question, *attempt]
        if roles.student and _tells_apart(rows, key):
            return {names["answer_id"]: key}, names["answer_id"]
    return {names["answer_id"]: [ROW, *(question if wide else [])]}, names["answer_id"]


def _tells_apart(rows: pd.DataFrame, key: Sequence[str]) -> bool:
    """Whether no two rows have the same words in these columns. Rows without any are no answers."""
    columns = (rows[name] for name in key)
    keys = [tuple(map(text_or_none, row)) for row in zip(*columns, strict=True)]
    complete = [words for words in keys if None not in words]
    return bool(complete) and len(set(complete)) == len(complete)


def _scores(roles: Roles, rows: pd.DataFrame) -> list[str]:
    """The columns that hold marks: numbers alone, of which not all are 0, as of what nobody has marked yet."""
    columns = [pattern for pattern in roles.scores if isinstance(pattern, str) and pattern in rows.columns]
    return [column for column in columns if _is_marked(rows[column])]


def _is_marked(cells: pd.Series) -> bool:
    words = [text for cell in cells if (text := text_or_none(cell)) is not None]
    return len(_numbers(cells)) == len(words) and any(_numbers(cells))


def _numbers(cells: pd.Series) -> list[float]:
    numbers = [number(text) for cell in cells if (text := text_or_none(cell)) is not None]
    return [value for value in numbers if value is not None]


def _items(
    roles: Roles, item: Any, rows: pd.DataFrame, scores: Sequence[str], by_name: Mapping[str, float]
) -> tuple[DraftedItem, ...]:
    """The questions of the answers; by_name: what the columns' names say of the most points."""
    ids = rows[item].tolist() if isinstance(item, str) else ["question"] * len(rows)
    groups = rows.assign(**{"": ids}).groupby("", sort=False)
    return tuple(_item(roles, str(key).strip(), part, scores, by_name) for key, part in groups if str(key).strip())


def _item(
    roles: Roles, key: str, rows: pd.DataFrame, scores: Sequence[str], by_name: Mapping[str, float]
) -> DraftedItem:
    points = _numbers(rows[roles.points]) if isinstance(roles.points, str) and roles.points in rows.columns else []
    marks = _marks(rows, scores)
    named = by_name.get(key, by_name.get(""))
    return DraftedItem(
        key,
        _only(rows, roles.question),
        _only(rows, roles.reference),
        max(points, default=named),
        max(marks, default=None),
    )


def _only(rows: pd.DataFrame, column: Pattern | None) -> str | None:
    """What all rows say in a column, where they say one thing."""
    if not isinstance(column, str) or column not in rows.columns:
        return None
    texts = {text for cell in rows[column] if (text := text_or_none(cell)) is not None}
    return plain(next(iter(texts))).strip() if len(texts) == 1 else None


def _points_in_names(roles: Roles, header: Sequence[str]) -> dict[str, float]:
    """Question (or "" for all) → the most points, where a column's name says them: "1.0" right of a Canvas question,
    "Grade/10.00" of a Moodle quiz."""
    points: dict[str, float] = {}
    patterns = [pattern for pattern in (roles.answer, roles.points) if isinstance(pattern, str) and "{" in pattern]
    for pattern in patterns:
        for column in header:
            match = matching(pattern).fullmatch(column)
            words = match.groupdict() if match else {}
            right = header[header.index(column) + 1 :][:1]
            beside = "".join(right) if {"right_of": "answer"} in roles.scores else ""
            value = number(_TRAILING.sub("", words.get("points") or beside))
            if words and value:
                points[words.get("n", "")] = value
    return points


def _item_columns(roles: Roles, item: Any, rows: pd.DataFrame) -> dict[str, Any]:
    """The mapping of the questions."""
    columns: dict[str, Any] = {"item_id": item, "question": roles.question}
    reference = roles.reference if isinstance(roles.reference, str) else None
    by = item if isinstance(item, str) else str(roles.question)
    if reference and reference in rows.columns and not _varies(rows, by, reference):
        columns["reference_answer"] = reference
    return columns


def _on_grid(mark: float, step: float) -> bool:
    return abs(mark / step - round(mark / step)) < 1e-6


def _slug(name: str) -> str:
    """A column's name as a short id."""
    return re.sub(r"\W+", "_", name.strip().casefold()).strip("_") or "person"
