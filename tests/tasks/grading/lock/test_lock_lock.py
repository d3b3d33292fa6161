"""Locking and linting a rubric."""

from __future__ import annotations

from typing import Any

import pytest

from rubricflow.tasks.core.contracts.bundle import Protocol, Rubric
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.grading.lock.bundles import lock, untyped
from rubricflow.tasks.grading.lock.lint import lint

TRAIT = {"id": "t", "name": "T", "min": 0, "max": 3}


def rubric(*criteria: dict[str, Any], traits: tuple[dict[str, Any], ...] = (TRAIT,), top: float = 3) -> Rubric:
    given = criteria or ({"text": "Names heat."},)
    made = [{"id": f"c{n}", "trait": "t"} | criterion for n, criterion in enumerate(given)]
    content = {"rubric_id": "r", "title": "R", "text": "x", "scale": {"min": 0, "max": top}}
    return Rubric.model_validate(content | {"traits": traits, "criteria": made})


def protocol(name: str = "rulers", final_score: str = "trait_mean") -> Protocol:
    return Protocol.model_validate({"name": name, "final_score": final_score, "signals": ["length"]})


def test_a_bundle_holds_the_rubric_and_the_protocol() -> None:
    bundle = lock(rubric(), protocol())
    assert bundle.model_dump() == {"protocol": protocol().model_dump(), "composites": ()} | {
        name: value for name, value in rubric().model_dump().items() if name not in ("rubric_id", "title", "notes")
    }


def test_scoring_notes_are_locked_after_the_text() -> None:
    noted = rubric().model_copy(update={"notes": ("A list counts.", "A name alone does not.")})
    assert lock(noted, protocol()).text == "x\n\nScoring notes:\n- A list counts.\n- A name alone does not."


PARTED = (
    {"id": "A", "text": "Names causes.", "weight": 4},
    {"id": "A1", "text": "Names heat.", "weight": 3, "parent": "A"},
    {"id": "A2", "text": "Names two lights.", "weight": 2, "parent": "A"},
    {"id": "A2a", "text": "Names a lamp.", "weight": 2, "parent": "A2"},
    {"id": "A2b", "text": "Takes a mirror for a lamp.", "weight": -1, "parent": "A2"},
    {"id": "B", "text": "Names sound."},
)


@pytest.mark.parametrize("name", ["rulers", "pointwise", "checkeval"])
def test_a_criterion_with_sub_points_is_made_of_them_and_not_decided(name: str) -> None:
    bundle = lock(rubric(*PARTED), protocol(name, "weighted_points"))
    assert [(c.id, c.parent) for c in bundle.criteria] == [("A1", "A"), ("A2a", "A2"), ("A2b", "A2"), ("B", None)]
    assert [(c.id, c.parent) for c in bundle.composites] == [("A", None), ("A2", "A")]
    assert [c.id for c in bundle.whole] == ["A", "B"]
    assert {c.levels for c in (*bundle.criteria, *bundle.composites)} == {
        ("no", "yes") if name == "checkeval" else ("absent", "present")
    }


def test_without_evidence_no_sub_point_demands_any() -> None:
    bundle = lock(rubric(*PARTED), protocol(), evidence="off")
    assert {c.evidence for c in (*bundle.criteria, *bundle.composites)} == {"none"}


def test_gradeagentops_takes_every_decided_criterion_for_a_point_of_its_own() -> None:
    bundle = lock(rubric(*PARTED), protocol("gradeagentops", "trait_mean"), ["technical"])
    assert [(c.id, c.parent, c.kind, c.weight) for c in bundle.criteria] == [
        ("A1", None, "gold_point", 3),
        ("A2a", None, "gold_point", 2),
        ("A2b", None, "misconception", -1),
        ("B", None, "gold_point", 1),
    ]
    assert (bundle.composites, bundle.whole) == ((), bundle.criteria)


def test_gradeagentops_takes_a_mere_condition_for_a_point_and_not_for_a_misconception() -> None:
    bundle = lock(
        rubric({"text": "Names heat."}, {"text": "Asks back.", "weight": 0}), protocol("gradeagentops"), ["technical"]
    )
    assert [c.kind for c in bundle.criteria] == ["gold_point", "gold_point"]


def test_the_name_and_title_do_not_change_the_id() -> None:
    other = rubric().model_copy(update={"rubric_id": "s", "title": "S"})
    assert lock(other, protocol()).bundle_id == lock(rubric(), protocol()).bundle_id


@pytest.mark.parametrize(
    ("name", "final_score", "more", "rule"),
    [
        (
            "rulers",
            "trait_mean",
            {"traits": (TRAIT | {"source": "judged"},)},
            "rubric 'r': trait 't' is scored by the judge",
        ),
        ("pointwise", "trait_mean", {"traits": (TRAIT | {"source": "judged"},)}, "rubric 'r': trait 't' is scored by"),
        ("rulers", "judged", {}, "'rulers' states no holistic score"),
        ("dhs", "weighted_points", {}, "'dhs' decides no criterion"),
        ("rulers", "trait_sum", {"top": 4}, "rubric 'r': its traits sum to 0..3, its scale is 0..4"),
    ],
)
def test_a_protocol_that_cannot_judge_the_rubric_is_refused(
    name: str, final_score: str, more: dict[str, Any], rule: str
) -> None:
    with pytest.raises(ContractError, match=rule):
        lock(rubric(**more), protocol(name, final_score))


def test_traits_of_fractions_sum_as_people_add() -> None:
    traits = tuple({"id": name, "name": name, "min": 0, "max": 0.1, "step": 0.1} for name in ("t", "u", "v"))
    made = rubric(traits=traits).model_copy(
        update={"scale": rubric().scale.model_copy(update={"max": 0.3, "step": 0.1})}
    )
    assert lock(made, protocol(final_score="trait_sum")).scale.max == 0.3


@pytest.mark.parametrize(
    ("criteria", "warnings"),
    [
        ([{"text": "Names heat."}], []),
        ([{"text": "Gives a good and relevant cause."}], ["c0: vague (good, relevant)"]),
        ([{"text": "Names heat as well as light."}], ["c0: double-barrelled; two demands in one criterion"]),
        ([{"text": "Names heat; names light"}], ["c0: double-barrelled; two demands in one criterion"]),
        ([{"text": "word " * 41}], ["c0: 41 words long"]),
        ([{"text": "Heat melts the ice."}, {"text": "The ice melts by heat."}],
         ["c0, c1: overlapping; 4 of 5 words are the same"]),
        ([{"text": "Names heat.", "weight": -1}],
         ["rubric: every criterion costs marks; the full score is where nothing is found"]),
        ([{"text": "!"}, {"text": "?"}], []),
        ([{"text": "Names heat."}, {"text": "Asks back.", "weight": 0}],
         ["c1: weight 0; it counts only as a condition of others"]),
        ([{"text": "Names heat.", "weight": 0}, {"text": "Shouts.", "weight": -1}],
         ["c0: weight 0; it counts only as a condition of others",
          "rubric: every criterion costs marks; the full score is where nothing is found"]),
        ([{"text": "Causes.", "weight": 3}, {"text": "Heat.", "weight": 2, "parent": "c0"},
          {"text": "Light.", "weight": 2, "parent": "c0"}, {"text": "Mirror.", "weight": -1, "parent": "c0"}],
         ["c0: its sub-points come to 4 of its 3 points"]),
        ([{"text": "Causes.", "weight": 3}, {"text": "Heat.", "weight": 2, "parent": "c0"},
          {"text": "Light.", "weight": 1, "parent": "c0"}], []),
        ([{"text": "Names heat."}, {"text": "Errs.", "weight": -3}, {"text": "Shouts.", "weight": -2, "parent": "c1"}],
         ["c1: its sub-points come to 2 of its 3 points"]),
    ],
)  # fmt: skip
def test_the_linter_warns_once_of_each(criteria: list[dict[str, Any]], warnings: list[str]) -> None:
    assert lint(rubric(*criteria)) == warnings


@pytest.mark.parametrize(
    ("types", "subscores"),
    [
        (["technical"], ["accuracy", "clarity", "completeness", "terminology"]),
        (["argumentative"], ["clarity", "coherence", "originality", "dialecticality"]),
        (["technical", "argumentative"], ["accuracy", "clarity", "completeness"]),
        (["Biology"], ["accuracy", "clarity", "completeness"]),
        ([""], ["accuracy", "clarity", "completeness"]),
    ],
)
def test_gradeagentops_scores_items_of_any_type(types: list[str], subscores: list[str]) -> None:
    bundle = lock(rubric(), protocol("gradeagentops"), types)
    assert [trait.id for trait in bundle.traits if trait.source == "judged"] == subscores
    assert len(untyped(bundle, types)) == (subscores == ["accuracy", "clarity", "completeness"])


def test_another_protocol_is_another_bundle() -> None:
    assert lock(rubric(), protocol("pointwise")).bundle_id != lock(rubric(), protocol()).bundle_id


@pytest.mark.parametrize(
    ("name", "final_score"), [("rulers", "trait_mean"), ("pointwise", "trait_sum"), ("dhs", "judged")]
)
def test_what_fits_is_locked(name: str, final_score: str) -> None:
    assert lock(rubric(), protocol(name, final_score)).protocol.name == name
