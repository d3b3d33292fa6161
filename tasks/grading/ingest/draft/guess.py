"""What the columns of a file of no known platform may be for, by their names in several languages and their cells."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from statistics import fmean

from rubricflow.tasks.core.contracts.settings.data import Pattern
from rubricflow.tasks.core.store.reshape import matching
from rubricflow.tasks.core.text.markup import is_markup
from rubricflow.tasks.core.text.tokens import decimal_of, mark_of
from rubricflow.tasks.grading.ingest.draft.roles import Roles, is_label, is_named, place_of_points, without_points

_TEXT = 15
"""Characters of an average cell from which a column may hold answers."""
_MARKED_UP = 0.5
"""Share of the answers from which a column is one of HTML."""
_ASKING = ("?", "？")
_ENDS = (*_ASKING, ".", "。", "!", ":", "…")
_FLAGGED = re.compile(r"([0-9][0-9.,/% ]*?)\s*(?:[*†#!?]{1,3}|[\s(\[,;–—-]+[^0-9]{1,40})")
"""3 (late), 2*, 4/5 – copied."""
_FEW_WORDS = 3
"""Words that may stand in a column of marks, however few marks there are."""


@dataclass(frozen=True)
class Column:
    """A column, and what its cells look like."""

    name: str
    rows: tuple[str, ...]
    """All cells, a row each, empty ones included."""

    @cached_property
    def cells(self) -> tuple[str, ...]:
        return tuple(cell for cell in self.rows if cell.strip())

    @property
    def length(self) -> float:
        """Characters of a cell on average; 0 without one."""
        return fmean(map(len, self.cells)) if self.cells else 0.0

    @cached_property
    def numeric(self) -> bool:
        """Whether it holds numbers alone, of which not all are 0."""
        numbers = [decimal_of(cell) for cell in self.cells]
        return any(numbers) and None not in numbers

    @cached_property
    def marks(self) -> bool:
        """Whether it holds marks, as `words_of_marks` has it, some of which are not 0 or say out of how many."""
        said = [mark for cell in self.cells if (mark := mark_of(cell))]
        return words_of_marks(self.cells) is not None and any(mark.points or mark.most for mark in said)

    @property
    def distinct(self) -> float:
        """Share of the rows that have a cell of their own."""
        return len(set(self.cells)) / len(self.rows) if self.rows else 0.0

    @property
    def may_answer(self) -> bool:
        """Whether its cells may be answers."""
        return bool(self.cells) and not self.numeric and not is_named(self.name, "response")


def words_of_marks(cells: Iterable[str]) -> dict[str, float | None] | None:
    """What stands in a column of marks and is none, each with its number: '3 (late)' with 3, 'absent' and '–' with
    None. Cells with digits that say no mark ('2½') are left out. None where the column holds no marks: no cell is one,
    or too many different ones are none."""
    filled = [cell.strip() for cell in cells if cell.strip()]
    others = list({cell.casefold(): cell for cell in reversed(filled) if mark_of(cell) is None}.values())[::-1]
    flagged = {cell: match and mark_of(match[1]) for cell in others for match in [_FLAGGED.fullmatch(cell)]}
    count = sum(mark_of(cell) is not None for cell in filled)
    if not count or sum(mark is None for mark in flagged.values()) > max(_FEW_WORDS, count / 2):
        return None
    return {
        cell: mark.points if mark else None
        for cell, mark in flagged.items()
        if mark or not any(map(str.isdigit, unicodedata.normalize("NFKC", cell)))
    }


def guessed(columns: Sequence[Column]) -> Roles:
    """The roles of the columns, each for one thing at most. Without a column of texts there is no answer."""
    templates: dict[str, list[Column]] = {}
    for column in columns:
        if template := _template(column.name):
            templates.setdefault(template, []).append(column)
    numbered = {template: group for template, group in templates.items() if len(group) > 1}
    answer = _wide_answers(numbered)
    return identified(_of_wide(answer, numbered, columns) if answer else _of_rows(columns), columns)


def with_people(roles: Roles, columns: Sequence[Column]) -> Roles:
    """A platform's roles with what else among its columns may tell students apart."""
    others = _Free(column for column in columns if column.name not in (*roles.student, *roles.names))
    return identified(replace(roles, students=_people(others, others.every("number")).students), columns)


def identified(roles: Roles, columns: Sequence[Column]) -> Roles:
    """The roles with the students told apart by the first of what may do so that every answer has: as the roles have
    it, a number of theirs, an e-mail address, a user's name, their names. What tells no more than half as many apart as
    another does is left out, and so are rows with points possible, totals or averages where a student would stand."""
    rules = [matching(name) for name in _names(roles.answer)]
    mine = [column for column in columns if any(rule.fullmatch(column.name) for rule in rules)]
    # Without a column of answers every row counts as one.
    answered = [not mine] * len(columns[0].rows) if columns else []
    for column in mine:
        for row, cell in enumerate(column.rows):
            answered[row] |= bool(cell.strip()) and cell.strip() not in roles.blank
    by_name = {column.name: column.rows for column in columns}
    ways = [way for way in (roles.student, *roles.students, roles.names) if way]
    without: dict[str, dict[str, None]] = {}
    for name in dict.fromkeys(chain(*ways)):
        for row, cell in enumerate(by_name[name]):
            # (read only) is no answer.
            if is_named(cell, "no_student") and all(len(column.rows[row].split()) < 3 for column in mine):
                without.setdefault(name, {})[cell.strip()] = None
                answered[row] = False
    known = {}
    for way in ways:
        rows = zip(answered, *(by_name[name] for name in way), strict=True)
        known[way] = [tuple(map(str.strip, cells)) for has_answer, *cells in rows if has_answer]
    most = max((len(set(words)) for words in known.values()), default=0)
    telling = [way for way in known if 2 * len(set(known[way])) > most]
    student = max(telling, key=lambda way: sum(map(all, known[way])), default=())
    return replace(roles, student=student, without=without)


class _Free(dict[str, Column]):
    """The columns, by name, that have no role yet."""

    def __init__(self, columns: Iterable[Column]) -> None:
        super().__init__({column.name: column for column in columns})

    def every(self, role: str, fits: Callable[[Column], bool] = lambda column: bool(column.cells)) -> tuple[str, ...]:
        """All columns of a role, which are free no longer."""
        return self.take(column.name for column in self.values() if is_named(column.name, role) and fits(column))

    def first(self, role: str, fits: Callable[[Column], bool] = lambda column: bool(column.cells)) -> str | None:
        """The first column of a role, which is free no longer."""
        named = (column.name for column in self.values() if is_named(column.name, role) and fits(column))
        return next(iter(self.take(islice(named, 1))), None)

    def take(self, names: Iterable[str]) -> tuple[str, ...]:
        """These columns, which are free no longer."""
        taken = tuple(names)
        for name in taken:
            del self[name]
        return taken


def _of_wide(answer: str, numbered: Mapping[str, list[Column]], columns: Sequence[Column]) -> Roles:
    """The roles of a file of several columns a question."""
    patterns: dict[str, str | None] = {"answer": answer}
    for role, of_numbers in (("reference", False), ("points", True), ("score", True), ("question", False)):
        patterns[role] = None
        for name, group in numbered.items():
            has_numbers = any(column.marks if role == "score" else column.numeric for column in group)
            if name not in patterns.values() and is_named(group[0].name, role) and has_numbers == of_numbers:
                patterns[role] = name
                break
    used = {column.name for name in patterns.values() if name for column in numbered[name]}
    free = _Free(column for column in columns if column.name not in used)
    total = free.first("total", lambda column: column.numeric)
    return replace(
        _people(free, free.every("number")),
        total=total,
        answer=answer,
        question=patterns["question"],
        reference=patterns["reference"],
        points=patterns["points"],
        scores=(patterns["score"],) if patterns["score"] else (),
        html=_marked_up(numbered[answer]),
    )


def _of_rows(columns: Sequence[Column]) -> Roles:
    """The roles of a file of a row an answer or, where several columns of texts are named by questions, of a row a
    student."""

    def is_score(column: Column) -> bool:
        # A number that all of several rows have is of the class and not of an answer.
        is_same = len(column.rows) == len(column.cells) > 1 == len(set(column.cells))
        return column.marks and not (is_same and column.numeric)

    free = _Free(columns)
    total = free.first("total", lambda column: column.marks)
    numbers = free.every("number")
    reference = free.first("reference", lambda column: column.length >= 1 and not column.numeric)
    points = free.first("points", lambda column: column.numeric and place_of_points(column.name) is None)
    scores: tuple[Pattern, ...] = (*free.every("score", is_score), *free.every("marker", is_score))
    wording = free.first("wording", lambda column: bool(column.cells) and not column.numeric)
    answer: Pattern | None = _alike(free, "answer") or free.first("answer", lambda column: column.may_answer)
    answer = answer or _alike(free, "question") or _named_by_questions(free)
    wording = wording or free.first("question", _is_wording)
    item = free.first("question")
    if not answer:
        texts = [column for column in free.values() if column.length >= _TEXT and not column.numeric]
        longest = [column.name for column in sorted(texts, key=lambda column: -column.length)[:1]]
        answer = next(iter(free.take(longest)), None)
    notes: Pattern | None = None
    if isinstance(answer, tuple):
        # Marks are to the right of each answer or, of several, nowhere, and comments to the right of these.
        places = [place for place, column in enumerate(columns) if column.name in answer]
        right, next_but_one = (
            [column for place in places for column in columns[place + step : place + step + 1]] for step in (1, 2)
        )
        are_marks = len(right) == len(places) and all(is_named(column.name, "score") for column in right)
        if are_marks and any(column.name in scores for column in right):
            scores = ({"right_of": "answer"},)
            notes = {"right_of": "mark"} if all(is_named(column.name, "comment") for column in next_but_one) else None
        elif len(answer) > 1:
            total, scores = total or next(iter(map(str, scores)), None), ()
    return replace(
        _people(free, numbers),
        answer=answer,
        question=wording,
        total=total,
        item=item,
        reference=reference,
        scores=scores,
        notes=notes,
        points=points,
        html=_marked_up([column for column in columns if column.name in _names(answer)]),
    )


def _people(free: _Free, numbers: Sequence[str]) -> Roles:
    """The roles of what is left: who wrote an answer, and ids. numbers: columns of the students' numbers."""
    mails = free.every("mail")
    names = free.every("name", lambda column: not column.numeric and bool(column.cells))
    student = free.first("student")
    response = free.first("response", lambda column: column.distinct == 1)
    groups = free.every("group", lambda column: 0 < column.distinct <= 0.5)
    students = [name for name in (*numbers, *mails, student) if name]
    return Roles(
        response=response,
        students=tuple((name,) for name in students),
        names=tuple(sorted(names, key=lambda name: is_named(name, "last_name"))),
        groups=groups,
    )


def _names(pattern: Pattern | None) -> tuple[str, ...]:
    if isinstance(pattern, str):
        return (pattern,)
    return pattern if isinstance(pattern, tuple) else ()


def _marked_up(columns: Sequence[Column]) -> bool:
    """Whether most cells are HTML."""
    marks = list(map(is_markup, chain.from_iterable(column.cells for column in columns)))
    return bool(marks) and fmean(marks) >= _MARKED_UP


def _alike(free: _Free, role: str) -> tuple[str, ...] | None:
    """The free columns of a role that hold answers and whose names differ by a number and by their points: two at
    least."""
    named = [column for column in free.values() if is_named(column.name, role) and column.may_answer]
    answers = [column.name for column in named if column.distinct > 0.5 or role == "answer"]
    templates = [_template(without_points(name)) for name in answers]
    alike = [name for name, template in zip(answers, templates, strict=True) if template == templates[0]]
    return free.take(alike) if len(alike) > 1 and templates[0] is not None else None


def _named_by_questions(free: _Free) -> tuple[str, ...] | None:
    """The free columns of texts that are named by the question that they answer, as forms write them. Of several a
    name of four words that asks nothing is one, too, where long texts stand below it. A single one asks, and holds the
    longest texts of the file and no questions. Names of students, and marks of another column and comments on it, are
    none."""
    texts = [
        column
        for column in free.values()
        if column.cells
        and not (column.numeric or any(is_named(column.name, role) for role in ("name", "group")))
        and not (
            any(is_named(column.name, role) for role in ("comment", "score"))
            and any(name in column.name for name in free.keys() - {column.name})
        )
    ]
    questions = [
        column for column in texts if asks(column.name) or (column.length >= _TEXT and len(column.name.split()) >= 4)
    ]
    if len(questions) == 1:
        (only,) = questions
        asked = sum(cell.rstrip().endswith(_ASKING) for cell in only.cells)
        is_longest = only.length >= max(_TEXT, *(column.length for column in texts))
        if not (asks(only.name) and is_longest and 2 * asked <= len(only.cells)):
            return None
    return free.take([column.name for column in questions]) or None


def asks(name: str) -> bool:
    """Whether a column's name puts a question or a task of four words, or says how many points one bears."""
    bare = without_points(name).strip()
    has_words = " " in name.strip() or not name.isascii()
    is_task = len(bare.split()) >= 4 and bare.endswith(".")
    return has_words and (bare.endswith(_ASKING) or is_task or place_of_points(name) is not None)


def _is_wording(column: Column) -> bool:
    """Whether the cells are questions rather than their ids: most have several words, and are long or end with a
    sign."""
    texts = [cell.strip() for cell in column.cells if not is_label(cell.strip())]
    asking = [cell for cell in texts if len(cell) > _TEXT or cell.endswith(_ENDS)]
    return 2 * sum(" " in cell or not cell.isascii() for cell in asking) > len(column.cells)


def _wide_answers(numbered: Mapping[str, list[Column]]) -> str | None:
    """The pattern of the columns of answers; None where there are none. 'Question 1' holds answers where they differ
    from row to row and no column is called answer."""
    plain = []
    questions = []
    for template, group in numbered.items():
        name = group[0].name
        if any(column.numeric for column in group) or is_named(name, "reference"):
            continue
        if is_named(name, "answer"):
            return template
        if is_named(name, "question"):
            questions += [template] if fmean(column.distinct for column in group) > 0.5 else []
        elif fmean(column.length for column in group) >= _TEXT:
            plain.append(template)
    return next(iter((*plain, *questions)), None)


def _template(name: str) -> str | None:
    """The name with {n} in place of its last number, and {points} in place of its most points; None without a
    number."""
    place = place_of_points(name)
    numbers = [match.span() for match in re.finditer(r"\d+", name)]
    if place:
        numbers = [(start, end) for start, end in numbers if end <= place[0] or place[1] <= start]
    if not numbers or "{" in name:
        return None
    parts = [(numbers[-1], "{n}"), *([(place, "{points}")] if place else [])]
    for (start, end), placeholder in sorted(parts, reverse=True):
        name = f"{name[:start]}{placeholder}{name[end:]}"
    return name.strip()
