"""A rubric with sub-points, from its lock to features: every rater decides the sub-points, and code makes the rest."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from builders.cases import case

from rubricflow.tasks.core.contracts.bundle import Bundle, Rubric
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.prove import prove_bundle
from rubricflow.tasks.grading.judge.rater import rater
from rubricflow.tasks.grading.judge.rows import Case
from rubricflow.tasks.grading.judge.score import round_half_up
from rubricflow.tasks.grading.lock.bundles import lock

QUESTION = "What do plants need to grow?"
TEXTS = (
    "Plants need light for photosynthesis. They take up water through their roots. Soil is not necessary.",
    "They need light and the minerals of the soil.",
    "A plant grows best in the dark.",
)
LEVELS = ["absent", "in part", "present"]
CRITERIA: list[dict[str, Any]] = [
    {"id": "A", "text": "Names what plants take in", "weight": 4},
    {"id": "A1", "text": "Plants need light for photosynthesis", "weight": 3, "parent": "A"},
    {"id": "A2", "text": "Plants take up matter", "weight": 2, "parent": "A"},
    {"id": "A2a", "text": "Roots take up water", "weight": 2, "parent": "A2"},
    {"id": "A2b", "text": "Soil is necessary for plants", "weight": -1, "parent": "A2"},
    {"id": "B", "text": "Speaks of growth", "weight": 0},
    {"id": "C", "text": "Plants grow in the dark", "weight": -2},
]
PLANS = [
    {"protocol": "rulers"},
    {"protocol": "pointwise", "criteria_per_call": 2},
]
DECIDED = ["A1", "A2a", "A2b", "B", "C"]


def plan_of(**judge: Any) -> Judge:
    return Judge.model_validate({"final_score": "weighted_points", "echo": "allowed"} | judge)


def bundle_of(plan: Judge) -> Bundle:
    trait = {"id": "t", "name": "T", "min": 0, "max": 8}
    content = {"rubric_id": "r", "scale": {"min": 0, "max": 8}, "traits": [trait]}
    made = [{"trait": "t", "levels": LEVELS, "evidence": "weakly_groundable"} | one for one in CRITERIA]
    protocol = plan.as_protocol().model_copy(update={"echo": "allowed"})
    return lock(Rubric.model_validate(content | {"criteria": made}), protocol)


def cases(bundle: Bundle) -> list[Case]:
    return [case(bundle, text, f"r{n}", "i", question=QUESTION) for n, text in enumerate(TEXTS)]


def points(share: dict[str, float]) -> float:
    """The score of the rubric above, worked out by hand: 4 points at most, on a scale of 8."""
    inner = min(1, max(0, (2 * share["A2a"] - share["A2b"]) / 2))
    whole = min(1, max(0, (3 * share["A1"] + 2 * inner) / 4))
    return 8 * min(1, max(0, (4 * whole - 2 * share["C"]) / 4))


def tables_of(plan: Judge, who: Any) -> tuple[list[dict[str, Any]], pa.Table]:
    with ReplyStore(":memory:") as replies:
        found = grade_batch(cases(bundle_of(plan)), who(replies), replies).tables()
    return found[Judgments].to_pylist(), found[Gradings]


@pytest.mark.parametrize("judge", PLANS)
def test_the_embedded_rater_decides_sub_points_and_the_score_follows(judge: dict[str, Any], tmp_path: Any) -> None:
    plan = plan_of(**judge)
    judgments, gradings = tables_of(plan, lambda replies: rater(plan, tmp_path, replies))
    bundle = bundle_of(plan)
    assert [row["criterion_id"] for row in judgments] == DECIDED * len(TEXTS)
    top = {criterion.id: criterion.top for criterion in bundle.criteria}
    for row in gradings.to_pylist():
        mine = {j["criterion_id"]: j["decision"] for j in judgments if j["response_id"] == row["response_id"]}
        share = {name: level / top[name] for name, level in mine.items()}
        assert row["score"] == round_half_up(points(share), bundle.scale)
        assert dict(row["trait_scores"])["t"] == row["score"]
    assert len(set(gradings["score"].to_pylist())) > 1


@pytest.mark.parametrize("judge", PLANS)
def test_a_bundle_with_sub_points_can_be_proved(judge: dict[str, Any]) -> None:
    assert prove_bundle(bundle_of(plan_of(**judge)), QUESTION, None, TEXTS[0]) == []
