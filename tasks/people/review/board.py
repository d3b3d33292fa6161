"""What the review page shows: cases, what is asked about each, and what machines made of it. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple

from pydantic import ValidationError, model_validator

from rubricflow.tasks.core.contracts.bundle import Criterion, Scale
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.people.review.predicted import PredictedScore, score_text
from rubricflow.tasks.people.review.subject import digest

_KEYS = 10
"""Digits on a keyboard."""
SubjectKind = Literal["label", "score"]


class Quote(NamedTuple):
    """Evidence as table `judgments` keeps it; start and end are characters of the response, None unless found."""

    text: str
    status: str
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class MachineLabel:
    """What one machine rater says of one criterion of a response."""

    rater: str
    """Its name, for people."""
    level: int | None
    """The level; for a case of kind score the number of the score on its scale, from 0. None with a reason."""
    probability: float | None = None
    """Of that level, where the rater gives one."""
    quotes: tuple[Quote, ...] = ()
    """Its evidence."""
    reason: str | None = None
    """Why there is no level."""
    stated: int | None = None
    """The level that it said, before its quotes were looked at; None where that is not known."""
    action: str = "none"
    """What quotes that failed did to the level, a key of ACTIONS."""


@dataclass(frozen=True)
class QueuedCase:
    """One response that waits for people."""

    response_id: str
    subject_kind: SubjectKind
    """label: all concepts of the response are voted on; score: its score."""
    rubric_id: str
    """Whose criteria or scale."""
    why: str
    """Why it waits, in words; may tell what machines said."""
    text: str
    """The response."""
    question: str
    reference: str | None = None
    """The model answer."""
    context: str | None = None
    """Material that belongs to the question."""
    doubtful: tuple[str, ...] = ()
    """The criteria in doubt."""
    second: bool = False
    """Whether this is a second rating from the start: whoever opens it is blind."""
    item_id: str = ""
    """The question's id."""
    student: str | None = None
    """Whose answer it is, for people; None where that is not known or not to be shown."""
    marked: bool = False
    """Whether its score is decided by marks in the data: nobody is asked, and everybody may decide otherwise."""
    marked_at: int = 0
    """The number in the ledger of the last mark that the data hold of it."""
    history: tuple[str, ...] = ()
    """What was said of the score until now, a line each."""


class GraderHead(Frozen):
    """All that lies behind a grader's bottleneck, as column `head` of table `models` holds it.

    logits = W·A·s̃ + b (REC-CBM, Eqs. 20 and 22) for K concepts and S + 1 grades.
    """

    criteria: tuple[str, ...]
    """K criterion ids, in the order of s̃."""
    tops: tuple[int, ...]
    """Highest level of each."""
    correction: tuple[tuple[float, ...], ...]
    """A, (K, K)."""
    weights: tuple[tuple[float, ...], ...]
    """W, (S + 1, K)."""
    bias: tuple[float, ...]
    """b, (S + 1,)."""
    scores: tuple[float, ...]
    """The score that each grade stands for."""
    temperature: float
    """What logits are divided by."""

    @model_validator(mode="after")
    def _fits(self) -> GraderHead:
        concepts, grades = len(self.criteria), len(self.scores)
        shapes = (len(self.tops) == len(self.correction) == concepts, len(self.weights) == len(self.bias) == grades)
        rows = all(len(row) == concepts for row in (*self.correction, *self.weights))
        if not (all(shapes) and rows and grades > 1 and concepts and min(self.tops) > 0 and self.temperature > 0):
            raise ValueError("the matrices of the grader's head do not fit together")
        return self

    @classmethod
    def read(cls, text: str) -> GraderHead:
        """From `Models.head`; ContractError for one that cannot be reckoned with."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ContractError(f"the head in table models cannot be read: {error.errors()[0]['msg']}") from error


class Option(NamedTuple):
    """One answer that a reviewer can give."""

    value: str
    """What the vote says."""
    key: str | None
    """The digit that votes it at once; None where answers are typed, as scores are and levels above 9."""
    text: str
    """What it means; '' where the value says it all."""


@dataclass(frozen=True)
class Ballot:
    """One thing that is voted on in a case."""

    criterion_id: str | None
    """The criterion; None for the score."""
    text: str
    """What is looked for."""
    options: tuple[Option, ...]
    digest: str
    """Of what is voted on, see subject.py."""
    is_needed: bool = True
    """Whether a case without a vote on it cannot be submitted."""
    weight: float | None = None
    """What a criterion counts; None for the score."""
    part_of: str | None = None
    """The criterion that this one is a sub-point of."""


@dataclass(frozen=True)
class Board:
    """A study's cases, with all that reviewers may look at once they may see it."""

    study: str
    """The study's name, under which votes are kept."""
    title: str
    """Title for people."""
    cases: tuple[QueuedCase, ...]
    """In the order in which they are asked; one per response."""
    criteria: Mapping[str, tuple[Criterion, ...]]
    """Rubric → its criteria."""
    scales: Mapping[str, Scale]
    """Rubric → its scale."""
    machine: Mapping[tuple[str, str | None], tuple[MachineLabel, ...]]
    """(response, criterion; None for the score) → what machines say."""
    grader: GraderHead | None = None
    """The study's bottleneck grader, if it has one."""
    estimates: Mapping[str, Mapping[str, float]] | None = None
    """Response → criterion → s̃, its expected level as a share of the highest, before correction."""
    predictions: Mapping[str, PredictedScore] = field(default_factory=dict)
    """Response → its calibrated score."""
    rubric_texts: Mapping[str, str] = field(default_factory=dict)
    """Rubric → its author's words."""
    coverage: float | None = None
    """Share of people's scores that the intervals are made to hold; None where there are none."""

    def __post_init__(self) -> None:
        if len(self.places) < len(self.cases):
            raise ContractError("table queue has a case twice")

    @cached_property
    def places(self) -> dict[str, int]:
        """Response → the number of its case, from 0."""
        return {case.response_id: number for number, case in enumerate(self.cases)}

    def ballots(self, case: QueuedCase) -> tuple[Ballot, ...]:
        """What is voted on: every criterion of the rubric; where the score is asked for, first the score as if it were
        a criterion whose levels are scores, and then the criteria, on which nobody has to vote."""
        is_score = case.subject_kind == "score"
        criteria = [_criterion_ballot(case.text, c, not is_score) for c in self.criteria[case.rubric_id]]
        return (self._score_ballot(case), *criteria) if is_score else tuple(criteria)

    def _score_ballot(self, case: QueuedCase) -> Ballot:
        values = score_texts(self.scales[case.rubric_id])
        options = tuple(Option(value, None, "") for value in values)
        return Ballot(None, "What the response is worth", options, digest(case.text, "", values))

    def shares(self, case: QueuedCase) -> list[float] | None:
        """s̃ in the order of the grader's concepts; None where there is no grader or no estimate."""
        shares = (self.estimates or {}).get(case.response_id, {})
        if self.grader is None or not all(criterion in shares for criterion in self.grader.criteria):
            return None
        return [shares[criterion] for criterion in self.grader.criteria]


def _criterion_ballot(text: str, criterion: Criterion, is_needed: bool) -> Ballot:
    return Ballot(
        criterion_id=criterion.id,
        text=criterion.text,
        options=_levels(criterion.levels),
        digest=digest(text, criterion.text, criterion.levels),
        is_needed=is_needed,
        weight=criterion.weight,
        part_of=criterion.parent,
    )


def _levels(levels: tuple[str, ...]) -> tuple[Option, ...]:
    return tuple(Option(str(i), str(i) if len(levels) <= _KEYS else None, text) for i, text in enumerate(levels))


def score_texts(scale: Scale) -> list[str]:
    """The scores of a scale as a vote names them, lowest first."""
    return [score_text(scale.min + place * scale.step) for place in range(scale.levels)]
