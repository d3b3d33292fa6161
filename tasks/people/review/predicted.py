"""A calibrated score in the words that a reviewer reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.tables.judging import UNSCORED_REASONS

NO_INTERVAL = "how far off it may be is not known"


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
    risk: float | None
    """That a person's score differs by more than the study allows."""
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


def predicted_score(row: Mapping[str, Any], scale: Scale) -> PredictedScore:
    """A row of `predictions`."""
    score, chances = row["score"], row["level_probabilities"]
    level = None if score is None else round((score - scale.min) / scale.step)
    has_chance = chances and level is not None and level < len(chances)
    return PredictedScore(
        score=score,
        points=row["raw"],
        low=row["low"],
        high=row["high"],
        probability=chances[level] if has_chance else None,
        risk=row["risk"],
        reason=row["unscored_reason"],
    )


def as_words(predicted: PredictedScore, scale: Scale) -> dict[str, Any]:
    """For the page: `value` as a vote names it, `sentence`; `points`, what stands beside it, and `chance`, each a
    sentence or None."""
    if predicted.score is None:
        return without_score(_reason(predicted)) | {"points": _points(predicted, scale)}
    return {
        "value": score_text(predicted.score),
        "sentence": f"{_of_scale(predicted.score, scale)}, {_interval(predicted)}",
        "points": _points(predicted, scale),
        "chance": _chance(predicted),
    }


def without_score(reason: str) -> dict[str, Any]:
    """The same where there is no score."""
    return {"value": None, "sentence": f"no score: {reason}", "points": None, "chance": None}


def score_text(score: float) -> str:
    """A score as a vote names it: 3, 2.5; never with an exponent."""
    return f"{round(score, 9) + 0.0:.9f}".rstrip("0").rstrip(".")  # + 0.0: no minus before a zero


def _reason(predicted: PredictedScore) -> str:
    if predicted.points is not None:
        return "the judge told too little of this answer to fit its points to scores that people gave"
    return UNSCORED_REASONS.get(predicted.reason or "", "no reason is recorded")


def _of_scale(score: float, scale: Scale) -> str:
    if scale.min == 0:
        return f"{score_text(score)} of {score_text(scale.max)}"
    return f"{score_text(score)} on the scale from {score_text(scale.min)} to {score_text(scale.max)}"


def _interval(predicted: PredictedScore) -> str:
    if predicted.low is None or predicted.high is None:
        return NO_INTERVAL
    low, high = (score_text(round(end, 2)) for end in (predicted.low, predicted.high))
    return f"probably exactly {low}" if low == high else f"probably between {low} and {high}"


def _chance(predicted: PredictedScore) -> str | None:
    """How often a person gives the same score, as a share of a hundred answers."""
    if predicted.probability is None or predicted.score is None:
        return None
    cases = round(100 * predicted.probability)
    count = {0: "fewer than 1", 100: "more than 99"}.get(cases, f"about {cases}")
    return f"In {count} of 100 such answers, a person would give exactly {score_text(predicted.score)}"


def _points(predicted: PredictedScore, scale: Scale) -> str | None:
    """The score before calibration, where it is another one."""
    if predicted.points is None or predicted.points == predicted.score:
        return None
    return f"By the rubric's points alone: {_of_scale(round(predicted.points, 2), scale)}"
