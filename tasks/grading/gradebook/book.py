"""A graded run as a teacher sees it: questions, students and one final score an answer; and what counted in an answer,
what was missing, and what cost points, in the rubric's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Scale
from rubricflow.tasks.core.contracts.composite import composed, composition, level_shares
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.quotes import WorthOfQuotes
from rubricflow.tasks.core.display.verdict import ReleaseVerdict

WHOLE = 1 - 1e-9
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
    def unjudged_questions(self) -> set[str]:
        """Those of them whose answer cannot be judged, as people said: nobody is still looking at it."""
        unjudged = {answer.item_id for answer in self.answers if answer.decided_by == "cannot_be_judged"}
        return unjudged - self.repeated

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
    verdict: ReleaseVerdict
    """Which scores go out, as the report says it."""
    promises: tuple[Mapping[str, Any], ...]
    """Rows of `release_rules`."""
    quotes: WorthOfQuotes
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


# What an answer's score owes to single criteria.


class Credit(NamedTuple):
    """The criteria of an answer by what became of them, each group in the rubric's order."""

    counted: tuple[CriterionLevel, ...]
    """What earned something, wholly or in part."""
    missing: tuple[Criterion, ...]
    """What earned nothing and would have."""
    cost: tuple[CriterionLevel, ...]
    """What cost points."""


def explains(question: GradedQuestion, answer: GradedAnswer) -> bool:
    """Whether an answer's levels are shown with its final score: a person set them, or decided on another score than
    they make, which is then said; or the judge's score is that score or the one next to it. Calibration, and a person
    where no score follows from levels, may put a score far from them: they would not explain it."""
    if answer.final_score is None:
        return False
    if answer.levels_are_peoples:
        return True
    if not any(level.level is not None for level in answer.levels):
        return False
    if answer.decided_by == "person" and answer.criteria_score is not None:
        return True
    if answer.judge_score is None:
        return False
    return abs(answer.final_score - answer.judge_score) <= question.scale.step + 1e-9


def parted(answer: GradedAnswer) -> float | None:
    """What an answer's criteria come to, where a person decided on another score; None where they agree, and where
    nothing follows from criteria."""
    points = answer.criteria_score
    if answer.decided_by != "person" or answer.final_score is None or points is None:
        return None
    return points if abs(points - answer.final_score) > 1e-9 else None


def told_credit(question: GradedQuestion, answer: GradedAnswer) -> Credit:
    """What a student is told of the criteria with the final score; nothing where they would not explain it."""
    if not explains(question, answer):
        return Credit((), (), ())
    groups = credit(question.bundle, answer.levels)
    points, final = parted(answer), answer.final_score or 0.0
    is_more = final >= question.scale.max or (points is not None and points < final)
    if is_more and not answer.levels_are_peoples:
        # More was found in the answer than these criteria have: what they miss may be what was found.
        return groups._replace(missing=())
    return groups


def how_reached(question: GradedQuestion, answer: GradedAnswer) -> str:
    """How an answer's final score came about, in a sentence for its student, so that no number stands bare."""
    teacher = "Your teachers" if len(answer.marks) > 1 else "Your teacher"
    is_person = answer.decided_by == "person"
    groups = told_credit(question, answer)
    points = parted(answer) if any(groups) else None
    if points is not None:
        criteria = "the criteria listed here" if groups.counted else "the rubric's criteria alone"
        return f"{teacher} gave {points_words(answer.final_score)}; {criteria} make {points_words(points)}."
    if any(groups) and is_person:
        return f"{teacher} gave this score."
    if any(groups):
        points = answer.criteria_score
        if points is None:
            return "This score was given on the answer as a whole; the points listed here were looked at besides."
        if abs(points - (answer.final_score or 0.0)) > 1e-9:
            return f"The points listed here make {points_words(points)}; the score was fitted to how people mark."
        return "This score follows from the points listed here."
    given = f"{teacher} gave this score on" if is_person else "This score was given on"
    return f"{given} the answer as a whole, so there is no list of points. Ask your teacher if you want to know more."


def points_words(score: float | None) -> str:
    """A score to read: a mean of several marks may have no end."""
    return say.level(round(score or 0.0, 3))


def credit(bundle: Bundle, levels: Sequence[CriterionLevel]) -> Credit:
    """Sorts an answer's levels. What another criterion rules out is neither counted nor missing, nor is a sub-point
    missing whose whole is earned without it."""
    worth = level_shares(bundle)
    decided = {}
    for criterion, level, _ in levels:
        if level is not None and level <= criterion.top:
            decided[criterion.id] = worth[criterion.id][level]
    # Criterion or composite → the share of it that counts.
    shares = composed(composition(bundle), decided)
    earning = [level for level in levels if level.level and shares.get(level.criterion.id, 0) > 0]
    earned = {level.criterion.id for level in earning}
    missing = []
    for criterion, level, _ in levels:
        is_whole = criterion.parent is not None and shares.get(criterion.parent, 0) >= WHOLE
        rivals = {other.id for other in bundle.criteria if criterion.id in other.excludes} | set(criterion.excludes)
        if level == 0 and criterion.weight > 0 and not is_whole and not rivals & earned:
            missing.append(criterion)
    return Credit(
        counted=tuple(level for level in earning if level.criterion.weight > 0),
        missing=tuple(missing),
        cost=tuple(level for level in earning if level.criterion.weight < 0),
    )


def level_words(level: CriterionLevel) -> str:
    """A level that is neither the lowest nor the highest, in the rubric's words; '' for the others."""
    reached, criterion = level.level, level.criterion
    if reached is None or not 0 < reached < criterion.top:
        return ""
    return criterion.levels[reached]
