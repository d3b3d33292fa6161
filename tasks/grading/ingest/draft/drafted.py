"""A study's source and its questions, from what the columns of a file are for.

`drafted` builds the source step by step: wide columns, question ids, people, response ids, scores, items; each step
looks at the rows that the source makes until then.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from rubricflow.tasks.core.contracts.settings.data import QUESTION, ROW, Pattern, Source
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.core.store.cells import EssayCell, quoted, text_or_none
from rubricflow.tasks.core.store.reshape import Counted, reshaped
from rubricflow.tasks.core.store.sheets import told_apart
from rubricflow.tasks.core.text.markup import is_markup, plain
from rubricflow.tasks.core.text.tokens import Mark, decimal_of, mark_of
from rubricflow.tasks.grading.ingest.draft.guess import words_of_marks
from rubricflow.tasks.grading.ingest.draft.roles import (
    Roles,
    as_rows,
    is_named,
    points_in,
    points_in_names,
    wide_columns,
)

UNWRITTEN = "WRITE HERE"
"""What stands, in a file that `init` wrote, where a person has to write something."""
STEPS = (1.0, 0.5, 0.25, 0.1, 0.05, 0.01)
"""Distances between scores that people use, the largest first."""
_MADE = (
    "answer",
    "question",
    "model_answer",
    "possible",
    "mark",
    "comment",
    "answer_id",
    "question_id",
    "question_no",
    "student_id",
    "student_name",
    "namesake",
    "attempt_no",
)
"""What columns are called that a draft makes."""
_LARGEST_NUMBER = 2
"""Digits of a question's number; a longer one is a platform's id."""
_LONGEST_ID = 12
"""Characters of what may be a question's id in a column's name."""
_ROUNDING = 0.0051
"""Points by which a sum may miss its total."""


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

    source: JsonDict
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
    namesakes: dict[str, list[int]]
    """Names that stand where nothing else tells students apart, and answer a question more than once, each with the
    numbers of these rows."""
    remarks: tuple[str, ...]
    """What in the file does not agree, in sentences."""
    total: float | None
    """The most points of all questions together, where the file has it."""


def drafted(file: str, roles: Roles, frame: pd.DataFrame, known: Known = NOTHING) -> Draft:
    """The draft of a file of answers; roles.answer must be there. known: what other files call the questions."""
    names = dict(zip(_MADE, _MADE, strict=True))
    for name in _MADE:
        while names[name] in frame.columns:
            names[name] += "_"
    wide = wide_columns(roles, names)
    flat = as_rows(roles, names, wide) if wide else roles
    source: JsonDict = {"file": file, "without": {name: list(words) for name, words in roles.without.items()}}
    source |= {"blank": list(roles.blank), "wide": wide, "html": roles.html, "responses": {"text": flat.answer}}
    counted = Counted()

    def made(frame: pd.DataFrame = frame, **but: JsonDict) -> pd.DataFrame:
        """The file's rows as the source makes them until now, but for some of its keys; every cell is a text, '' where
        it is empty."""
        counted.ids, counted.rows = {names["question_id"]: dict(known.numbers)}, {}
        responses = {"response_id": flat.answer, "item_id": flat.answer} | source["responses"]
        rows = reshaped(Source.model_validate(source | {"responses": responses} | but), frame, counted)
        return rows.map(lambda cell: text_or_none(cell) or "")

    def joined(kind: str, name: str, columns: Sequence[str]) -> str | None:
        """The only one of some columns, or a new one that is made of them all; None without any."""
        if len(columns) < 2:
            return next(iter(columns), None)
        source[kind][names[name]] = list(columns)
        return names[name]

    rows = made()
    # One cell of HTML in a platform's export is enough, since a cell that is none stays as it is.
    has_essays = any(isinstance(cell, EssayCell) for cell in frame.head(1).to_numpy().flat)
    if roles.title and not has_essays and any(map(is_markup, rows[str(flat.answer)])):
        source["html"] = True
        rows = made()
    numbered = _item_id(flat, rows, known.ids)
    item = flat.item if flat.item and numbered is None else names["question_id"]
    source |= {"repeats": {}, "labels": {}, "names": {}, "numbered": {} if numbered is None else {item: numbered}}
    rows = made()
    namesakes, group = _namesakes(flat, item, rows)
    student = [*flat.student, *group]
    if namesakes and roles.namesakes:
        source["repeats"][names["namesake"]] = [*student] if wide else [*student, item]
        student.append(names["namesake"])
    author = joined("labels", "student_id", student)
    author_name = joined("names", "student_name", flat.names)
    response = _response_id(flat, author, item, made(), names, source)
    mapping = {"response_id": response, "item_id": item, "author_id": author, "author_name": author_name}
    source["responses"] = {key: column for key, column in mapping.items() if column} | source["responses"]
    is_possible = frame[list(roles.without)].map(lambda cell: is_named(str(cell), "points")).any(axis=1)
    possible = made(frame[is_possible], without={}, repeats={}, names={}, labels={})
    rows = made()
    totals = [mark_of(cell) for cell in rows[roles.total]] if roles.total in rows.columns else []
    words_of = {}
    out_of: dict[str, set[float]] = defaultdict(set)
    for column in map(str, flat.scores):
        words = words_of_marks(rows[column]) if column in rows.columns else None
        if words is None:
            continue
        points = []
        for key, cell in zip(rows[item], rows[column], strict=True):
            mark = mark_of(cell)
            points.append(mark.points if mark else words.get(cell.strip()))
            if mark and mark.most:
                out_of[key.strip()].add(mark.most)
        for key, most in zip(possible[item], map(decimal_of, map(str, possible[column])), strict=True):
            if most:
                out_of[key.strip()].add(most)
        if any(points):  # all 0 are what nobody has marked yet
            words_of[column] = words
            rows = rows.assign(**{column: pd.Series(points, rows.index, float)})
    scores = list(words_of)
    source["groups"] = {_slug(group): group for group in flat.groups}
    raters = ["teacher"] if roles.title and len(scores) == 1 else told_apart([_slug(column) for column in scores])
    notes = {"notes": names["comment"]} if names["comment"] in wide else {}
    source["scores"] = [
        {"rater": rater, "score": column} | ({"words": words} if words else {}) | notes
        for rater, (column, words) in zip(raters, words_of.items(), strict=True)
    ]
    by_number = points_in_names(roles, wide, file, frame.columns.tolist())
    groups = ((str(key).strip(), part) for key, part in rows.groupby(item, sort=False))
    items = [_item(flat, key, part, scores, by_number, out_of[key]) for key, part in groups if key]
    order = {name: place for place, name in enumerate(counted.ids.get(item, {}).values())}
    items.sort(key=lambda entry: order.get(entry.item_id, 0))
    asks_wording = any(entry.question is None or entry.varies for entry in items)
    if not asks_wording:
        source["items"] = {"item_id": item, "question": flat.question}
        if flat.reference and _texts(rows, flat.reference) and not _varies(rows, item, flat.reference):
            source["items"]["reference_answer"] = flat.reference
    marks = _marks(rows, scores)
    total = points_in(roles.total) if roles.total else None
    if total is None:
        total = max((mark.most for mark in totals if mark and mark.most), default=None)
    return Draft(
        source={key: value for key, value in source.items() if value},
        items=tuple(items),
        answers=len(rows),
        marked=int(rows[scores].notna().any(axis=1).sum()),
        step=next((step for step in STEPS if all(is_on_grid(mark, step) for mark in marks)), STEPS[-1]),
        asks_wording=asks_wording,
        by_row=ROW in source["labels"].get(names["answer_id"], ()),
        student=tuple(name for name in student if name not in source["repeats"]),
        namesakes=namesakes,
        remarks=(*_unusual(words_of, rows, roles), *_remarks(roles, items, rows, scores, totals, total)),
        total=total,
    )


def _item_id(roles: Roles, rows: pd.DataFrame, known: Container[str]) -> list[str] | None:
    """None where the file's own ids of questions each stand for one wording, else the column whose words are to be
    numbered: the wordings, or names of columns that are places or wordings; none, where there is a single question.
    known: ids by which other files call questions."""
    if roles.item is None or (roles.question and _varies(rows, roles.item, roles.question)):
        return [str(roles.question)] if roles.question else []
    if roles.item == QUESTION:
        ids = set(rows[QUESTION]) - {""}
        is_place = all(len(text) <= _LARGEST_NUMBER and text.isdigit() for text in ids)
        is_header = any(" " in text or len(text) > _LONGEST_ID for text in ids)
        if (is_place or is_header) and not all(text.strip() in known for text in ids):
            return [QUESTION]
    return None


def _namesakes(roles: Roles, item: str, rows: pd.DataFrame) -> tuple[dict[str, list[int]], list[str]]:
    """(names of which nothing says whether they are one student's, each with the rows that answer one question; the
    group that parts them, where there is one)."""
    doubled = _doubled(rows, [*roles.student, item])
    words = rows[list(roles.student)].to_numpy().flatten()
    # Names are words without a number or an address.
    numbered = sum(bool(re.search(r"[\d@]", word)) for word in words)
    are_names = roles.student == roles.names or 2 * numbered < sum(words != "")
    if not roles.student or doubled.empty or not are_names:
        return {}, []
    for group in roles.groups:
        if _doubled(rows, [*roles.student, group, item]).empty:
            return {}, [group]
    most: dict[str, list[int]] = {}
    for _, same in doubled.groupby(list(doubled.columns), sort=False):
        name = " ".join(same.iloc[0][list(roles.student)])
        most[name] = max(most.get(name, []), [row + 1 for row in same.index], key=len)
    return most, []


def _doubled(rows: pd.DataFrame, key: Sequence[str]) -> pd.DataFrame:
    """These columns of the rows whose words in them another row has, too; not of rows that lack one."""
    words = rows[list(key)]
    words = words[(words != "").all(axis=1)]
    return words[words.duplicated(keep=False)]


def _tells_apart(rows: pd.DataFrame, key: Sequence[str]) -> bool:
    """Whether no two rows have the same words in these columns. Rows without any are no answers."""
    return bool((rows[list(key)] != "").all(axis=1).any()) and _doubled(rows, key).empty


def _response_id(
    roles: Roles, student: str | None, item: str, rows: pd.DataFrame, names: Mapping[str, str], source: JsonDict
) -> str:
    """The column of the answer's id: the file's own, else one that is made of student and question, with the attempt,
    or, where nothing identifies the writer, of the question and the row's number. What it is made of is added to
    the source."""
    if roles.response and _tells_apart(rows, [roles.response]):
        return roles.response
    question, own = item, roles.attempt
    if item not in source["numbered"] and any(cell.strip().isdigit() for cell in rows[item]):
        # A spreadsheet makes a date of 12-1.
        question = names["question_no"]
        source["numbered"][question] = [item]
    key = [student, question] if student else [question, ROW]
    if student and not _doubled(rows, [student, item]).empty:
        if own and all(cell.strip().isdigit() for cell in rows[own]) and _tells_apart(rows, [student, item, own]):
            key.append(own)
        else:
            source["repeats"][names["attempt_no"]] = [student, item]
            key.append(names["attempt_no"])
    source["labels"][names["answer_id"]] = key
    return names["answer_id"]


def _item(
    roles: Roles, key: str, rows: pd.DataFrame, scores: list[str], by_number: dict[str, float], out_of: set[float]
) -> DraftedItem:
    """A question of its answers; by_number: see `points_in_names`; out_of: what its marks say that they are out of."""
    wording = _only(rows, roles.question)
    place = rows[QUESTION].iloc[0] if QUESTION in rows.columns else ""
    named = by_number.get(place, by_number.get("", points_in(wording or "", is_header=False)))
    points = out_of or [value for cell in _texts(rows, roles.points) if (value := decimal_of(cell)) is not None]
    best = max(_marks(rows, scores), default=None)
    varies = len(set(_texts(rows, roles.question))) > 1
    return DraftedItem(key, wording, _only(rows, roles.reference), max(points, default=named), best, varies)


def _only(rows: pd.DataFrame, column: Pattern | None) -> str | None:
    """The text of a column, where all rows have one."""
    texts = {_squeezed(text): text for text in _texts(rows, column) if text}
    return plain(next(iter(texts.values()))).strip() if len(texts) == 1 else None


def _varies(rows: pd.DataFrame, by: str, column: Pattern) -> bool:
    """Whether a column has different texts for one id."""
    return bool(rows[str(column)].map(_squeezed).groupby(rows[by]).nunique().max() > 1)


def _texts(rows: pd.DataFrame, column: Pattern | None) -> list[str]:
    """The texts of a column; none where there is no such."""
    return list(map(str, rows[column])) if isinstance(column, str) and column in rows.columns else []


def _squeezed(text: str) -> str:
    """A cell's words without what blanks and line breaks are between them."""
    return " ".join(text.split())


def _marks(rows: pd.DataFrame, scores: list[str]) -> list[float]:
    return [mark for mark in rows[scores].to_numpy().flat if mark == mark]


def _unusual(words_of: Mapping[str, Mapping[str, float | None]], rows: pd.DataFrame, roles: Roles) -> Iterator[str]:
    """What became of rows that are no student's and of cells of marks that are none, and which columns are called marks
    and were not read."""
    for column, labels in roles.without.items():
        shown = ", ".join(map(quoted, labels))
        yield f"'{column}': {shown} is no student, and `without` in the study leaves out where it stands"
    for column, words in words_of.items():
        read = [f"'{word}' as {'no mark' if number is None else format(number, 'g')}" for word, number in words.items()]
        if read:
            yield f"'{column}': read {', '.join(read)}; `words` in the study says so, and can say otherwise"
    for name in () if words_of else rows.columns.difference([roles.total, roles.answer, roles.question]):
        cells = list(filter(None, dict.fromkeys(rows[name])))
        is_short = 0 < sum(map(len, cells)) <= _LONGEST_ID * len(cells)
        if is_named(name, "score") and is_short and words_of_marks(cells) is None:
            shown = ", ".join(f"'{cell}'" for cell in cells[:3])
            yield (
                f"'{name}' is called marks and holds no numbers ({shown}): no mark was read. Say in the study what "
                f"each word is worth: scores: [{{rater: teacher, score: {name}, words: {{{cells[0]}: 1}}}}]"
            )


def _remarks(
    roles: Roles,
    items: Sequence[DraftedItem],
    rows: pd.DataFrame,
    scores: list[str],
    totals: Sequence[Mark | None],
    total: float | None,
) -> Iterator[str]:
    """What does not agree: spellings of a question, marks with their question's points, points with the total's, marks
    with their total; and many marks of 0, as Canvas writes for an answer that nobody has graded."""
    for item in items:
        if item.varies and item.question:
            yield f"{item.item_id}: its wording has several spellings in the file, of which the first is taken"
        if item.points and item.best and item.best > item.points:
            yield f"{item.item_id}: a mark of {item.best:g} is above its {item.points:g} points"
    known = [item.points for item in items if item.points is not None]
    most = sum(known) if len(known) == len(items) else None
    if total and most and abs(total - most) > _ROUNDING:
        yield f"the questions' points add up to {most:g}, and '{roles.total}' says {total:g}"
    if totals and len(scores) == 1:
        points = pd.Series([mark and mark.points for mark in totals], rows.index, float)
        sums = rows[scores[0]].groupby(level=0).sum()
        whole_marks = points.groupby(level=0).last().dropna()
        wrong = disagreeing_sums(sums[whole_marks.index], whole_marks, total / most if total and most else None)
        shown = "; ".join(f"row {row + 1}: {value:g} and {whole:g}" for row, value, whole in wrong[:3])
        if wrong:
            of_all = f"{len(wrong)} of {len(whole_marks)} rows"
            yield f"the marks do not add up to '{roles.total}' in {of_all}: {shown}{'; …' if len(wrong) > 3 else ''}"
    marks = _marks(rows, scores)
    zeros = marks.count(0.0)
    if zeros >= max(2, len(marks) / 4):
        yield (
            f"{zeros:,} of {len(marks):,} marks are 0, and each counts as a grade: empty the cells in which 0 stands "
            "for an answer that nobody has graded"
        )


def disagreeing_sums(sums: pd.Series, totals: pd.Series, scale: float | None) -> list[tuple[int, float, float]]:
    """(row, the sum of its marks, its total) of the rows where these differ.

    scale: the total's most points over the sum of the questions', where both are known: a platform may scale its
    totals, and all rows that agree then do.
    """
    wrong = (sums - totals).abs() > _ROUNDING
    if scale and ((sums * scale - totals).abs() <= _ROUNDING).all():
        return []
    return list(zip(sums.index[wrong], sums[wrong], totals[wrong], strict=True))


def is_on_grid(mark: float, step: float) -> bool:
    return abs(mark / step - round(mark / step)) < 1e-6


def _slug(name: str) -> str:
    """A column's name as a short id."""
    return re.sub(r"\W+", "_", name.strip().casefold()).strip("_") or "person"
