"""Listed criteria: what a cell may hold, and each mistake by its place."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.grading.ingest.columns import CellPlace, listed

PLACE = CellPlace("f", 1, "criteria")


def one(**changes: Any) -> dict[str, Any]:
    return {"id": "a", "text": "Names heat.", "weight": 2} | changes


def test_a_criterion_is_read_with_what_it_leaves_out() -> None:
    found = listed([one(), one(id=7.0, weight="-1.5", levels=["no", "yes"], parent="a")], PLACE)
    assert found == [
        {"id": "a", "text": "Names heat.", "weight": 2, "levels": [], "parent": None},
        {"id": "7", "text": "Names heat.", "weight": -1.5, "levels": ["no", "yes"], "parent": "a"},
    ]


def test_nulls_of_a_typed_column_are_left_out_keys() -> None:
    assert listed([one(levels=None, parent=None)], PLACE) == listed([one()], PLACE)


def test_what_is_read_keeps_the_contract_of_items() -> None:
    item = {"item_id": "i", "question": "Why?", "key_elements": [], "type": "item", "rubric_id": "i"}
    row = item | {"criteria": listed([one(), one(id="b", parent="a", levels=["x", "y"])], PLACE)}
    assert conform(Items, [row]).to_pylist()[0]["criteria"] == row["criteria"]


@pytest.mark.parametrize("cell", [None, math.nan, " ", []])
def test_an_empty_cell_lists_nothing(cell: Any) -> None:
    assert listed(cell, PLACE) is None


@pytest.mark.parametrize(
    ("cell", "field", "rule"),
    [
        ("Names heat.", "criteria", "is not a list"),
        ({"a": one()}, "criteria", "is not a list"),
        ([one(), "Names heat."], "criteria.1", "is not an object"),
        ([one(points=3)], "criteria.0", "'points' is no key of a criterion; there are id, text, weight, levels"),
        ([{"text": "Names heat.", "weight": 1}], "criteria.0.id", "is empty"),
        ([{"id": "a", "weight": 1}], "criteria.0.text", "is empty"),
        ([{"id": "a", "text": "Names heat."}], "criteria.0.weight", "is empty"),
        ([one(text=" \n")], "criteria.0.text", "is empty"),
        ([one(text=["Names heat."])], "criteria.0.text", "is a list, not text"),
        ([one(id={"a": 1})], "criteria.0.id", "is an object, not text"),
        ([one(weight="much")], "criteria.0.weight", "'much' is not a finite number"),
        ([one(weight=math.inf)], "criteria.0.weight", "'inf' is not a finite number"),
        ([one(weight=True)], "criteria.0.weight", "'True' is not a finite number"),
        ([one(levels="no, yes")], "criteria.0.levels", "is not a list"),
        ([one(levels=[["no"], "yes"])], "criteria.0.levels", "is a list, not text"),
        ([one(levels=["no", " "])], "criteria.0.levels", "holds an empty level"),
        ([one(), one()], "criteria.1.id", "'a' is given twice"),
        ([one(), one(id="b", parent="c")], "criteria.1.parent", "'c' is not listed"),
    ],
)
def test_a_mistake_is_named_by_its_place(cell: Any, field: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule) as stop:
        listed(cell, CellPlace("items.jsonl", 4, "criteria"))
    assert (stop.value.file, stop.value.row, stop.value.field) == ("items.jsonl", 4, field)
