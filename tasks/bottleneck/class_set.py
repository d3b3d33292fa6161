"""A study's responses with all that is known about them, and the rows that follow from it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from tasks.bottleneck.arm import SharedGround, TrainedArm
from tasks.bottleneck.backbone import Backbone
from tasks.bottleneck.data import MISSING
from tasks.bottleneck.labelled import grades_of
from tasks.bottleneck.measures import human_rows
from tasks.contracts.bundle import Bundle
from tasks.contracts.grader import Answered
from tasks.stats.arrays import Floats, Ints


@dataclass(frozen=True)
class ClassSet:
    """A study's responses with everything that is known about them, in the order of their ids."""

    ground: SharedGround
    backbone: Backbone
    bundle: Bundle
    bundle_id: str
    item_ids: tuple[str, ...]
    answered: tuple[Answered, ...]
    target: Floats
    """(n,) the human score that counts, NaN where there is none."""
    marks: Mapping[str, Floats]
    """Rater of the data → its levels (n, K)."""
    scores: Mapping[str, Floats]
    """Rater of the data → its scores (n,), NaN where there is none."""
    kinds: Mapping[str, str]
    """Rater of the data → human, adjudication or replayed."""


def people_rows(of: ClassSet) -> Iterator[dict[str, Any]]:
    """What one person is worth by another on the test split, and what a machine recorded is worth by the labels."""
    data = of.ground.data
    persons = [name for name, kind in of.kinds.items() if kind == "human"]
    for seed, (a, b) in enumerate(combinations(persons, 2)):
        for row in against(of, _marked(of, a), _marked(of, b)):
            yield row | {"seed": seed, "note": f"{a} and {b}" + (f"; {row['note']}" if row["note"] else "")}
    for name in (name for name, kind in of.kinds.items() if kind == "replayed"):
        for row in against(of, (data.levels, data.grades), _marked(of, name)):
            yield row | {"method": name}


def _marked(of: ClassSet, rater: str) -> tuple[Ints, Ints]:
    """A rater's levels and grades as classes."""
    data, none = of.ground.data, np.full(of.ground.data.levels.shape, np.nan)
    levels = of.marks.get(rater, none)
    scores = of.scores.get(rater, np.full(len(levels), np.nan))
    grades = grades_of(scores, of.bundle.scale, of.ground.plan.bands)
    return np.where(np.isnan(levels), MISSING, levels).astype(np.int64), np.asarray(grades[: len(data.grades)])


def against(of: ClassSet, a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> list[dict[str, Any]]:
    """What one is worth by the other on the test split: levels (n, K) and grades (n,) of each, MISSING for none."""
    data = of.ground.data
    rows = data.rows("test")
    (levels_a, grades_a), (levels_b, grades_b) = a, b
    found = human_rows(
        levels_a[rows], levels_b[rows], grades_a[rows], grades_b[rows], data.concepts, data.scores, "test"
    )
    return [row for row in found if row["n"]]


def judgment_rows(of: ClassSet, outcome: TrainedArm, rater: str) -> Iterator[dict[str, Any]]:
    """The level of every concept of every response, those that it learned from too."""
    levels, chosen = outcome.estimates.levels, outcome.estimates.chosen()
    assert levels is not None
    for row, response in enumerate(of.ground.data.response_ids):
        for k, criterion in enumerate(of.bundle.criteria):
            yield {
                "response_id": response,
                "criterion_id": criterion.id,
                "rater_id": rater,
                "rater_kind": "trained",
                "sample": 0,
                "bundle_id": of.bundle_id,
                "decision": int(chosen[row, k]),
                "stated": int(chosen[row, k]),
                "level_probabilities": levels[row, k, : criterion.top + 1].tolist(),
                "evidence": [],
                "action": "none",
            }


def grading_rows(of: ClassSet, outcome: TrainedArm, rater: str) -> Iterator[dict[str, Any]]:
    """The score of every response."""
    data, head = of.ground.data, outcome.head
    assert head is not None
    likely = head.probabilities(outcome.estimates.shares(data.concepts.tops))
    for row, response in enumerate(data.response_ids):
        grade = int(likely[row].argmax())
        yield {
            "response_id": response,
            "item_id": of.item_ids[row],
            "rater_id": rater,
            "rater_kind": "trained",
            "sample": 0,
            "bundle_id": of.bundle_id,
            "score": float(data.scores[grade]),
            "trait_scores": {},
            "signals": {"grade_probability": float(likely[row, grade])},
            "confidence": float(likely[row, grade]),
            "status": "scored",
        }
