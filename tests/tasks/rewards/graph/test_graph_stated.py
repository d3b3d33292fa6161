"""What criteria state themselves: explicit references in a condition, and nothing else."""

from __future__ import annotations

import random

import pytest

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.rewards.graph.dependencies import stated_dependencies
from rubricflow.tasks.rewards.graph.subject import GraphSubject


def edges(*texts: str, ids: tuple[str, ...] = ("C1", "C2", "C3", "C10")) -> set[tuple[str, str]]:
    criteria = tuple(Criterion(id=name, trait="t", text=text) for name, text in zip(ids, texts, strict=False))
    found = stated_dependencies(GraphSubject("r", "Why?", None, criteria))
    assert {one.relation for one in found} <= {"activation"}
    return {one.pair for one in found}


@pytest.mark.parametrize(
    "text",
    [
        "If C1 is met, gives the unit.",
        "Gives the unit, but only if criterion 1 is met.",
        "Where criterion C1 holds, gives the unit.",
        "Gives the unit, provided that requirement 1 is satisfied.",
        "Falls Kriterium 1 erfüllt ist, nennt die Einheit.",
        "Se o critério 1 for atendido, dá a unidade.",
        "如果标准1满足，给出单位。",
        'Gives the unit when "C1" counts.',
        "Gives the unit; depends on criterion 1.",
    ],
)
def test_a_criterion_that_is_named_as_a_condition_licenses(text: str) -> None:
    assert edges("Names the gas.", "Gives a number.", text) == {("C1", "C3")}


@pytest.mark.parametrize(
    "text", ["If the criterion above is met, gives the unit.", "Se o critério anterior for atendido, x."]
)
def test_the_one_before_may_be_named_by_its_place(text: str) -> None:
    assert edges("Names the gas.", "Gives a number.", text) == {("C2", "C3")}
    assert edges(text, "Gives a number.") == set()


@pytest.mark.parametrize(
    "text",
    [
        "If C1 is not met, says so.",
        "Unless criterion 1 is met, gives the unit.",
        "If criterion 1 fails, gives the unit.",
        "Falls Kriterium 1 nicht erfüllt ist, nennt die Einheit.",
        "Says that C1 is a name. If it is warm, gives the unit.",
        "If C10H22 burns, names the products; this is met by CO2.",
        "If the gas is named, gives its unit.",
        "If C1 is dissolved, names the ions.",
        "As in criterion 1, names a gas.",
        "If it is warm, says so; criterion 1 is another matter.",
    ],
)
def test_what_is_denied_or_only_mentioned_licenses_nothing(text: str) -> None:
    assert edges("Names the gas.", "Gives a number.", text) == set()


def test_an_id_is_a_whole_word_and_a_plain_word_needs_quotes() -> None:
    several = edges("A.", "B.", "D.", "If C10, C2 and C1 are met, names C3.", ids=("C1", "C2", "C3", "C100"))
    assert several == {("C1", "C100"), ("C2", "C100")}
    ids = ("gas", "unit")
    assert edges("Names the gas.", "If the gas is met by water, gives the unit.", ids=ids) == set()
    assert edges("Names the gas.", "If 'gas' is met, gives the unit.", ids=ids) == {("gas", "unit")}


def test_numbers_are_ids_where_ids_are_numbers() -> None:
    assert edges("A.", "B.", "If requirement 1 is met, C.", ids=("0", "1", "2")) == {("1", "2")}


def test_any_text_is_read_in_time_linear_in_it() -> None:
    draw = random.Random(3)
    words = ["if", "criterion", "1", "C1", "not", ".", ",", "met", "when", "falls", "\n", "se", "如果", "标准"]
    text = " ".join(draw.choices(words, k=20_000))
    assert edges("A.", text) <= {("C1", "C2")}
