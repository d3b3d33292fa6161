"""What the columns of a file of no known platform may be for, by their names in several languages and their cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from statistics import fmean
from typing import Literal

from rubricflow.tasks.core.contracts.settings.study import Pattern
from rubricflow.tasks.core.store.reshape import matching
from rubricflow.tasks.core.text.markup import is_markup
from rubricflow.tasks.core.text.numbers import number_of
from rubricflow.tasks.grading.ingest.draft.names import in_spoken_order, is_named
from rubricflow.tasks.grading.ingest.draft.points import place_of_points, without_points
from rubricflow.tasks.grading.ingest.draft.roles import Roles

_TEXT = 15
"""Characters of an average cell from which a column may hold answers."""
_MARKED_UP = 0.5
"""Share of the answers from which a column is one of HTML."""
_LABEL = re.compile(r"\W*[^\W\d]*\W*\d{1,3}\W?[^\W\d]?\W*")
"""What names a question without asking it: 'Frage 3a', '2.', 'Q7'."""
_ENDS = ("?", "？", ".", "。", "!", ":", "…")


@dataclass(frozen=True)
class Column:
    """A column, and what its cells look like."""

    name: str
    rows: tuple[str, ...]
    """All cells, a row each, empty ones included."""

    @property
    def count(self) -> int:
        """Rows, empty cells included."""
        return len(self.rows)

    @cached_property
    def cells(self) -> tuple[str, ...]:
        """What stands in the cells that are not empty."""
        return tuple(cell for cell in self.rows if cell.strip())

    @property
    def length(self) -> float:
        """Characters of a cell on average; 0 without one."""
        return fmean(map(len, self.cells)) if self.cells else 0.0

    @property
    def numeric(self) -> bool:
        """Whether it holds numbers alone, of which not all are 0."""
        numbers = [number(cell) for cell in self.cells]
        return any(numbers) and None not in numbers

    @property
    def same(self) -> bool:
        """Whether all of several rows say the same, as of the class and not of an answer."""
        return self.count == len(self.cells) > 1 == len(set(self.cells))

    @property
    def distinct(self) -> float:
        """Share of the rows that have a cell of their own."""
        return len(set(self.cells)) / self.count if self.count else 0.0


def number(cell: str) -> float | None:
    """A cell as a number, with a decimal comma, too; None where it is none."""
    text = cell.strip()
    return number_of(text) if "," not in text or "." in text else number_of(text.replace(",", ".", 1))


def guessed(columns: Sequence[Column]) -> Roles:
    """The roles of the columns, each for one thing at most. Without a column of texts there is no answer."""
    numbered = _numbered(columns)
    answer = _wide_answers(numbered)
    return identified(_of_wide(answer, numbered, columns) if answer else _of_rows(columns), columns)


def _of_wide(answer: str, numbered: Mapping[str, list[Column]], columns: Sequence[Column]) -> Roles:
    """The roles of a file of several columns a question."""

    def pattern(role: str, numeric: bool) -> str | None:
        for name, group in numbered.items():
            numbers = any(column.numeric for column in group)
            if name not in used and is_named(group[0].name, role) and numbers == numeric:
                return name
        return None

    used = {answer}
    patterns: dict[str, str | None] = {}
    for role, numeric in (("reference", False), ("points", True), ("score", True), ("question", False)):
        patterns[role] = pattern(role, numeric)
        used |= {patterns[role] or answer}
    used_columns = {column.name for name in used for column in numbered[name]}
    free = {column.name: column for column in columns if column.name not in used_columns}
    total = _take(free, "total", lambda column: column.numeric)
    numbers = _every(free, "number", lambda column: bool(column.cells))
    return replace(
        _people(free, numbers),
        total=total,
        answer=answer,
        question=patterns["question"],
        reference=patterns["reference"],
        points=patterns["points"],
        scores=(patterns["score"],) if patterns["score"] else (),
        html=_marked_up(numbered[answer]),
    )


def identified(roles: Roles, columns: Sequence[Column]) -> Roles:
    """The roles with the students told apart by the first of what may do so that every answer has: as the roles say, a
    number of theirs, an e-mail address, a user's name, their names. What tells no more than half as many apart as
    another does is left out."""
    answers = _answer_cells(roles, columns) or [[True] * len(column.rows) for column in columns[:1]]
    answered = [any(cells) for cells in zip(*answers, strict=True)]
    by_name = {column.name: column for column in columns}
    ways = [way for way in (roles.student, *roles.students, roles.names) if way]
    known = {way: _known(way, by_name, answered) for way in ways}
    most = max((len(set(words)) for words in known.values()), default=0)
    telling = [way for way in ways if 2 * len(set(known[way])) > most]
    return replace(roles, student=max(telling, key=lambda way: sum(map(all, known[way])), default=()))


def with_people(roles: Roles, columns: Sequence[Column]) -> Roles:
    """A platform's roles with what else among its columns may tell students apart."""
    others = {column.name: column for column in columns if column.name not in (*roles.student, *roles.names)}
    numbers = _every(others, "number", lambda column: bool(column.cells))
    return identified(replace(roles, students=_people(others, numbers).students), columns)


def _answer_cells(roles: Roles, columns: Sequence[Column]) -> list[list[bool]]:
    """Of each column of answers, whether each row has one."""
    names = _names(roles.answer)
    pattern = matching(names[0]) if len(names) == 1 and "{" in names[0] else None
    mine = (column for column in columns if column.name in names or (pattern and pattern.fullmatch(column.name)))
    return [[bool(cell.strip()) and cell.strip() not in roles.blank for cell in column.rows] for column in mine]


def _known(way: Sequence[str], by_name: Mapping[str, Column], answered: Sequence[bool]) -> list[tuple[str, ...]]:
    """What a way to tell students apart says of each row with an answer."""
    rows = zip(*(by_name[name].rows for name in way), strict=True)
    return [tuple(cell.strip() for cell in row) for row, has_answer in zip(rows, answered, strict=True) if has_answer]


def _of_rows(columns: Sequence[Column]) -> Roles:
    """The roles of a file of a row an answer or, where several columns of texts are named by questions, of a row a
    student."""
    free = {column.name: column for column in columns}
    total = _take(free, "total", lambda column: column.numeric)
    numbers = _every(free, "number", lambda column: bool(column.cells))
    reference = _take(free, "reference", lambda column: column.length >= 1 and not column.numeric)
    points = _take(free, "points", lambda column: column.numeric and place_of_points(column.name) is None)
    scores = _every(free, "score", lambda column: column.numeric and not column.same)
    wording = _take(free, "wording", lambda column: bool(column.cells) and not column.numeric)
    answer: Pattern | None = _alike(free, "answer") or _take(free, "answer", _may_answer)
    answer = answer or _alike(free, "question") or _named_by_questions(free)
    wording = wording or _take(free, "question", _is_wording)
    item = _take(free, "question", lambda column: bool(column.cells))
    answer = answer or _longest(free)
    return replace(
        _people(free, numbers),
        answer=answer,
        question=wording,
        total=total,
        item=item,
        reference=reference,
        scores=scores if isinstance(answer, str) else _right_of(answer, columns, scores),
        points=points,
        html=_marked_up([column for column in columns if column.name in _names(answer)]),
    )


def _people(free: dict[str, Column], numbers: Sequence[str]) -> Roles:
    """The roles of what is left: who wrote an answer, and ids. numbers: columns of the students' numbers."""
    mails = _every(free, "mail", lambda column: bool(column.cells))
    names = in_spoken_order(_every(free, "name", lambda column: not column.numeric and bool(column.cells)))
    student = _take(free, "student", lambda column: bool(column.cells))
    response = _take(free, "response", lambda column: column.distinct == 1)
    groups = _every(free, "group", lambda column: 0 < column.distinct <= 0.5)
    ways = tuple((name,) for name in (*numbers, *mails, *([student] if student else [])))
    return Roles(response=response, students=ways, names=names, groups=groups)


def _names(pattern: Pattern | None) -> tuple[str, ...]:
    if isinstance(pattern, str):
        return (pattern,)
    return pattern if isinstance(pattern, tuple) else ()


def _marked_up(columns: Sequence[Column]) -> bool:
    """Whether most cells are HTML."""
    marks = list(map(is_markup, chain.from_iterable(column.cells for column in columns)))
    return bool(marks) and fmean(marks) >= _MARKED_UP


def _alike(free: dict[str, Column], role: str) -> tuple[str, ...] | None:
    """The free columns of a role that hold answers and whose names differ by a number and by what they say of points:
    two at least."""
    named = (column for column in free.values() if is_named(column.name, role) and _may_answer(column))
    answers = [column for column in named if column.distinct > 0.5 or role == "answer"]
    templates = [_template(without_points(column.name)) for column in answers]
    alike = [column.name for column, template in zip(answers, templates, strict=True) if template == templates[0]]
    if len(alike) < 2 or templates[0] is None:
        return None
    for name in alike:
        del free[name]
    return tuple(alike)


def _named_by_questions(free: dict[str, Column]) -> tuple[str, ...] | None:
    """The free columns of texts that are named by the question that they answer, as forms write them: two at least. A
    name of four words that neither asks nor says points is a question where long texts stand below it."""
    texts = [column for column in free.values() if column.cells and not column.numeric]
    questions = tuple(column.name for column in texts if _asks(column.name) or _long_below_a_sentence(column))
    if len(questions) < 2:
        return None
    for name in questions:
        del free[name]
    return questions


def _right_of(
    answers: Pattern | None, columns: Sequence[Column], scores: tuple[str, ...]
) -> tuple[dict[Literal["right_of"], str], ...]:
    """Where the marks of answers in columns of their own are: to the right of each, or nowhere."""
    header = [column.name for column in columns]
    places = [header.index(name) + 1 for name in _names(answers)]
    beside = bool(places) and all(header[place : place + 1] and header[place] in scores for place in places)
    return ({"right_of": "answer"},) if beside else ()


def _asks(name: str) -> bool:
    """Whether a column's name is a question."""
    has_words = " " in name.strip() or not name.isascii()
    return has_words and (without_points(name).endswith(("?", "？")) or place_of_points(name) is not None)


def _long_below_a_sentence(column: Column) -> bool:
    return column.length >= _TEXT and len(column.name.split()) >= 4


def is_label(text: str) -> bool:
    """Whether a text names a question without asking it: 'Frage 3a', '2.', 'Q7'."""
    return bool(_LABEL.fullmatch(without_points(text)))


def _is_wording(column: Column) -> bool:
    """Whether the cells are questions rather than their ids: most have several words, and are long or end with a
    sign."""
    cells = [cell.strip() for cell in column.cells if not is_label(cell)]
    texts = [cell for cell in cells if " " in cell or not cell.isascii()]
    asking = [cell for cell in texts if len(cell) > _TEXT or cell.endswith(_ENDS)]
    return 2 * len(asking) > len(column.cells)


def _may_answer(column: Column) -> bool:
    return bool(column.cells) and not column.numeric and not is_named(column.name, "response")


def _take(free: dict[str, Column], role: str, fits: Callable[[Column], bool]) -> str | None:
    """The first free column of a role, which is free no longer."""
    name = next((column.name for column in free.values() if is_named(column.name, role) and fits(column)), None)
    if name is not None:
        del free[name]
    return name


def _every(free: dict[str, Column], role: str, fits: Callable[[Column], bool]) -> tuple[str, ...]:
    """All free columns of a role, which are free no longer."""
    names = tuple(column.name for column in free.values() if is_named(column.name, role) and fits(column))
    for name in names:
        del free[name]
    return names


def _longest(free: dict[str, Column]) -> str | None:
    """The free column of the longest texts."""
    texts = [column for column in free.values() if column.length >= _TEXT and not column.numeric]
    if not texts:
        return None
    longest = max(texts, key=lambda column: column.length)
    del free[longest.name]
    return longest.name


def _numbered(columns: Sequence[Column]) -> dict[str, list[Column]]:
    """Pattern → the columns whose names differ by a number alone, where there are several."""
    templates: dict[str, list[Column]] = {}
    for column in columns:
        if template := _template(column.name):
            templates.setdefault(template, []).append(column)
    return {template: group for template, group in templates.items() if len(group) > 1}


def _wide_answers(numbered: Mapping[str, list[Column]]) -> str | None:
    """The pattern of the columns of answers; None where there are none. 'Question 1' holds answers where they differ
    from row to row and no column is called answer."""
    plain: list[str] = []
    questions: list[str] = []
    for template, group in numbered.items():
        first = group[0]
        if any(column.numeric for column in group) or is_named(first.name, "reference"):
            continue
        if is_named(first.name, "answer"):
            return template
        if is_named(first.name, "question"):
            questions += [template] if fmean(column.distinct for column in group) > 0.5 else []
        elif fmean(column.length for column in group) >= _TEXT:
            plain.append(template)
    return next(iter((*plain, *questions)), None)


def _template(name: str) -> str | None:
    """The name with {n} in place of its last number, and {points} in place of what it says of the most points; None
    without a number."""
    place = place_of_points(name)
    numbers = [match for match in re.finditer(r"\d+", name) if place is None or not _overlap(match.span(), place)]
    if not numbers or "{" in name:
        return None
    parts = sorted([(numbers[-1].span(), "{n}"), *([(place, "{points}")] if place else [])], reverse=True)
    for (start, end), placeholder in parts:
        name = f"{name[:start]}{placeholder}{name[end:]}"
    return name.strip()


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]
