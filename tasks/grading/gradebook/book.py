"""A graded run as a teacher sees it: questions, students and one final score an answer. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Scale

DecidedBy = Literal["machine", "person", "waits", "cannot_be_judged"]


class Quotation(NamedTuple):
    """Words of the answer that stand for a level: characters [start, end) of its text."""

    text: str
    start: int
    end: int


class CriterionLevel(NamedTuple):
    """The level that an answer reached on one criterion, and the words that show it."""

    criterion: Criterion
    level: int | None
    """None where there is no decision."""
    quotations: tuple[Quotation, ...]


@dataclass(frozen=True)
class GradedQuestion:
    """A question with the rubric that its answers are scored by."""

    item_id: str
    text: str
    bundle: Bundle

    @property
    def scale(self) -> Scale:
        return self.bundle.scale


@dataclass(frozen=True)
class GradedAnswer:
    """One answer of one student with its final score."""

    response_id: str
    item_id: str
    student: str | None
    """The student's id; None where the data name none."""
    student_name: str | None
    section: str | None
    """The student's group of that name."""
    text: str
    final_score: float | None
    """The score that goes out; None where the answer waits for a person or cannot be judged."""
    decided_by: DecidedBy
    settled_by: str | None
    """How people settled it, a key of SCORE_SETTLED; None where nobody spoke of it."""
    judge_score: float | None
    """What the judge's levels came to, before calibration."""
    machine_score: float | None
    """The calibrated score."""
    low: float | None
    high: float | None
    """Ends of the interval of the machine's score."""
    route: str | None
    """Where the machine's score goes; None where people marked the answer in the data."""
    route_reason: str | None
    note: str | None
    """What the teacher says to the student."""
    history: tuple[Mapping[str, Any], ...]
    """Steps as column `history` of `settled_scores` holds them."""
    levels: tuple[CriterionLevel, ...]
    """In the rubric's order: the machine's, or those that people settled on."""
    levels_are_peoples: bool
    unscored_reason: str | None = None
    """Why the machine gave no score, a key of UNSCORED_REASONS."""
    criteria_score: float | None = None
    """What these levels come to by the rubric; None where nothing follows from them."""
    marks: Mapping[str, float] = field(default_factory=dict)
    """Rater → the score that they gave in the data, where that is a decision."""

    @property
    def waits(self) -> bool:
        return self.decided_by == "waits"

    @property
    def stands_as_marked(self) -> bool:
        """Whether the score is what people gave in the data, and nobody decided otherwise since."""
        return self.decided_by == "person" and bool(self.marks) and self.settled_by in ("marked", "in_data")


@dataclass(frozen=True)
class StudentGrades:
    """The answers of one student. An answer without a student stands alone."""

    student: str | None
    answers: tuple[GradedAnswer, ...]
    """In the order of the questions."""

    @property
    def name(self) -> str | None:
        return next((answer.student_name for answer in self.answers if answer.student_name), None)

    @property
    def display_name(self) -> str:
        """What people call the student: by name, else by id, else by the answer's id."""
        return self.name or self.student or f"answer {self.answers[0].response_id}"

    @property
    def section(self) -> str | None:
        return next((answer.section for answer in self.answers if answer.section), None)

    @cached_property
    def repeated(self) -> frozenset[str]:
        """The questions that the student answered more than once: which answer counts, a person has to say."""
        items = [answer.item_id for answer in self.answers]
        return frozenset(item for item in items if items.count(item) > 1)

    @property
    def scores(self) -> dict[str, float]:
        """Question → its final score, where there is one."""
        return {
            answer.item_id: answer.final_score
            for answer in self.answers
            if answer.final_score is not None and answer.item_id not in self.repeated
        }

    @property
    def open_questions(self) -> set[str]:
        """The questions that were answered and have no final score."""
        return {answer.item_id for answer in self.answers} - self.scores.keys()

    @property
    def points(self) -> float:
        """The sum of the final scores."""
        return round(sum(self.scores.values()), 9)


@dataclass(frozen=True)
class Gradebook:
    """A graded run. answers: in the order of the data, or by the students' names."""

    run_id: str
    study: str
    graded_on: str
    """The date, as ISO 8601; '' where the run did not finish."""
    rater: str
    """Who the machine is: its rater id."""
    promises: tuple[Mapping[str, Any], ...]
    """Rows of `release_rules`."""
    questions: Mapping[str, GradedQuestion]
    answers: tuple[GradedAnswer, ...]

    @cached_property
    def students(self) -> tuple[StudentGrades, ...]:
        """In the order of the answers, each with theirs in the order of the questions."""
        places = {item: place for place, item in enumerate(self.questions)}
        groups: dict[tuple[str, str], list[GradedAnswer]] = {}
        for answer in self.answers:
            key = ("student", answer.student) if answer.student is not None else ("answer", answer.response_id)
            groups.setdefault(key, []).append(answer)
        for answers in groups.values():
            answers.sort(key=lambda answer: places[answer.item_id])
        return tuple(StudentGrades(answers[0].student, tuple(answers)) for answers in groups.values())

    @property
    def highest(self) -> float:
        """The sum of the highest scores of all questions."""
        return round(sum(question.scale.max for question in self.questions.values()), 9)

    def count(self, decided_by: DecidedBy) -> int:
        return sum(answer.decided_by == decided_by for answer in self.answers)
