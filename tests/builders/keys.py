"""Rubrics of official keys: counted sub-points, groups, and criteria that exclude each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from builders import bundles
from builders.bundles import THREE, trait

from rubricflow.tasks.core.contracts.bundle import Bundle, Count, Criterion, Rubric
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.grading.lock.bundles import lock
from rubricflow.tasks.grading.lock.rubric import broken


def criterion(name: str, **more: Any) -> Criterion:
    """A criterion of three levels."""
    return bundles.criterion(name, **{"levels": THREE} | more)


def counting(name: str, points: Sequence[float], sign: int = 1, **more: Any) -> Criterion:
    """A criterion that counts its sub-points. more: what else its count or itself says."""
    rule = {key: more.pop(key) for key in ("least", "needs") if key in more}
    return bundles.criterion(name, weight=sign * points[-1], count=Count(points=tuple(points), **rule), **more)


def rubric(*criteria: Criterion, top: float = 3) -> Rubric:
    """On a scale of 0 to top, and every trait, too."""
    named = dict.fromkeys(one.trait for one in criteria)
    traits = tuple(trait(name, 0, top) for name in named)
    return Rubric(rubric_id="r", scale=bundles.scale(0, top), traits=traits, criteria=criteria)


def locked(*criteria: Criterion, top: float = 3, unscored: str = "null", **judge: Any) -> Bundle:
    """The rubric's bundle, as pointwise judges it; AssertionError where it is broken."""
    made = rubric(*criteria, top=top)
    assert (problem := broken(made)) is None, problem
    plan = Judge.model_validate({"protocol": "pointwise", "final_score": "weighted_points"} | judge)
    return lock(made, plan.as_protocol().model_copy(update={"unscored": unscored}))
