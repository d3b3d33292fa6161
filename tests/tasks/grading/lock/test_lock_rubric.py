"""Rubrics: derived from what items carry, or written by a person, with mistakes named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rubricflow.tasks.core.contracts.bundle import Rubric, Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Derived, RubricSettings
from rubricflow.tasks.grading.lock.rubric import authored, derived, rubrics_of

SCALE = {"min": 0, "max": 5, "step": 0.5}
FROM_ANSWER = Derived.model_validate({"origin": "reference_answer", "scale": SCALE})
FROM_ELEMENTS = Derived.model_validate(
    {"origin": "key_elements", "scale": SCALE, "kind": "checklist", "evidence": "none"}
)


FROM_LIST = Derived.model_validate(
    {"origin": "criteria", "scale": SCALE, "kind": "criterion", "evidence": "none", "levels": ["not met", "met"]}
)


WORDS = ["no", "in part", "yes"]


def item(**changes: Any) -> dict[str, Any]:
    row = {"item_id": "i", "rubric_id": "r", "question": "Why?", "reference_answer": "Heat. Use e.g. light. 3.5 V."}
    return row | {"key_elements": [" heat ", "", "light"]} | changes


def criterion(name: str, **changes: Any) -> dict[str, Any]:
    return {"id": name, "trait": "t", "text": f"Names {name}."} | changes


def rubric(*criteria: dict[str, Any], **changes: Any) -> dict[str, Any]:
    traits = [{"id": "t", "name": "T", "min": 0, "max": 5}]
    return {"rubric_id": "r", "scale": {"min": 0, "max": 5}, "traits": traits, "criteria": list(criteria)} | changes


def anchored(*anchors: tuple[float, str]) -> list[dict[str, Any]]:
    return [rubric()["traits"][0] | {"anchors": [{"score": score, "text": text} for score, text in anchors]}]


def written(folder: Path, *rubrics: dict[str, Any]) -> Path:
    path = folder / "rubrics.yaml"
    path.write_text(yaml.safe_dump({"rubrics": list(rubrics)}))
    return path


def test_of_several_reference_answers_one_point_is_made_that_any_of_them_makes() -> None:
    answers = ["Heat moves.\nIt is\tfast.", "Particles move."]
    made = derived(item(reference_answer="\nor: ".join(answers), reference_answers=answers), FROM_ANSWER)
    assert [c.text for c in made.criteria] == ["Heat moves. It is fast. — or: Particles move."]
    assert made.text == "Heat moves.\nIt is\tfast.\nor: Particles move."


def test_sentences_of_the_reference_answer_become_gold_points() -> None:
    made = derived(item(), FROM_ANSWER)
    assert [c.text for c in made.criteria] == ["Heat", "Use e.g. light", "3.5 V"]
    assert [c.id for c in made.criteria] == ["P1", "P2", "P3"]
    assert {(c.kind, c.weight, c.top, c.evidence) for c in made.criteria} == {("gold_point", 1.0, 2, "local_quote")}
    assert (made.rubric_id, made.scale, made.text) == ("r", Scale.model_validate(SCALE), item()["reference_answer"])
    assert [trait.bounds for trait in made.traits] == [(0, 5, 0.5)]


def test_what_levels_earn_goes_to_the_points_that_have_these_levels() -> None:
    earns = (0.0, 0.75, 1.0)
    plan = FROM_ANSWER.model_copy(update={"earns": earns})
    assert {c.shares for c in derived(item(), plan).criteria} == {earns}
    choice = item(question="Name one of them.", reference_answer="One of the following:\n- heat\n- light")
    whole, *parts = derived(choice, plan).criteria
    assert whole.count is not None
    assert [part.shares for part in parts] == [(0, 1)] * 2
    own = FROM_LIST.model_copy(update={"levels": tuple(WORDS), "earns": earns})
    made = derived(item(criteria=[listed("a"), listed("b", levels=["no", "a bit", "yes"])]), own)
    assert [c.shares for c in made.criteria] == [earns, (0, 0.5, 1)]
    with pytest.raises(InputError, match="'P1' earns 0, 1: give a share"):
        derived(item(), FROM_ANSWER.model_copy(update={"levels": tuple(WORDS), "earns": (0, 1)}))


def listed(name: str, **changes: Any) -> dict[str, Any]:
    return {"id": name, "text": f"Names {name}.", "weight": 2.0, "levels": [], "parent": None} | changes


@pytest.mark.parametrize(
    ("plan", "row", "rule"),
    [
        (FROM_LIST, item(criteria=None), "item 'i' has no criteria to make a rubric of"),
        (FROM_LIST, item(criteria=[listed("a", levels=["met"])]), "'a' needs at least two levels"),
        (FROM_LIST, item(criteria=[listed("a", parent="a")]), "'a' refers to itself"),
        (FROM_ANSWER, item(reference_answer=None), "item 'i' has no reference answer"),
        (FROM_ANSWER, item(reference_answer=" \n"), "item 'i' has no reference answer"),
        (FROM_ELEMENTS, item(key_elements=[" "]), "item 'i' has no key elements"),
        (FROM_ANSWER.model_copy(update={"levels": ("yes",)}), item(), "'P1' needs at least two levels"),
        (FROM_ANSWER.model_copy(update={"levels": ("a", "A ")}), item(), "'P1' has overlapping levels"),
    ],
)
def test_an_item_that_carries_nothing_usable_is_named(plan: Derived, row: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        derived(row, plan)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (rubric(), "has no criterion"),
        (rubric(criterion("a"), traits=[]), "has no trait"),
        (rubric(criterion("a"), criterion("a")), "criterion id 'a' is given twice"),
        (rubric(criterion("a"), traits=rubric()["traits"] * 2), "trait id 't' is given twice"),
        (rubric(criterion("a", trait="u")), "criterion 'a' counts for an unknown trait 'u'"),
        (rubric(criterion("a", parent="z")), r"criterion 'a' refers to unknown criteria \['z'\]"),
        (rubric(criterion("a", excludes=["z"])), r"criterion 'a' refers to unknown criteria \['z'\]"),
        (rubric(criterion("a", parent="a")), "criterion 'a' refers to itself"),
        (rubric(criterion("a", parent="b"), criterion("b", parent="a")), "criterion 'a' descends from a circle"),
        (rubric(criterion("a", levels=["only"])), "criterion 'a' needs at least two levels"),
        (rubric(criterion("a", levels=["No ", "yes", "no"])), "criterion 'a' has overlapping levels"),
        (rubric(criterion("a", levels=WORDS, earns=[0, 0.75])), "criterion 'a' earns 0, 0.75: give a share"),
        (rubric(criterion("a", levels=WORDS, earns=[0, 0.75, 0.9])), "criterion 'a' earns 0, 0.75, 0.9: give"),
        (rubric(criterion("a", levels=WORDS, earns=[0.2, 0.75, 1])), "criterion 'a' earns 0.2, 0.75, 1: give"),
        (rubric(criterion("a", levels=WORDS, earns=[0, 1.5, 1])), "criterion 'a' earns 0, 1.5, 1: give"),
        (rubric(criterion("a", levels=WORDS, earns=[0, float("nan"), 1])), "criterion 'a' earns 0, nan, 1: give"),
        (
            rubric(criterion("a", levels=WORDS, earns=[0, 1, 1]), criterion("b", parent="a")),
            "criterion 'a' earns nothing by a level of its own",
        ),
        (
            rubric(criterion("a", count={"points": [0, 1]}), criterion("b", parent="a", levels=WORDS, earns=[0, 1, 1])),
            "criterion 'a' counts whether 'b' is met, which then earns nothing by its level",
        ),
        (rubric(criterion("a", weight=0)), "trait 't' has no criterion with another weight than 0"),
        (
            rubric(criterion("a", weight=0), criterion("b", parent="a")),
            "criterion 'a' has sub-points, whose points are parts of its weight, but weight 0",
        ),
        (
            rubric(criterion("a"), criterion("b", parent="a"), criterion("c", parent="a", weight=0)),
            "criterion 'c' is a sub-point with weight 0",
        ),
        (
            rubric(criterion("a"), criterion("b", parent="a", weight=-1), criterion("c")),
            "criterion 'a' can never be reached: all its sub-points count against it",
        ),
        (
            rubric(
                criterion("a"),
                criterion("b", parent="a", trait="u"),
                traits=[*rubric()["traits"], {"id": "u", "name": "U", "min": 0, "max": 1}],
            ),
            "criterion 'a' counts for another trait than its sub-point 'b'",
        ),
        (rubric(criterion("a", weight=float("inf"))), "criterion 'a' has a weight that is no finite number"),
        (rubric(criterion("a"), traits=anchored((1, "Weak"), (1, "Good"))), "trait 't' has overlapping anchors: two"),
        (rubric(criterion("a"), traits=anchored((1, "Weak"), (2, " weak"))), "trait 't' has overlapping anchors: two"),
        (
            rubric(criterion("a"), traits=[*rubric()["traits"], {"id": "u", "name": "U", "min": 0, "max": 1}]),
            "trait 'u' is derived",
        ),
    ],
)
def test_a_broken_rubric_names_file_rubric_and_rule(tmp_path: Path, broken: dict[str, Any], rule: str) -> None:
    path = written(tmp_path, broken)
    with pytest.raises(InputError, match=rf"rubrics\.yaml, line \d+, column \d+: rubric 'r': {rule}") as stop:
        authored(path)
    assert stop.value.file == path


@pytest.mark.parametrize(
    ("spoil", "at"),
    [
        (("levels: [no, yes]}\n      - {id: b", "levels: [no]}\n      - {id: b"), "- {id: a"),
        (("trait: t, text: Two", "trait: x, text: Two"), "- {id: b"),
        (("{id: b", "{id: a"), "- {id: a, trait: t, text: Two"),
        (("text: Two", "colour: red, text: Two"), "colour"),
        (("weight: 2", "weight: heavy"), "weight"),
        (("rubric_id: s", "rubric_id: r"), "rubric_id: r\n    scale: {min: 0, max: 2}"),
        (("max: 2}\n", "max: 0}\n"), "scale: {min: 0, max: 0}"),
    ],
)
def test_an_error_says_line_and_column(tmp_path: Path, spoil: tuple[str, str], at: str) -> None:
    text = """# Two rubrics.
rubrics:
  - rubric_id: r
    scale: {min: 0, max: 1}
    traits: [{id: t, name: T, min: 0, max: 1}]
    criteria:
      - {id: a, trait: t, text: One, levels: [no, yes]}
      - {id: b, trait: t, text: Two, levels: [no, yes], weight: 2}
  - rubric_id: s
    scale: {min: 0, max: 2}
    traits: [{id: t, name: T, min: 0, max: 2}]
    criteria: [{id: a, trait: t, text: One, levels: [no, yes]}]
"""
    assert spoil[0] in text
    path = tmp_path / "rubrics.yaml"
    path.write_text(text)
    assert list(authored(path)) == ["r", "s"]
    path.write_text(wrong := text.replace(*spoil, 1))
    with pytest.raises(InputError) as stop:
        authored(path)
    *before, line = wrong[: wrong.rindex(at) + (2 if at.startswith("- ") else 0)].split("\n")
    assert (stop.value.line, stop.value.column) == (len(before) + 1, len(line) + 1)
    assert f"rubrics.yaml, line {len(before) + 1}, column {len(line) + 1}" in str(stop.value)


def test_a_rubric_given_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rubric 'r' is given twice"):
        authored(written(tmp_path, rubric(criterion("a")), rubric(criterion("b"))))


def known() -> dict[str, Rubric]:
    return {"r": Rubric.model_validate(rubric(criterion("a")))}


def test_an_authored_rubric_goes_before_a_derived_one() -> None:
    found = rubrics_of(
        [item(), item(item_id="j", rubric_id="s")], known(), RubricSettings(file="f", derive=FROM_ANSWER)
    )
    assert [len(found[name].criteria) for name in ("r", "s")] == [1, 3]


def test_an_unknown_rubric_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"f\.yaml.*item 'j' names an unknown rubric 's' \(there are r\)"):
        rubrics_of([item(item_id="j", rubric_id="s")], known(), RubricSettings(file="f.yaml"))


def test_items_that_share_a_rubric_must_derive_the_same_one() -> None:
    plan = RubricSettings(derive=FROM_ANSWER)
    assert list(rubrics_of([item(), item(item_id="j")], {}, plan)) == ["r"]
    with pytest.raises(InputError, match="item 'j' shares rubric 'r' with another"):
        rubrics_of([item(), item(item_id="j", reference_answer="Cold.")], {}, plan)


@pytest.mark.parametrize(("step", "top", "levels"), [(1, 3.0, 4), (0.5, 3.0, 7), (0.5, 2.5, 6), (0.25, 0.5, 3)])
def test_an_items_own_scale_has_the_steps_that_are_asked_for(step: float, top: float, levels: int) -> None:
    weighted = item(key_elements=["Heat.", "Light."], key_weights=[top - 0.25, 0.25])
    scale = derived(weighted, Derived(origin="key_elements", step=step)).scale
    assert (scale.max, scale.step, scale.levels) == (top, step, levels)


@pytest.mark.parametrize(("step", "rule"), [(1, "no multiple of the step 1"), (0.4, "no multiple of the step 0.4")])
def test_marks_that_are_no_multiple_of_the_step_are_refused(step: float, rule: str) -> None:
    with pytest.raises(InputError, match=f"bears 2.5 marks, which is {rule}"):
        derived(item(key_elements=["Heat."], key_weights=[2.5]), Derived(origin="key_elements", step=step))
