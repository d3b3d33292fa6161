"""Locking and linting a rubric."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Protocol, Rubric
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.settings.study import Derived
from rubricflow.tasks.grading.lock.bundles import lock, untyped
from rubricflow.tasks.grading.lock.lint import lint
from rubricflow.tasks.grading.lock.reference import OTHER, reference_points
from rubricflow.tasks.grading.lock.rubric import broken, derived
from rubricflow.tasks.grading.rubrics.findings import findings

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
    assert len(untyped(bundle)) == (subscores == ["accuracy", "clarity", "completeness"])


# Reference answers as points: lists, points in brackets, and as many as the question asks for.


CAUSES = "Causes:\n- heat\n  is lost\n- rain\n- frost\n\nEffects:\n● cracks\n○ in walls\n● dust"


def told(answer: str, question: str = "Why?") -> list[str | tuple[int, str]]:
    """Texts of the points; with its choice, where a point belongs to one."""
    points, _ = reference_points(answer, question)
    return [point.text if point.of is None else (point.of, point.text) for point in points]


@pytest.mark.parametrize(
    ("answer", "points"),
    [
        ("Push and pop.", ["Push", "pop"]),
        ("Data members (attributes) and member functions", ["Data members (attributes)", "member functions"]),
        ("Bread and butter is eaten.", ["Bread and butter is eaten"]),
        ("It splits the list, and then it merges the halves.", ["It splits the list", "it merges the halves"]),
        ("A stack is last in, whereas a queue is first in.", ["A stack is last in", "a queue is first in"]),
        ("It is a tree. In other words, it has no cycle.", ["It is a tree — or: it has no cycle"]),
        ("See z.B. den Text.\nUse 3.5 V.", ["See z.B. den Text", "Use 3.5 V"]),
        ("1. One thing. It is long.\n2.Another", ["One thing. It is long", "Another"]),
        ("-5 degrees", ["-5 degrees"]),
        ("Note: nothing else counts.", ["Note: nothing else counts"]),
        ("Purpose:\nIt saves time.", ["Purpose: It saves time"]),
    ],
)
def test_statements_and_items_of_lists_are_points(answer: str, points: list[str]) -> None:
    assert told(answer) == points


def test_a_list_is_counted_by_what_the_question_asks_for() -> None:
    causes = [(0, "heat is lost"), (0, "rain"), (0, "frost")]
    assert told(CAUSES) == [*(f"Causes: {text}" for _, text in causes), "Effects: cracks in walls", "Effects: dust"]
    named = [*causes, (1, "cracks in walls"), (1, "dust"), (0, OTHER), (1, OTHER)]
    assert told(CAUSES, "Name two causes and one effect, in three sentences.")[:3] == causes
    assert told(CAUSES, "Name two causes and 2 effects.") == named
    points, choices = reference_points(CAUSES, "Name at least 4 of the reasons.")
    assert [(choice.most, choice.is_open) for choice in choices] == [(4, True)]
    assert {point.of for point in points} == {0}


def test_a_heading_closes_its_list() -> None:
    points, choices = reference_points(
        "It is cold.\nOne of the following suffices:\na) ice\nb) snow\nAnd it is dark.", ""
    )
    assert [(point.text, point.of) for point in points] == [
        ("It is cold", None),
        ("ice", 0),
        ("snow", 0),
        ("And it is dark", None),
    ]
    assert [(choice.most, choice.is_open) for choice in choices] == [(1, False)]


def test_points_in_brackets_are_the_weights_and_what_has_none_earns_none() -> None:
    answer = "Say who you are (0.25 P) at once and show the letter (0,5). It is polite. Stay (1 point) to the end."
    points, choices = reference_points(answer, "What do you do?")
    assert choices == []
    assert told("The p-value (0.03) is below the limit (0.05).") == ["The p-value (0.03) is below the limit (0.05)"]
    assert [(point.text, point.weight) for point in points] == [
        ("Say who you are at once", 0.25),
        ("show the letter", 0.5),
        ("Stay to the end", 1.0),
    ]


@given(
    st.text(st.sampled_from("ab1. :;,-●()\n\t") | st.characters(codec="utf-8"), max_size=60),
    st.sampled_from(["", "Name two a."]),
)
@example("two of the:\n", "")
@example("aa:\n- a\n- b\n- c", "Name two aa.")
def test_whatever_stands_there_the_rubric_can_be_locked(answer: str, question: str) -> None:
    item = {"item_id": "i", "rubric_id": "i", "question": question, "reference_answer": answer}
    points, choices = reference_points(answer, question)
    assert all(point.text for point in points)
    if points:
        plan = Derived.model_validate({"origin": "reference_answer", "scale": {"min": 0, "max": 5}})
        made = derived(item, plan)
        assert broken(made) is None
        assert not [found for found in findings(made) if found.rule == "middle_level"]
        assert {one.id for one in made.criteria if one.count} == {f"K{number}" for number in range(1, len(choices) + 1)}
