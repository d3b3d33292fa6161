"""What counted in an answer, what was missing, and what cost points, in the rubric's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.composite import composed, composition, levels_counted
from rubricflow.tasks.grading.gradebook.book import CriterionLevel, GradedAnswer, GradedQuestion

WHOLE = 1 - 1e-9


class Credit(NamedTuple):
    """The criteria of an answer by what became of them, each group in the rubric's order."""

    counted: tuple[CriterionLevel, ...]
    """What earned something, wholly or in part."""
    missing: tuple[Criterion, ...]
    """What earned nothing and would have."""
    cost: tuple[CriterionLevel, ...]
    """What cost points."""


def explains(question: GradedQuestion, answer: GradedAnswer) -> bool:
    """Whether an answer's levels stand beside its final score: a person set them or decided the score, or they come to
    that score or the one next to it. Calibration may move a score far from them, and nobody has looked at it: to show
    them would then tell another story."""
    if answer.final_score is None:
        return False
    if answer.levels_are_peoples:
        return True
    if not any(level.level is not None for level in answer.levels):
        return False
    if answer.decided_by == "person":
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


def credit(bundle: Bundle, levels: Sequence[CriterionLevel]) -> Credit:
    """Sorts an answer's levels. What another criterion rules out is neither counted nor missing, nor is a sub-point
    missing whose whole is earned without it."""
    shares = _shares(bundle, levels)
    earning = [level for level in levels if level.level and shares.get(level.criterion.id, 0) > 0]
    earned = {level.criterion.id for level in earning}
    at_zero = (level.criterion for level in levels if level.level == 0)
    missing = (criterion for criterion in at_zero if _lacks(criterion, shares, earned, bundle))
    counted = (level for level in earning if level.criterion.weight > 0)
    cost = (level for level in earning if level.criterion.weight < 0)
    return Credit(counted=tuple(counted), missing=tuple(missing), cost=tuple(cost))


def _shares(bundle: Bundle, levels: Sequence[CriterionLevel]) -> dict[str, float]:
    """Criterion or composite → the share of it that counts."""
    counted = levels_counted(bundle)
    decided: dict[str, float] = {}
    for level in levels:
        criterion = level.criterion
        if level.level is not None and level.level <= criterion.top:
            decided[criterion.id] = counted[criterion.id][level.level] / criterion.top
    return composed(composition(bundle), decided, lambda share: min(1.0, max(0.0, share)))


def _lacks(criterion: Criterion, shares: Mapping[str, float], earned: set[str], bundle: Bundle) -> bool:
    """Whether the criterion would have earned something more."""
    if criterion.weight <= 0:
        return False
    if criterion.parent is not None and shares.get(criterion.parent, 0) >= WHOLE:
        return False
    rivals = {other.id for other in bundle.criteria if criterion.id in other.excludes} | set(criterion.excludes)
    return not rivals & earned


def level_words(level: CriterionLevel) -> str:
    """A level that is neither the lowest nor the highest, in the rubric's words; '' for the others."""
    reached, criterion = level.level, level.criterion
    if reached is None or reached in (0, criterion.top) or reached > criterion.top:
        return ""
    return criterion.levels[reached]
