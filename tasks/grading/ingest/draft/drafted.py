"""A study's source and its questions, from what the columns of a file are for.

`drafted` builds the source step by step: wide columns, question ids, people, response ids, scores, items; each step
looks at the rows that the source makes until then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import pandas as pd

from rubricflow.tasks.core.contracts.settings.data import QUESTION, ROW, Pattern, Source
from rubricflow.tasks.core.store.cells import text_or_none
from rubricflow.tasks.core.store.reshape import Counted, matching, questions_of, reshaped
from rubricflow.tasks.core.store.sheets import told_apart
from rubricflow.tasks.core.text.markup import is_markup, plain
from rubricflow.tasks.grading.ingest.draft.guess import is_label, number
from rubricflow.tasks.grading.ingest.draft.roles import Roles, disagreeing_sums, points_in

UNWRITTEN = "WRITE HERE"
"""What stands, in a file that `init` wrote, where a person has to write something."""
STEPS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.01)
"""Distances between scores that people use, the largest first."""
_MADE = (
    *("answer", "question", "model_answer", "possible", "mark", "answer_id", "question_id", "question_no"),
    *("student_id", "student_name", "namesake", "attempt_no"),
)
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
    """A question as far as the file has it."""

    item_id: str
    question: str | None
    reference: str | None
    points: float | None
    """The most points that it bears by the file."""
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
    """The file's entry in a study."""
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
    """The most points of all questions together, where the file has it."""


def drafted(file: str, roles: Roles, frame: pd.DataFrame, known: Known = NOTHING) -> Draft:
    """The draft of a file of answers; roles.answer must be there. known: what other files call the questions."""
    existing, names = set(frame.columns), dict[str, str]()
    for name in _MADE:
        names[name] = name
        while names[name] in existing:
            names[name] += "_"
    wide = _wide(roles, names)
    flat = _flat(roles, names, wide) if wide else roles
    source: dict[str, Any] = {"file": file, "blank": list(roles.blank), "wide": wide, "html": roles.html}
    source |= {"responses": {"text": flat.answer}}
    counted = Counted()

    def made() -> pd.DataFrame:
        """The file's rows as the source makes them until now."""
        counted.ids, counted.rows = {names["question_id"]: dict(known.numbers)}, {}
        return reshaped(Source.model_validate(source), frame, counted)

    rows = made()
    # One cell of HTML in a platform's export is enough, since a cell that is none stays as it is.
    if roles.title and any(is_markup(cell) for cell in rows[str(flat.answer)] if isinstance(cell, str)):
        source["html"] = True
        rows = made()
    source |= {"repeats": {}, "labels": {}, "names": {}}
    numbered, item = _item_id(flat, rows, known.ids), flat.item or names["question_id"]
    if numbered is not None:
        item = names["question_id"]
    source["numbered"] = {} if numbered is None else {item: numbered}
    rows = made()
    flat, namesakes = _people(flat, item, rows, names["namesake"])
    if names["namesake"] in flat.student:
        known_by = [name for name in flat.student if name != names["namesake"]]
        source["repeats"] = {names["namesake"]: known_by if wide else [*known_by, item]}
    student, author_name = next(iter(flat.student), None), next(iter(flat.names), None)
    if len(flat.student) > 1:
        student = names["student_id"]
        source["labels"] = {student: list(flat.student)}
    if len(flat.names) > 1:
        author_name = names["student_name"]
        source["names"] = {author_name: list(flat.names)}
    rows = made()
    response = _response_id(flat, student, item, rows, names, source)
    mapping = {"response_id": response, "item_id": item, "author_id": student, "author_name": author_name}
    source["responses"] = {key: column for key, column in mapping.items() if column} | source["responses"]
    rows = made()
    scores = []
    for column in flat.scores:  # numbers alone, of which not all are 0, as of what nobody has marked yet
        if isinstance(column, str) and column in rows.columns:
            values = _numbers(rows[column])
            if any(values) and len(values) == sum(text_or_none(cell) is not None for cell in rows[column]):
                scores.append(column)
    source["groups"] = {_slug(group): group for group in flat.groups}
    raters = ["teacher"] if roles.title and len(scores) == 1 else told_apart([_slug(column) for column in scores])
    source["scores"] = [{"rater": rater, "score": column} for rater, column in zip(raters, scores, strict=True)]
    by_number = _points_in_names(roles, Source.model_validate(source).wide, file, frame.columns.tolist())
    groups = ((str(key).strip(), part) for key, part in rows.groupby(item, sort=False))
    items = [_item(flat, key, part, scores, by_number) for key, part in groups if key]
    order = {name: place for place, name in enumerate(counted.ids.get(item, {}).values())}
    items.sort(key=lambda entry: order.get(entry.item_id, 0))
    asks_wording = any(entry.question is None or entry.varies for entry in items)
    if not asks_wording:
        source["items"] = {"item_id": item, "question": flat.question}
        reference = flat.reference
        if isinstance(reference, str) and reference in rows.columns and not _varies(rows, item, reference):
            source["items"]["reference_answer"] = reference
    marks = _marks(rows, scores)
    total = points_in(roles.total) if roles.total else None
    cells = zip(*(rows[name] for name in scores), strict=True)
    return Draft(
        source={key: value for key, value in source.items() if value},
        items=tuple(items),
        answers=len(rows),
        marked=sum(any(map(text_or_none, row)) for row in cells),
        step=next((step for step in STEPS if all(is_on_grid(mark, step) for mark in marks)), STEPS[-1]),
        asks_wording=asks_wording,
        by_row=any(ROW in columns for columns in source["labels"].values()),
        student=tuple(name for name in flat.student if name not in source["repeats"]),
        namesakes=namesakes,
        remarks=tuple(_remarks(roles, items, rows, scores, total)),
        total=total,
    )


def _wide(roles: Roles, names: Mapping[str, str]) -> dict[str, Pattern]:
    """What `wide` says: new column → the question's columns."""
    if not roles.wide:
        return {}
    several: dict[str, Pattern | None] = {"answer": roles.answer, "question": roles.question}
    several |= {"model_answer": roles.reference, "possible": roles.points}
    several["mark"] = next(filter(_is_pattern, roles.scores), None)
    wide: dict[str, Pattern] = {}
    for name, pattern in several.items():
        if pattern is not None and _is_pattern(pattern):
            wide[names[name]] = {"right_of": names["answer"]} if pattern == {"right_of": "answer"} else pattern
    return wide


def _is_pattern(pattern: Pattern | None) -> bool:
    return pattern is not None and (not isinstance(pattern, str) or "{n}" in pattern)


def _flat(roles: Roles, names: Mapping[str, str], wide: Container[str]) -> Roles:
    """The roles of the columns that a wide file has once it is a row an answer."""
    new = {name: column for name, column in names.items() if column in wide}
    question = new.get("question", "question" if "{question}" in str(roles.answer) else None)
    if isinstance(roles.answer, tuple) and not all(map(is_label, roles.answer)):
        question = QUESTION
    scores = [new["mark"]] if "mark" in new else []
    return replace(
        roles,
        answer=names["answer"],
        item=QUESTION,
        question=question,
        reference=new.get("model_answer"),
        scores=(*scores, *(pattern for pattern in roles.scores if not _is_pattern(pattern))),
        points=new.get("possible"),
        response=None,
    )


def _item_id(roles: Roles, rows: pd.DataFrame, known: Container[str]) -> list[str] | None:
    """None where the file's own ids of questions each stand for one wording, else the column whose words are to be
    numbered: the wordings, or names of columns that are places or wordings; none, where there is a single question.
    known: ids by which other files call questions."""
    if roles.item is None or (roles.question and _varies(rows, roles.item, roles.question)):
        return [str(roles.question)] if roles.question else []
    if roles.item == QUESTION:
        ids = {text for cell in rows[QUESTION] if (text := text_or_none(cell))}
        is_place = all(len(text) <= _LARGEST_NUMBER and text.isdigit() for text in ids)
        is_header = any(" " in text or len(text) > _LONGEST_ID for text in ids)
        if (is_place or is_header) and not all(text.strip() in known for text in ids):
            return [QUESTION]
    return None


def _people(
    roles: Roles, item: str, rows: pd.DataFrame, namesake: str
) -> tuple[Roles, tuple[tuple[str, tuple[int, ...]], ...]]:
    """(the roles with what tells namesakes apart, the names of which nothing says whether they are one student's).

    A group that parts them does; else, where names alone identify a student, the first answer of a name to a question
    is one student's, the second another's, by the new column `namesake`.
    """
    doubled = _doubled(rows, [*roles.student, item])
    words = [str(cell) for column in roles.student for cell in rows[column] if text_or_none(cell)]
    # Names are words without a number or an address.
    are_names = roles.student == roles.names or 2 * sum(bool(re.search(r"[\d@]", word)) for word in words) < len(words)
    if not roles.student or not doubled or not are_names:
        return roles, ()
    for group in roles.groups:
        if not _doubled(rows, [*roles.student, group, item]):
            return replace(roles, student=(*roles.student, group)), ()
    of_question: dict[tuple[str, ...], list[int]] = {}
    for key, row in doubled:
        of_question.setdefault(key, []).append(row)
    most: dict[str, list[int]] = {}
    for key, numbers in of_question.items():
        name = " ".join(key[:-1])
        most[name] = max(most.get(name, []), numbers, key=len)
    student = (*roles.student, namesake) if roles.namesakes else roles.student
    return replace(roles, student=student), tuple((name, tuple(numbers)) for name, numbers in most.items())


def _doubled(rows: pd.DataFrame, key: Sequence[str]) -> list[tuple[tuple[str, ...], int]]:
    """(words, number of the row) of the rows whose words in these columns another row has, too; not of those that lack
    one."""
    words = rows[list(key)].map(text_or_none).dropna()
    twice = words[words.duplicated(keep=False)]
    return [(tuple(map(str, row)), at + 1) for at, *row in twice.itertuples(name=None)]


def _tells_apart(rows: pd.DataFrame, key: Sequence[str]) -> bool:
    """Whether no two rows have the same words in these columns. Rows without any are no answers."""
    return bool(rows[list(key)].map(text_or_none).notna().all(axis=1).any()) and not _doubled(rows, key)


def _response_id(
    roles: Roles, student: str | None, item: str, rows: pd.DataFrame, names: Mapping[str, str], source: dict[str, Any]
) -> str:
    """The column of the answer's id: the file's own, else one that is made of student and question, with the attempt,
    or, where nothing identifies the writer, of the question and the row's number. What it is made of is added to
    the source."""
    if roles.response and _tells_apart(rows, [roles.response]):
        return roles.response
    question, attempt = item, names["attempt_no"]
    if item not in source["numbered"] and any(str(cell).strip().isdigit() for cell in rows[item]):
        # A spreadsheet makes a date of 12-1.
        question = names["question_no"]
        source["numbered"][question] = [item]
    key = [student, question] if student else [question, ROW]
    if student and _doubled(rows, [student, item]):
        own = roles.attempt
        if own and all(str(cell).strip().isdigit() for cell in rows[own]) and _tells_apart(rows, [student, item, own]):
            attempt = own
        else:
            source["repeats"][attempt] = [student, item]
        key.append(attempt)
    source["labels"][names["answer_id"]] = key
    return names["answer_id"]


def _points_in_names(roles: Roles, wide: Mapping[str, Pattern], file: str, header: Sequence[str]) -> dict[str, float]:
    """Question's number (or "" for all) → the most points, where a column's name has them: "1.0" right of a Canvas
    question, "Frage 1 (4 P.)", or "Punkte / 10" of a file with one column of marks."""
    points = {}
    for question in questions_of(header, wide, file) if wide else ():
        columns = (question.columns[name] for name in reversed(list(wide)) if name in question.columns)
        said = (number(_TRAILING.sub("", name)) or points_in(name) for name in columns)
        if value := next(filter(None, said), None):
            points[question.words[QUESTION]] = value
    named = [name for name in (*roles.scores, roles.points) if isinstance(name, str)]
    if roles.points and "{points}" in str(roles.points):
        named = [column for column in header if matching(str(roles.points)).fullmatch(column)]
    alone = {value for name in named if "{" not in name and (value := points_in(name))}
    return points or ({"": max(alone)} if alone else {})


def _item(
    roles: Roles, key: str, rows: pd.DataFrame, scores: Sequence[str], by_number: Mapping[str, float]
) -> DraftedItem:
    """A question of its answers; by_number: see `_points_in_names`."""
    wording = _only(rows, roles.question)
    place = str(rows[QUESTION].iloc[0]) if QUESTION in rows.columns else ""
    named = by_number.get(place, by_number.get("", points_in(wording or "", is_header=False)))
    points = _numbers(rows[roles.points]) if isinstance(roles.points, str) and roles.points in rows.columns else []
    return DraftedItem(
        key,
        wording,
        _only(rows, roles.reference),
        max(points, default=named),
        max(_marks(rows, scores), default=None),
        isinstance(roles.question, str) and len(set(rows.get(roles.question, ()))) > 1,
    )


def _only(rows: pd.DataFrame, column: Pattern | None) -> str | None:
    """The text of a column, where all rows have one."""
    if not isinstance(column, str) or column not in rows.columns:
        return None
    texts = {_squeezed(cell): text for cell in rows[column] if (text := text_or_none(cell)) is not None}
    return plain(next(iter(texts.values()))).strip() if len(texts) == 1 else None


def _varies(rows: pd.DataFrame, by: str, column: Pattern) -> bool:
    """Whether a column has different texts for one id."""
    cells = zip(rows[by], rows[str(column)], strict=True)
    pairs = {(text_or_none(key), _squeezed(cell)) for key, cell in cells}
    return len(pairs) > len({key for key, _ in pairs})


def _squeezed(cell: Any) -> str:
    """A cell's words without what blanks and line breaks are between them."""
    return " ".join((text_or_none(cell) or "").split())


def _marks(rows: pd.DataFrame, scores: Sequence[str]) -> list[float]:
    """All marks of some columns."""
    return list(chain.from_iterable(_numbers(rows[column]) for column in scores))


def _numbers(cells: pd.Series) -> list[float]:
    texts = filter(None, map(text_or_none, cells))
    return [value for text in texts if (value := number(text)) is not None]


def _remarks(
    roles: Roles, items: Sequence[DraftedItem], rows: pd.DataFrame, scores: Sequence[str], total: float | None
) -> Iterator[str]:
    """What does not agree: spellings of a question, marks with their question's points, points with the total's, marks
    with their total; and many marks of 0, as Canvas writes for an answer that nobody has graded."""
    for item in items:
        if item.varies and item.question:
            yield f"{item.item_id}: its wording has several spellings in the file, of which the first is taken"
        if item.points and item.best and item.best > item.points:
            yield f"{item.item_id}: a mark of {item.best:g} is above its {item.points:g} points"
    known = [item.points for item in items if item.points is not None]
    most = math.fsum(known) if len(known) == len(items) else None
    if total and most and abs(total - most) > _ROUNDING:
        yield f"the questions' points add up to {most:g}, and '{roles.total}' says {total:g}"
    if roles.total is not None and len(scores) == 1 and roles.total in rows.columns:
        marks: dict[int, list[float]] = {}
        totals = {}
        for row, mark, whole in zip(rows.index.tolist(), rows[scores[0]], rows[roles.total], strict=True):
            marks.setdefault(row + 1, []).append(number(str(mark)) or 0.0)
            if (value := number(str(whole))) is not None:
                totals[row + 1] = value
        wrong = disagreeing_sums(marks, totals, total / most if total and most else None)
        shown = "; ".join(f"row {row}: {value:g} and {whole:g}" for row, value, whole in wrong[:3])
        if wrong:
            of_all = f"{len(wrong)} of {len(totals)} rows"
            yield f"the marks do not add up to '{roles.total}' in {of_all}: {shown}{'; …' if len(wrong) > 3 else ''}"
    numbers = _marks(rows, scores)
    zeros = numbers.count(0.0)
    if zeros >= max(2, len(numbers) / 4):
        yield (
            f"{zeros:,} of {len(numbers):,} marks are 0, and each counts as a grade: empty the cells in which 0 stands "
            "for an answer that nobody has graded"
        )


def is_on_grid(mark: float, step: float) -> bool:
    """Whether a mark is a whole number of steps."""
    return abs(mark / step - round(mark / step)) < 1e-6


def _slug(name: str) -> str:
    """A column's name as a short id."""
    return re.sub(r"\W+", "_", name.strip().casefold()).strip("_") or "person"
