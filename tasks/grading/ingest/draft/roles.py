"""What columns are for, as far as their names show it: roles, the learning platforms whose exports are known by their
columns, names in several languages (`is_named`), and the most points of a question (`points_in`)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.data import QUESTION, Pattern
from rubricflow.tasks.core.contracts.settings.written import parse, read_yaml
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.core.store.reshape import matching, questions_of
from rubricflow.tasks.core.text.tokens import UNIT_OF_POINTS, decimal_of

PLATFORMS = Path(__file__).parents[1] / "platforms"


@dataclass(frozen=True)
class Roles:
    """Columns by what they are for. In a wide file those of answers, questions, model answers, marks and points are
    patterns, see `Reshaping.wide`."""

    answer: Pattern | None = None
    """What the students wrote."""
    question: Pattern | None = None
    """The question's wording."""
    item: str | None = None
    """The question's number or id."""
    reference: Pattern | None = None
    """A model answer."""
    scores: tuple[Pattern, ...] = ()
    """Marks by people, a column each."""
    notes: Pattern | None = None
    """What the only rater says to the students of a wide file."""
    points: Pattern | None = None
    """The most points that an answer can earn."""
    response: str | None = None
    """The answer's id."""
    total: str | None = None
    """A student's points of all questions together."""
    student: tuple[str, ...] = ()
    """The columns that tell the students apart, together."""
    students: tuple[tuple[str, ...], ...] = ()
    """Others that may tell them apart: numbers, addresses, users' names; the better ones first."""
    names: tuple[str, ...] = ()
    """The student's name, in spoken order."""
    without: Mapping[str, Iterable[str]] = field(default_factory=dict)
    """Column of students → what stands there in rows that are none's: points possible, totals, averages."""
    attempt: str | None = None
    """The column that tells a student's attempts apart."""
    namesakes: bool = True
    """Whether a name that answers a question twice, where nothing else tells students apart, is two students' and not
    one's two attempts."""
    groups: tuple[str, ...] = ()
    """Such as the class or section."""
    html: bool = False
    """Whether the texts are HTML."""
    blank: tuple[str, ...] = ()
    """Cells that mean an empty one."""
    title: str | None = None
    """Whose export it is, in words; None for a file of no known platform."""

    @property
    def wide(self) -> bool:
        """Whether a row holds the answers to several questions."""
        return self.answer is not None and (not isinstance(self.answer, str) or f"{{{QUESTION}}}" in self.answer)


def wide_columns(roles: Roles, names: Mapping[str, str]) -> dict[str, Pattern]:
    """What `wide` says: new column → the question's columns."""
    if not roles.wide:
        return {}
    several = {
        "answer": roles.answer,
        "question": roles.question,
        "model_answer": roles.reference,
        "possible": roles.points,
        "mark": next(filter(_is_pattern, roles.scores), None),
        "comment": roles.notes,
    }
    return {
        names[name]: {"right_of": names[pattern["right_of"]]} if isinstance(pattern, dict) else pattern
        for name, pattern in several.items()
        if pattern is not None and _is_pattern(pattern)
    }


def _is_pattern(pattern: Pattern | None) -> bool:
    return pattern is not None and (not isinstance(pattern, str) or "{n}" in pattern)


def as_rows(roles: Roles, names: Mapping[str, str], wide: Container[str]) -> Roles:
    """The roles of the columns that a wide file has once it is a row an answer."""
    new = {name: column for name, column in names.items() if column in wide}
    question = new.get("question", "question" if "{question}" in str(roles.answer) else None)
    if isinstance(roles.answer, tuple) and not all(map(is_label, roles.answer)):
        question = QUESTION
    scores = [new["mark"]] if "mark" in new else []
    one_each = [pattern for pattern in roles.scores if not _is_pattern(pattern)]
    return replace(
        roles,
        answer=names["answer"],
        item=QUESTION,
        question=question,
        reference=new.get("model_answer"),
        scores=(*scores, *one_each),
        points=new.get("possible"),
        response=None,
    )


class Platform(Frozen):
    """A learning platform's export: the columns by what they are for, in the languages in which it writes them."""

    title: str
    """What it is, in words."""
    recognised_by: tuple[str, ...]
    """The columns that only this export has together."""
    columns: Mapping[str, tuple[str, ...]]
    """Role → its names or patterns."""
    html: bool = False
    blank: tuple[str, ...] = ()
    score_right_of_answer: bool = False
    """Whether the column to the right of an answer holds its points."""


def platforms() -> dict[str, Platform]:
    """The known exports by their short names."""
    return {path.stem: parse(Platform, read_yaml(path), path) for path in sorted(PLATFORMS.glob("*.yaml"))}


def recognised(header: Sequence[str]) -> Roles | None:
    """The roles of a learning platform's export; None where the columns are of none that is known."""
    for platform in platforms().values():
        found = {role: _present(names, header) for role, names in platform.columns.items()}
        columns = {role: column for role, column in found.items() if column}
        if not all(role in columns for role in platform.recognised_by):
            continue
        same = ("answer", "question", "reference", "points", "response", "attempt")
        roles: JsonDict = {role: columns[role] for role in same if role in columns}
        names = tuple(columns[role] for role in ("first_name", "last_name", "full_name") if role in columns)
        if "score" in columns:
            roles["scores"] = (columns["score"],)
        if platform.score_right_of_answer:
            roles["scores"] = ({"right_of": "answer"},)
        totals = _matches(columns["total"], header) if "total" in columns else []
        if totals and len(_matches(columns["answer"], header)) == 1:
            roles["scores"] = tuple(totals)
        return Roles(
            **roles,
            total=next(iter(totals), None),
            student=(columns["student"],) if "student" in columns else names,
            names=names,
            groups=(columns["group"],) if "group" in columns else (),
            html=platform.html,
            blank=platform.blank,
            title=platform.title,
        )
    return None


def _present(names: Sequence[str], header: Sequence[str]) -> str | None:
    """The first of the names or patterns that the file has; a name as the file writes it."""
    folded = {column.strip().casefold(): column for column in header}
    for name in names:
        if "{" in name and _matches(name, header):
            return name
        if name.casefold() in folded:
            return folded[name.casefold()]
    return None


def _matches(pattern: str, header: Sequence[str]) -> list[str]:
    rule = matching(pattern)
    return [column for column in header if rule.fullmatch(column)]


_WHOLE = frozenset({"name", "last_name", "response", "group", "total", "no_student"})
"""Roles whose names stand within those of many other columns."""
_LABEL = re.compile(r"\W*[^\W\d]*\W*\d{1,3}\W?[^\W\d]?\W*")
_TRAILING = re.compile(r" \(column \d+\)$")
_LETTERS = str.maketrans({"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "æ": "ae", "ı": "i"})
"""Letters that Unicode does not part into a plain one and an accent."""


def is_named(name: str, role: str) -> bool:
    """Whether a column is named for a role: its words hold one of the names or, of short ones, are it.

    The words are those in lower case without accents, signs, digits: studentAnswer_1 is student answer.
    """
    apart = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", name)
    words = " ".join(re.findall(r"[^\W\d_]+", _without_accents(apart).casefold()))
    return bool(_pattern(role).fullmatch(words))


@cache
def _pattern(role: str) -> re.Pattern[str]:
    """What the words of a column's name are where it is named for a role."""
    written: Mapping[str, Sequence[str]] = read_yaml(Path(__file__).with_name("names.yaml"))
    names = _without_accents("|".join(written[role])).casefold()
    return re.compile(rf"(?:{names})" if role in _WHOLE else rf"(?:.* )?(?:{names})(?: .*)?")


def _without_accents(text: str) -> str:
    letters = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return letters.translate(_LETTERS)


_NUMBER = r"(?P<points>[0-9]{1,4}(?:[.,][0-9]{1,2})?)"
_MOST = (
    r"(?:max(?:imal|imum|imale?|\.)?\s*(?:punkte?|punktzahl|points?|marks?)?|"
    r"von|out of|of|sur|de|su|av|van|z|из|/|満点)"
)
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (  # the last three are for headers alone: a question may end with 'compute 1 / 2'
        rf"[(\[（]\s*{_MOST}[\s.:]*{_NUMBER}\s*(?:{UNIT_OF_POINTS})?\s*[)\]）]",
        rf"[(\[（]\s*{_NUMBER}\s*{UNIT_OF_POINTS}\s*[)\]）]",
        rf"[(\[（]?\s*(?<!\w)(?:{UNIT_OF_POINTS}|{_MOST})\s*[:=：]\s*{_NUMBER}\s*(?:{UNIT_OF_POINTS})?\s*[)\]）]?\s*$",
        rf"(?:^|[,;:?.!)–—-]\s|[0-9][.:)]?\s)\s*{_NUMBER}\s*{UNIT_OF_POINTS}\s*$",
        rf"(?<!\w)max(?:imal|imum|\.)?\s*{_NUMBER}\s*(?:{UNIT_OF_POINTS})?\s*$",
        rf"(?<![0-9])/\s*{_NUMBER}\s*(?:{UNIT_OF_POINTS})?\s*$",
        r"(?<![0-9]{3})/(?P<points>[0-9]{1,4}[.,][0-9]{1,2})\s*$",
    )
)
"""(max. 4 P.), (6 pts), Punkte: 3, / 4,00, "Question 1, 4 P.", max. 5: a number between a question's own number and
'Punkte' is none of points, as in 'Aufgabe 1 Punkte'."""


def place_of_points(text: str, forms: Sequence[re.Pattern[str]] = _FORMS) -> tuple[int, int] | None:
    """Where a text gives the most points: (start, end) of the number; None where it gives none."""
    for form in forms:
        if (match := form.search(text)) and _number(match["points"]) > 0:
            return match.span("points")
    return None


def points_in(text: str, is_header: bool = True) -> float | None:
    """The most points that a header, or else a wording, gives; None where it gives none."""
    place = place_of_points(text, _FORMS if is_header else _FORMS[:-3])
    return None if place is None else _number(text[slice(*place)])


def points_in_names(roles: Roles, wide: Mapping[str, Pattern], file: str, header: Sequence[str]) -> dict[str, float]:
    """Question's number (or "" for all) → the most points, where a column's name has them: "1.0" right of a Canvas
    question, "Frage 1 (4 P.)", or "Punkte / 10" of a file with one column of marks."""
    points = {}
    for question in questions_of(header, wide, file) if wide else ():
        for name in wide:  # the last one that has any
            column = question.columns.get(name, "")
            if value := decimal_of(_TRAILING.sub("", column)) or points_in(column):
                points[question.words[QUESTION]] = value
    named = [name for name in (*roles.scores, roles.points) if isinstance(name, str)]
    if roles.points and "{points}" in str(roles.points):
        named = [column for column in header if matching(str(roles.points)).fullmatch(column)]
    alone = [value for name in named if "{" not in name and (value := points_in(name))]
    return points or ({"": max(alone)} if alone else {})


def without_points(text: str) -> str:
    """A header without its points."""
    for form in _FORMS:
        if match := form.search(text):
            start = match.start() + (match[0][:1] in "?.!)" or match[0][:1].isdigit())
            return (text[:start] + text[match.end() :]).rstrip(" ,;:–—-")
    return text


def is_label(text: str) -> bool:
    """Whether a text names a question without asking it: 'Frage 3a', '2.', 'Q7'."""
    return bool(_LABEL.fullmatch(without_points(text)))


def _number(digits: str) -> float:
    return float(digits.replace(",", "."))


def numbers_said(words: str, count: int) -> list[float] | None:
    """The points that a person gives for `count` questions: one number for all, or one for each, parted by semicolons,
    blanks or commas; None where that is something else. A comma without a blank is a decimal one where that makes as
    many numbers as there are questions."""
    for separator in (r"[;\s]+|,\s+", r"[;,\s]+"):
        parts = list(filter(None, re.split(separator, words.strip())))
        numbers = [_number(part) for part in parts if re.fullmatch(r"[0-9]{1,4}(?:[.,][0-9]{1,4})?", part)]
        fits = len(numbers) == count or (len(numbers) == 1 and "," not in words)
        if fits and len(numbers) == len(parts) and all(number > 0 for number in numbers):
            return numbers * (count // len(numbers))
    return None
