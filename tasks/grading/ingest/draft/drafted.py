"""A study's source and its questions, from what the columns of a file are for."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pandas as pd

from rubricflow.tasks.core.contracts.settings.study import QUESTION, ROW, Pattern, Source
from rubricflow.tasks.core.store.cells import text_or_none
from rubricflow.tasks.core.store.reshape import Counted, matching, questions_of, reshaped
from rubricflow.tasks.core.store.sheets import told_apart
from rubricflow.tasks.core.text.markup import is_markup, plain
from rubricflow.tasks.grading.ingest.draft.guess import is_label, number
from rubricflow.tasks.grading.ingest.draft.points import disagreeing_sums, points_in
from rubricflow.tasks.grading.ingest.draft.roles import Roles

UNWRITTEN = "WRITE HERE"
"""What stands, in a file that `init` wrote, where a person has to write something."""
USUAL_POINTS = 10.0
"""The most points of an answer where nothing tells."""
STEPS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.01)
"""Distances between scores that people use, the largest first."""
_OF_WIDE = ("answer", "question", "model_answer", "possible", "mark")
_MADE = (*_OF_WIDE, "answer_id", "question_id", "question_no", "student_id", "student_name", "namesake", "attempt_no")
"""What columns are called that a draft makes."""
_LARGEST_NUMBER = 2
"""Digits of a question's number; a longer one is a platform's id."""
_LONGEST_ID = 12
"""Characters of what may be a question's id in a column's name."""
_ROUNDING = 0.0051
"""Points by which a sum may miss its total."""
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
    varies: bool = False
    """Whether the file writes its wording in several ways."""


@dataclass(frozen=True)
class Known:
    """What other files call the questions."""

    ids: frozenset[str] = frozenset()
    numbers: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """Wording → the number that it has there."""


NOTHING = Known()


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
    student: tuple[str, ...]
    """The columns that tell students apart."""
    namesakes: tuple[tuple[str, tuple[int, ...]], ...]
    """Names that stand where nothing else tells students apart, and answer a question more than once, each with the
    numbers of these rows."""
    remarks: tuple[str, ...]
    """What in the file does not agree, in sentences."""
    total: float | None
    """The most points of all questions together, where the file says it."""


def drafted(file: str, roles: Roles, frame: pd.DataFrame, known: Known = NOTHING) -> Draft:
    """The draft of a file of answers; roles.answer must be there. known: what other files call the questions."""
    names = _new_names(frame.columns)
    wide = _wide(roles, names)
    flat = _flat(roles, names) if wide else roles
    source: dict[str, Any] = {"file": file, "blank": list(roles.blank), "wide": wide, "html": roles.html}
    source["responses"] = {"text": flat.answer}

    counted = Counted()

    def made() -> pd.DataFrame:
        """The file's rows as the source makes them until now."""
        counted.ids, counted.rows = {names["question_id"]: dict(known.numbers)}, {}
        return reshaped(Source.model_validate(source), frame, counted)

    rows = made()
    if roles.title and _holds_markup(rows[str(flat.answer)]):
        source["html"] = True
        rows = made()
    source["numbered"], item = _item_id(flat, rows, names, known.ids)
    source["repeats"], source["labels"] = {}, {}
    rows = made()
    flat, namesakes = _people(flat, item, rows, names, source, bool(wide))
    source["labels"] |= _made(flat.student, names["student_id"])
    student = names["student_id"] if len(flat.student) > 1 else next(iter(flat.student), None)
    source["names"] = {names["student_name"]: list(flat.names)} if len(flat.names) > 1 else {}
    author_name = names["student_name"] if source["names"] else next(iter(flat.names), None)
    rows = made()
    response = _response_id(flat, student, item, rows, names, source)
    mapping = {"response_id": response, "item_id": item, "author_id": student, "author_name": author_name}
    source["responses"] = {key: column for key, column in mapping.items() if column} | source["responses"]
    rows = made()
    scores = _scores(flat, rows)
    source["groups"] = {_slug(group): group for group in flat.groups}
    raters = ["teacher"] if roles.title and len(scores) == 1 else told_apart([_slug(column) for column in scores])
    source["scores"] = [{"rater": rater, "score": column} for rater, column in zip(raters, scores, strict=True)]
    items = _items(flat, item, rows, scores, _points_in_names(roles, source, frame.columns.tolist()))
    order = {name: place for place, name in enumerate(counted.ids.get(item, {}).values())}
    items = tuple(sorted(items, key=lambda entry: order.get(entry.item_id, 0)))
    total = points_in(roles.total) if roles.total else None
    asks_wording = any(entry.question is None or entry.varies for entry in items)
    source["items"] = {} if asks_wording else _item_columns(flat, item, rows)
    return Draft(
        source={key: value for key, value in source.items() if value},
        items=items,
        answers=len(rows),
        marked=_marked(rows, scores),
        step=_step(_marks(rows, scores)),
        asks_wording=asks_wording,
        by_row=any(ROW in columns for columns in source["labels"].values()),
        student=tuple(name for name in flat.student if name not in source["repeats"]),
        namesakes=namesakes,
        remarks=(*_disagreements(roles, items, rows, scores, total), *_zeros(_marks(rows, scores))),
        total=total,
    )


def _people(
    roles: Roles, item: str, rows: pd.DataFrame, names: Mapping[str, str], source: dict[str, Any], wide: bool
) -> tuple[Roles, tuple[tuple[str, tuple[int, ...]], ...]]:
    """(the roles with what tells namesakes apart, the names of which nothing says whether they are one student's).

    A group that parts them does; else, where names alone say who a student is, the first answer of a name to a question
    is one student's, the second another's.
    """
    doubled = _doubled(rows, [*roles.student, item])
    if not roles.student or not doubled or not _are_names(roles, rows):
        return roles, ()
    for group in roles.groups:
        if not _doubled(rows, [*roles.student, group, item]):
            return replace(roles, student=(*roles.student, group)), ()
    of_question: dict[tuple[str, ...], list[int]] = {}
    for words, row in doubled:
        of_question.setdefault(words, []).append(row)
    most: dict[str, list[int]] = {}
    for words, numbers in of_question.items():
        name = " ".join(words[:-1])
        most[name] = max(most.get(name, []), numbers, key=len)
    found = tuple((name, tuple(numbers)) for name, numbers in most.items())
    if roles.namesakes:
        namesake = names["namesake"]
        source["repeats"] = {namesake: [*roles.student] if wide else [*roles.student, item]}
        roles = replace(roles, student=(*roles.student, namesake))
    return roles, found


def _are_names(roles: Roles, rows: pd.DataFrame) -> bool:
    """Whether students are told apart by words alone, without a number or an address."""
    words = [str(cell) for column in roles.student for cell in rows[column] if text_or_none(cell)]
    numbered = sum(bool(re.search(r"[\d@]", word)) for word in words)
    return roles.student == roles.names or 2 * numbered < len(words)


def _doubled(rows: pd.DataFrame, key: Sequence[str]) -> list[tuple[tuple[str, ...], int]]:
    """(words, number of the row) of the rows whose words in these columns another row has, too; not of those that lack
    one."""
    keys = [tuple(map(text_or_none, row)) for row in zip(*(rows[name] for name in key), strict=True)]
    counts = Counter(keys)
    numbered = zip(keys, rows.index.tolist(), strict=True)
    return [(tuple(map(str, words)), row + 1) for words, row in numbered if counts[words] > 1 and None not in words]


def _marks(rows: pd.DataFrame, scores: Sequence[str]) -> list[float]:
    """All marks of some columns."""
    return list(chain.from_iterable(_numbers(rows[column]) for column in scores))


def _zeros(marks: Sequence[float]) -> Iterator[str]:
    """That many marks are 0, as Canvas writes for an answer that nobody has graded: a mark in the file is a grade."""
    zeros = marks.count(0.0)
    if zeros >= max(2, len(marks) / 4):
        yield (
            f"{zeros:,} of {len(marks):,} marks are 0, and each counts as a grade: empty the cells in which 0 stands "
            "for an answer that nobody has graded"
        )


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
    by_name = isinstance(roles.answer, tuple) and not all(map(is_label, roles.answer))
    new = {name: column for name, column in names.items() if column in wide}
    in_answer = "question" if "{question}" in str(roles.answer) else None
    scores = [new["mark"]] if "mark" in new else []
    plain_scores = [pattern for pattern in roles.scores if not _is_pattern(pattern)]
    return replace(
        roles,
        answer=names["answer"],
        item=QUESTION,
        question=QUESTION if by_name else new.get("question", in_answer),
        reference=new.get("model_answer"),
        scores=(*scores, *plain_scores),
        points=new.get("possible"),
        response=None,
    )


def _item_id(
    roles: Roles, rows: pd.DataFrame, names: Mapping[str, str], known: Container[str]
) -> tuple[dict[str, list[str]], str]:
    """(what is to be numbered, column of the question's id): the file's own id where it stands for one wording, else
    Q1, Q2 and so on. known: ids by which other files call questions."""
    own = roles.item
    if own is not None and roles.question and _varies(rows, own, roles.question):
        own = None
    if own is None:
        return {names["question_id"]: [str(roles.question)] if roles.question else []}, names["question_id"]
    ids = {text for cell in rows[own] if (text := text_or_none(cell))}
    is_place = own == QUESTION and all(len(text) <= _LARGEST_NUMBER and text.isdigit() for text in ids)
    is_header = own == QUESTION and any(" " in text or len(text) > _LONGEST_ID for text in ids)
    if (is_place or is_header) and not all(text.strip() in known for text in ids):
        return {names["question_id"]: [own]}, names["question_id"]
    return {}, own


def _made(columns: Sequence[str], name: str) -> dict[str, list[str]]:
    """What is to be made of several columns."""
    return {name: list(columns)} if len(columns) > 1 else {}


def _varies(rows: pd.DataFrame, by: str, column: Pattern) -> bool:
    """Whether a column says different things of one id."""
    cells = zip(rows[by], rows[str(column)], strict=True)
    pairs = {(text_or_none(key), _squeezed(cell)) for key, cell in cells}
    return len(pairs) > len({key for key, _ in pairs})


def _squeezed(cell: Any) -> str:
    """A cell's words without what blanks and line breaks are between them."""
    return " ".join((text_or_none(cell) or "").split())


def _response_id(
    roles: Roles, student: str | None, item: str, rows: pd.DataFrame, names: Mapping[str, str], source: dict[str, Any]
) -> str:
    """The column of the answer's id: the file's own, else one that is made of student and question, with the attempt,
    or, where nothing tells who wrote an answer, of the question and the row's number."""
    if roles.response and _tells_apart(rows, [roles.response]):
        return roles.response
    question, name = item, names["answer_id"]
    if item not in source["numbered"] and any(str(cell).strip().isdigit() for cell in rows[item]):
        # A spreadsheet makes a date of 12-1.
        question = names["question_no"]
        source["numbered"][question] = [item]
    key = [student, question] if student else [question, ROW]
    if student and _doubled(rows, [student, item]):
        attempt = names["attempt_no"]
        if roles.attempt and all(str(cell).strip().isdigit() for cell in rows[roles.attempt]):
            attempt = roles.attempt
        if attempt == names["attempt_no"] or not _tells_apart(rows, [student, item, attempt]):
            attempt = names["attempt_no"]
            source["repeats"][attempt] = [student, item]
        key.append(attempt)
    source["labels"][name] = key
    return name


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
    roles: Roles, item: str, rows: pd.DataFrame, scores: Sequence[str], by_number: Mapping[str, float]
) -> tuple[DraftedItem, ...]:
    """The questions of the answers, in the order of the rows; by_number: what the columns' names say of the most points
    of a question, or under "" of all."""
    groups = rows.groupby(item, sort=False)
    return tuple(_item(roles, str(key).strip(), part, scores, by_number) for key, part in groups if str(key).strip())


def _item(
    roles: Roles, key: str, rows: pd.DataFrame, scores: Sequence[str], by_number: Mapping[str, float]
) -> DraftedItem:
    points = _numbers(rows[roles.points]) if isinstance(roles.points, str) and roles.points in rows.columns else []
    wording = _only(rows, roles.question)
    number_ = str(rows[QUESTION].iloc[0]) if QUESTION in rows.columns else ""
    named = by_number.get(number_, by_number.get("", points_in(wording or "", is_header=False)))
    return DraftedItem(
        key,
        wording,
        _only(rows, roles.reference),
        max(points, default=named),
        max(_marks(rows, scores), default=None),
        isinstance(roles.question, str) and len(set(rows.get(roles.question, ()))) > 1,
    )


def _only(rows: pd.DataFrame, column: Pattern | None) -> str | None:
    """What all rows say in a column, where they say one thing."""
    if not isinstance(column, str) or column not in rows.columns:
        return None
    texts = {_squeezed(cell): text for cell in rows[column] if (text := text_or_none(cell)) is not None}
    return plain(next(iter(texts.values()))).strip() if len(texts) == 1 else None


def _points_in_names(roles: Roles, source: Mapping[str, Any], header: Sequence[str]) -> dict[str, float]:
    """Question's number (or "" for all) → the most points, where a column's name says them: "1.0" right of a Canvas
    question, "Frage 1 (4 P.)", or "Punkte / 10" of a file with one column of marks."""
    points: dict[str, float] = {}
    wide = Source.model_validate(source).wide
    for question in questions_of(header, wide, source["file"]) if wide else ():
        columns = [question.columns[name] for name in reversed(wide) if name in question.columns]
        said = [number(_TRAILING.sub("", name)) or points_in(name) for name in columns]
        if value := next(filter(None, said), None):
            points[question.words[QUESTION]] = value
    named = [name for name in (*roles.scores, roles.points) if isinstance(name, str)]
    if roles.points and "{points}" in str(roles.points):
        named = [column for column in header if matching(str(roles.points)).fullmatch(column)]
    alone = {value for name in named if "{" not in name and (value := points_in(name))}
    return points or ({"": max(alone)} if alone else {})


def _disagreements(
    roles: Roles, items: Sequence[DraftedItem], rows: pd.DataFrame, scores: Sequence[str], total: float | None
) -> Iterator[str]:
    """What does not agree: spellings of a question, marks with their question's points, points with the total's, marks
    with their total."""
    for item in items:
        if item.varies and item.question:
            yield f"{item.item_id}: its wording has several spellings in the file, of which the first is taken"
        if item.points and item.best and item.best > item.points:
            yield f"{item.item_id}: a mark of {item.best:g} is above its {item.points:g} points"
    known = [item.points for item in items if item.points is not None]
    most = math.fsum(known) if len(known) == len(items) else None
    if total and most and abs(total - most) > _ROUNDING:
        yield f"the questions' points add up to {most:g}, and '{roles.total}' says {total:g}"
    if roles.total is None or len(scores) != 1 or roles.total not in rows.columns:
        return
    marks: dict[int, list[float]] = {}
    totals: dict[int, float] = {}
    for row, mark, whole in zip(rows.index.tolist(), rows[scores[0]], rows[roles.total], strict=True):
        marks.setdefault(row + 1, []).append(number(str(mark)) or 0.0)
        if (value := number(str(whole))) is not None:
            totals[row + 1] = value
    wrong = disagreeing_sums(marks, totals, total / most if total and most else None)
    shown = "; ".join(f"row {row}: {value:g} and {whole:g}" for row, value, whole in wrong[:3])
    if wrong:
        of_all = f"{len(wrong)} of {len(totals)} rows"
        yield f"the marks do not add up to '{roles.total}' in {of_all}: {shown}{'; …' if len(wrong) > 3 else ''}"


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
