"""What the columns of a file are for, and the learning platforms whose exports are known by their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.study import QUESTION, Pattern
from rubricflow.tasks.core.contracts.settings.written import parse, read_yaml
from rubricflow.tasks.core.store.reshape import matching

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
    points: Pattern | None = None
    """The most points that an answer can earn."""
    response: str | None = None
    """The answer's id."""
    total: str | None = None
    """A student's points of all questions together."""
    student: tuple[str, ...] = ()
    """What tells the students apart, together."""
    students: tuple[tuple[str, ...], ...] = ()
    """What else may tell them apart: numbers, addresses, users' names; the better ones first."""
    names: tuple[str, ...] = ()
    """The student's name, in the order in which it is said."""
    attempt: str | None = None
    """What tells a student's attempts apart."""
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
        columns = {role: _present(names, header) for role, names in platform.columns.items()}
        if all(columns[role] for role in platform.recognised_by):
            return _roles(platform, {role: column for role, column in columns.items() if column}, header)
    return None


def _present(names: Sequence[str], header: Sequence[str]) -> str | None:
    """The first of the names or patterns that the file has; a name as the file writes it."""
    folded = {column.strip().casefold(): column for column in header}
    for name in names:
        if "{" in name and any(matching(name).fullmatch(column) for column in header):
            return name
        if name.casefold() in folded:
            return folded[name.casefold()]
    return None


def _roles(platform: Platform, columns: Mapping[str, str], header: Sequence[str]) -> Roles:
    """What a platform's columns are for."""
    names = [columns[role] for role in ("first_name", "last_name", "full_name") if role in columns]
    student = (columns["student"],) if "student" in columns else tuple(names)
    scores: list[Pattern] = [columns["score"]] if "score" in columns else []
    points: Pattern | None = columns.get("points")
    if platform.score_right_of_answer:
        scores = [{"right_of": "answer"}]
    totals = _matches(columns["total"], header) if "total" in columns else []
    if totals and len(_matches(columns["answer"], header)) == 1:
        scores, points = [*totals], columns["total"]
    return Roles(
        answer=columns["answer"],
        question=columns.get("question"),
        reference=columns.get("reference"),
        scores=tuple(scores),
        points=points,
        total=next(iter(totals), None),
        response=columns.get("response"),
        student=student,
        names=tuple(names),
        attempt=columns.get("attempt"),
        groups=tuple(columns[role] for role in ("group",) if role in columns),
        html=platform.html,
        blank=platform.blank,
        title=platform.title,
    )


def _matches(pattern: str, header: Sequence[str]) -> list[str]:
    return [column for column in header if matching(pattern).fullmatch(column)]
