"""What the review page shows: cases, what is asked about each, what machines made of it, and calibrated scores in
words. Values only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import inf, isfinite
from typing import Literal, NamedTuple

from pydantic import ValidationError, model_validator

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Scale, unlocked
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import Frozen, TableRef
from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.store.warehouse import Run, pairs
from rubricflow.tasks.people.review.ledger import Subject, SubjectKind, digest

_KEYS = 10
"""Digits on a keyboard."""
NO_INTERVAL = "how far off it may be is not known"


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
    is_trace: bool = False
    """Whether the response is a conversation or an agent's trajectory."""


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
        concepts = len(self.criteria)
        grades = len(self.scores)
        rows = {len(row) for row in (*self.correction, *self.weights)} == {concepts}
        shapes = len(self.tops) == len(self.correction) == concepts and len(self.weights) == len(self.bias) == grades
        numbers = chain(self.bias, self.scores, *self.correction, *self.weights)
        if not (concepts and grades > 1 and rows and shapes):
            raise ValueError("its matrices do not fit together")
        if not (min(self.tops) > 0 and 0 < self.temperature < inf and all(map(isfinite, numbers))):
            raise ValueError("a highest level or the temperature is not above 0, or a number is not finite")
        return self

    @classmethod
    def read(cls, text: str) -> GraderHead:
        """From `Models.head`; ContractError for one that cannot be reckoned with."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise ContractError(f"the head in table models cannot be read: {error.errors()[0]['msg']}") from error


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


Follow = Callable[[str, Mapping[str, int]], PredictedScore | str]
"""A response and the levels that a reviewer set, by criterion, to the score that follows, or why none does, in words;
the other levels stay as the judge decided them."""


Shows = Literal["verdict", "explanation", "nothing"]


class Vouching(NamedTuple):
    """How many labels a promise takes."""

    needed: int
    """Fewest labels of answers drawn by chance with which it can be kept."""
    here: int
    """Those that the data hold."""
    drawn: frozenset[str]
    """The responses of the board that were drawn by chance: labels of the others teach and do not vouch."""
    promise: str
    """What is promised, in words."""


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
    machine: Mapping[Subject, list[tuple[str, Row]]]
    """(response, criterion; None for the score) → rows of `judgments`, each with its rater's name for people."""
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
    shows: Shows = "verdict"
    """What whoever is first sees of the machine's work before they submit."""
    explanations: Mapping[str, str] = field(default_factory=dict)
    """Response → what the machine said for its score."""
    vouching: Vouching | None = None
    """What labels of these cases are to make possible, where they are drawn for that."""

    def __post_init__(self) -> None:
        if len(self.places) < len(self.cases):
            raise ContractError("table queue has a case twice")

    @cached_property
    def places(self) -> dict[str, int]:
        """Response → the number of its case, from 0."""
        return {case.response_id: number for number, case in enumerate(self.cases)}

    def ballots(self, case: QueuedCase) -> list[Record]:
        """What is voted on, as the page has it: every criterion of the rubric; where the score is asked for, first the
        score as if it were a criterion whose levels are scores, and then the criteria, on which nobody has to vote.

        criterion_id: None for the score; text: what is looked for; options: the answers, each with what the vote says
        (value), the digit that votes it at once, None where answers are typed (key), and what it means (text); digest:
        see `ledger.digest`; needed: whether a case without a vote on it cannot be submitted; weight, part_of: of the
        criterion.
        """
        ballots = list[Record]()
        if case.subject_kind == "score":
            values = score_texts(self.scales[case.rubric_id])
            ballots.append(
                {
                    "criterion_id": None,
                    "text": "What the response is worth",
                    "options": [{"value": value, "key": None, "text": ""} for value in values],
                    "digest": digest(case.text, "", values),
                    "needed": True,
                    "weight": None,
                    "part_of": None,
                }
            )
        for criterion in self.criteria[case.rubric_id]:
            levels = {str(level): words for level, words in enumerate(criterion.levels)}
            has_keys = len(levels) <= _KEYS
            options = [{"value": level, "key": level if has_keys else None, "text": levels[level]} for level in levels]
            ballots.append(
                {
                    "criterion_id": criterion.id,
                    "text": criterion.text,
                    "options": options,
                    "digest": digest(case.text, criterion.text, criterion.levels),
                    "needed": case.subject_kind != "score",
                    "weight": criterion.weight,
                    "part_of": criterion.parent,
                }
            )
        return ballots

    @cached_property
    def alike(self) -> dict[str, tuple[QueuedCase, ...]]:
        """Response → those that are one decision with it, itself among them: the same words to the same question or, on
        one scale, nothing at all. What could not be read has no score, and is no empty answer."""
        groups = defaultdict[tuple[str, ...], list[QueuedCase]](list)
        for case in self.cases:
            predicted = self.predictions.get(case.response_id)
            words = case.text.strip()
            is_read = bool(words) or (predicted is not None and predicted.score is not None)
            if case.subject_kind == "score" and not case.marked and is_read:
                scale = score_texts(self.scales[case.rubric_id])
                groups[(case.item_id, words) if words else ("", *scale)].append(case)
        return {case.response_id: alike for alike in map(tuple, groups.values()) for case in alike}

    def shares(self, case: QueuedCase) -> list[float] | None:
        """s̃ in the order of the grader's concepts; None where there is no grader or no estimate."""
        shares = (self.estimates or {}).get(case.response_id, {})
        if self.grader is None or not all(criterion in shares for criterion in self.grader.criteria):
            return None
        return [shares[criterion] for criterion in self.grader.criteria]


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
        by_points = f"By the judge alone: {_of_scale(round(points, 2), scale)}"
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
    return {"value": None, "sentence": f"no score: {reason}", "points": None, "chance": None}


def _of_scale(score: float, scale: Scale) -> str:
    if scale.min == 0:
        return f"{score_text(score)} of {score_text(scale.max)}"
    return f"{score_text(score)} on the scale from {score_text(scale.min)} to {score_text(scale.max)}"
