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


def people_rows(responses: ClassSet) -> Iterator[dict[str, Any]]:
    """What one person is worth by another on the test split, and what a machine recorded is worth by the labels."""
    data = responses.ground.data
    persons = [name for name, kind in responses.kinds.items() if kind == "human"]
    for seed, (a, b) in enumerate(combinations(persons, 2)):
        for row in against(responses, _marked(responses, a), _marked(responses, b)):
            yield row | {"seed": seed, "note": f"{a} and {b}" + (f"; {row['note']}" if row["note"] else "")}
    machines = [name for name, kind in responses.kinds.items() if kind == "replayed"]
    for name in machines:
        for row in against(responses, (data.levels, data.grades), _marked(responses, name)):
            yield row | {"method": name}


def _marked(responses: ClassSet, rater: str) -> tuple[Ints, Ints]:
    """A rater's levels and grades as classes."""
    data, none = responses.ground.data, np.full(responses.ground.data.levels.shape, np.nan)
    levels = responses.marks.get(rater, none)
    scores = responses.scores.get(rater, np.full(len(levels), np.nan))
    grades = grades_of(scores, responses.bundle.scale, responses.ground.plan.bands)
    return np.where(np.isnan(levels), MISSING, levels).astype(np.int64), np.asarray(grades[: len(data.grades)])


def against(responses: ClassSet, a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> list[dict[str, Any]]:
    """What one is worth by the other on the test split: levels (n, K) and grades (n,) of each, MISSING for none."""
    data = responses.ground.data
    rows = data.rows("test")
    (levels_a, grades_a), (levels_b, grades_b) = a, b
    trials = human_rows(
        levels_a[rows],
        levels_b[rows],
        grades_a[rows],
        grades_b[rows],
        concepts=data.concepts,
        scores=data.scores,
        split="test",
    )
    return [row for row in trials if row["n"]]


def judgment_rows(responses: ClassSet, outcome: TrainedArm, rater: str) -> Iterator[dict[str, Any]]:
    """The level of every concept of every response, those that it learned from too."""
    levels, chosen = outcome.estimates.levels, outcome.estimates.chosen()
    assert levels is not None
    for row, response in enumerate(responses.ground.data.response_ids):
        for k, criterion in enumerate(responses.bundle.criteria):
            level = int(chosen[row, k])
            yield {
                "response_id": response,
                "criterion_id": criterion.id,
                "rater_id": rater,
                "rater_kind": "trained",
                "sample": 0,
                "bundle_id": responses.bundle_id,
                "decision": level,
                "stated": level,
                "level_probabilities": levels[row, k, : criterion.top + 1].tolist(),
                "evidence": [],
                "action": "none",
            }


def grading_rows(responses: ClassSet, outcome: TrainedArm, rater: str) -> Iterator[dict[str, Any]]:
    """The score of every response."""
    data, head = responses.ground.data, outcome.head
    assert head is not None
    likely = head.probabilities(outcome.estimates.shares(data.concepts.tops))
    for row, response in enumerate(data.response_ids):
        grade = int(likely[row].argmax())
        probability = float(likely[row, grade])
        yield {
            "response_id": response,
            "item_id": responses.item_ids[row],
            "rater_id": rater,
            "rater_kind": "trained",
            "sample": 0,
            "bundle_id": responses.bundle_id,
            "score": float(data.scores[grade]),
            "trait_scores": {},
            "signals": {"grade_probability": probability},
            "confidence": probability,
            "status": "scored",
        }
