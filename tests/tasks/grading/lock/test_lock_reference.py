"""Reference answers as points: lists, points in brackets, and as many as the question asks for."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.settings.study import Derived
from rubricflow.tasks.grading.lock.reference import OTHER, reference_points
from rubricflow.tasks.grading.lock.rubric import broken, derived
from rubricflow.tasks.grading.rubrics.findings import findings

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
