"""What the review page shows: cases, what is asked about each, what machines made of it, and calibrated scores in
words. Values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from pydantic import ValidationError, model_validator

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Scale, unlocked
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import Frozen, TableRef
from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.display.table import Record, Row, Rows
from rubricflow.tasks.core.store.warehouse import Run, pairs
from rubricflow.tasks.people.review.ledger import Subject, SubjectKind, digest

_KEYS = 10
"""Digits on a keyboard."""
NO_INTERVAL = "how far off it may be is not known"


class Quote(NamedTuple):
    """Evidence as table `judgments` keeps it; start and end are characters of the response, None unless found."""

    text: str
    status: str
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class MachineLabel:
    """What one machine rater gives for one criterion of a response."""

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
    """The level that it gave before its quotes were checked; None where that is not known."""
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
    """Of what is voted on, see `ledger.digest`."""
    is_needed: bool = True
    """Whether a case without a vote on it cannot be submitted."""
    weight: float | None = None
    """What a criterion counts; None for the score."""
    part_of: str | None = None
    """The criterion that this one is a sub-point of."""


class PredictedScore(NamedTuple):
    """A score after calibration, as a row of `predictions` has it."""

    score: float | None
    """On the scale's steps; None where there is none."""
    points: float | None
    """What the rubric's own formula makes of the levels, on the same scale, before calibration."""
    low: float | None
    high: float | None
    """Ends of the interval for a person's score; None where it cannot be told."""
    probability: float | None
    """That a person gives exactly this score."""
    reason: str | None
    """Why there is no score, a key of UNSCORED_REASONS."""


class FollowingScore(NamedTuple):
    """The score that follows from levels that a reviewer set."""

    predicted: PredictedScore | None
    problem: str | None
    """Why none follows, in words; None where one does."""


Follow = Callable[[str, Mapping[str, int]], FollowingScore]
"""A response and the levels that a reviewer set, by criterion, to the score that follows; the other levels stay as the
judge decided them."""


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
    machine: Mapping[Subject, tuple[MachineLabel, ...]]
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
        criteria = tuple(_criterion_ballot(case.text, c, not is_score) for c in self.criteria[case.rubric_id])
        if not is_score:
            return criteria
        values = score_texts(self.scales[case.rubric_id])
        options = tuple(Option(value, None, "") for value in values)
        return (Ballot(None, "What the response is worth", options, digest(case.text, "", values)), *criteria)

    def shares(self, case: QueuedCase) -> list[float] | None:
        """s̃ in the order of the grader's concepts; None where there is no grader or no estimate."""
        shares = (self.estimates or {}).get(case.response_id, {})
        if self.grader is None or not all(criterion in shares for criterion in self.grader.criteria):
            return None
        return [shares[criterion] for criterion in self.grader.criteria]


def _criterion_ballot(text: str, criterion: Criterion, is_needed: bool) -> Ballot:
    has_keys = len(criterion.levels) <= _KEYS
    options = (Option(str(i), str(i) if has_keys else None, words) for i, words in enumerate(criterion.levels))
    return Ballot(
        criterion_id=criterion.id,
        text=criterion.text,
        options=tuple(options),
        digest=digest(text, criterion.text, criterion.levels),
        is_needed=is_needed,
        weight=criterion.weight,
        part_of=criterion.parent,
    )


def score_text(score: float) -> str:
    """A score as a vote names it: 3, 2.5; never with an exponent."""
    return f"{round(score, 9) + 0.0:.9f}".rstrip("0").rstrip(".")  # + 0.0: no minus before a zero


def score_texts(scale: Scale) -> list[str]:
    """The scores of a scale as a vote names them, lowest first."""
    return [score_text(scale.min + place * scale.step) for place in range(scale.levels)]


def rubrics(
    run: Run, items: TableRef, responses: TableRef, bundles: TableRef
) -> tuple[dict[str, Bundle], dict[str, str]]:
    """Rubric → bundle, and response → rubric."""
    rubric = dict(pairs(run.read(items, ["item_id", "rubric_id"])))
    item = pairs(run.read(responses, ["response_id", "item_id"]))
    return unlocked(run.read(bundles).to_pylist()), {response: rubric[name] for response, name in item}


def digests_of(answers: Rows, bundles: Mapping[str, Bundle], rubric_of: Mapping[str, str]) -> dict[Subject, str]:
    """Everything that can be voted on → its digest: each answer's score, and its level on every criterion. answers:
    response_id and text."""
    digests: dict[Subject, str] = {}
    for row in answers:
        name, text = row["response_id"], row["text"]
        bundle = bundles[rubric_of[name]]
        digests[name, None] = digest(text, "", score_texts(bundle.scale))
        digests |= {(name, each.id): digest(text, each.text, each.levels) for each in bundle.criteria}
    return digests


def predicted_score(row: Row, scale: Scale) -> PredictedScore:
    """A row of `predictions`."""
    score = row["score"]
    level = None if score is None else round((score - scale.min) / scale.step)
    return PredictedScore(
        score=score,
        points=row["raw"],
        low=row["low"],
        high=row["high"],
        probability=chance_of(level, row["level_probabilities"]),
        reason=row["unscored_reason"],
    )


def chance_of(level: int | None, probabilities: Sequence[float] | None) -> float | None:
    """The probability of a level; None where there is no level or no probability of it."""
    return probabilities[level] if probabilities and level is not None and level < len(probabilities) else None


def as_words(predicted: PredictedScore, scale: Scale) -> Record:
    """For the page: `value` as a vote names it, `sentence`; `points`, the score before calibration where it is another
    one, and `chance`, how often a person gives the same score as a share of a hundred answers, each a sentence or
    None."""
    score, points, low, high, probability = predicted[:5]
    by_points = None
    if points is not None and points != score:
        by_points = f"By the rubric's points alone: {_of_scale(round(points, 2), scale)}"
    if score is None:
        reason = UNSCORED_REASONS.get(predicted.reason or "", "no reason is recorded")
        if points is not None:
            reason = "the judge told too little of this answer to fit its points to scores that people gave"
        return without_score(reason) | {"points": by_points}
    interval, chance = NO_INTERVAL, None
    if low is not None and high is not None:
        ends = [score_text(round(end, 2)) for end in (low, high)]
        interval = f"probably exactly {ends[0]}" if ends[0] == ends[1] else f"probably between {ends[0]} and {ends[1]}"
    if probability is not None:
        cases = round(100 * probability)
        count = {0: "fewer than 1", 100: "more than 99"}.get(cases, f"about {cases}")
        chance = f"In {count} of 100 such answers, a person would give exactly {score_text(score)}"
    sentence = f"{_of_scale(score, scale)}, {interval}"
    return {"value": score_text(score), "sentence": sentence, "points": by_points, "chance": chance}


def without_score(reason: str) -> Record:
    """The same where there is no score."""
    return {"value": None, "sentence": f"no score: {reason}", "points": None, "chance": None}


def _of_scale(score: float, scale: Scale) -> str:
    if scale.min == 0:
        return f"{score_text(score)} of {score_text(scale.max)}"
    return f"{score_text(score)} on the scale from {score_text(scale.min)} to {score_text(scale.max)}"
