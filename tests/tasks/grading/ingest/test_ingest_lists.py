"""Cells that hold lists: from JSON, Parquet and, as JSON, from CSV; and what is none, by its place."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.data import Source
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.store.source import read
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.canonical import items
from rubricflow.tasks.grading.ingest.columns import CellPlace, Chunk, cell_answers, cell_list, cell_texts, listed
from rubricflow.tasks.grading.ingest.task import ingest

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=8,
)


@given(st.lists(JSON), st.sampled_from([None, 2]), st.booleans())
def test_a_list_written_as_json_is_the_list(given_list: list[Any], indent: int | None, ascii_only: bool) -> None:
    cell = f" {json.dumps(given_list, indent=indent, ensure_ascii=ascii_only)}\n"
    assert cell_list(cell, CellPlace("f", 1, "c")) == cell_list(given_list, CellPlace("f", 1, "c")) == given_list


@pytest.mark.parametrize("cell", [None, "", "  ", float("nan")])
def test_an_empty_cell_is_no_list(cell: Any) -> None:
    assert cell_list(cell, CellPlace("f", 1, "c")) is None
    assert cell_texts(cell, CellPlace("f", 1, "c")) is None
    assert cell_answers(cell, CellPlace("f", 1, "c")) == []


@pytest.mark.parametrize(
    ("cell", "rule"),
    [
        ('["a", "b"', r"is no JSON list: Expecting ',' delimiter at character 10"),
        ("['a', 'b']", "is no JSON list: Expecting value at character 2"),
        ('["a"] and more', "is no JSON list: Extra data at character 7"),
        ("[NaN]", "is no JSON list: NaN is no JSON number"),
        ("[" * 100_000, "is no JSON list: "),
        ("a; b", r"is not a list .write \["),
        ('{"a": 1}', "is not a list"),
        (3, "is not a list"),
    ],
)
def test_what_is_no_list_is_named_by_its_place(cell: Any, rule: str) -> None:
    with pytest.raises(InputError, match=rule) as stop:
        cell_list(cell, CellPlace("items.csv", 4, "keys"))
    assert (stop.value.file, stop.value.row, stop.value.field) == ("items.csv", 4, "keys")


@pytest.mark.parametrize(
    ("element", "rule"),
    [
        (None, "is empty"),
        (True, "is neither a text nor an object with a 'text'"),
        (["a"], "is neither a text nor an object with a 'text'"),
        ({"idea": "a"}, "is empty"),
        ({"text": ["a"]}, "is neither a text nor an object with a 'text'"),
        (
            {"text": "a", "weight": 2},
            "has a weight, which a list of texts cannot keep .give the weights in key_weights",
        ),
    ],
)
def test_an_element_that_is_no_text_is_named_by_its_place(element: Any, rule: str) -> None:
    with pytest.raises(InputError, match=rule) as stop:
        cell_texts(json.dumps(["heat", element]), CellPlace("items.csv", 4, "keys"))
    assert stop.value.field == "keys.1"


@pytest.mark.parametrize(
    ("cell", "answers"),
    [
        ("Heat.", ["Heat."]),
        (["Heat.", " ", "Light."], ["Heat.", "Light."]),
        ('[{"text": "Heat.", "category": "BEST"}, {"text": "Light."}]', ["Heat.", "Light."]),
        ('["Heat."]', ["Heat."]),
        ("[1] says so.", ["[1] says so."]),
        ("[1, 2, 3]", ["[1, 2, 3]"]),
        ("[]", ["[]"]),
    ],
)
def test_model_answers_are_a_text_or_a_list(cell: Any, answers: list[str]) -> None:
    assert cell_answers(cell, CellPlace("f", 1, "c")) == answers


@pytest.mark.parametrize("cell", ['["Heat.", "Light."', "['Heat.']", '[{"answer": "Heat."}]', {"text": "Heat."}, b"x"])
def test_a_broken_list_of_model_answers_is_no_text(cell: Any) -> None:
    with pytest.raises(InputError, match=r"f, row 1, field 'c"):
        cell_answers(cell, CellPlace("f", 1, "c"))


COLUMNS = ("key_elements", "key_weights", "misconceptions", "criteria", "reference_answer")
SOURCE = Source(file="items", items={name: name for name in ("item_id", "question", *COLUMNS)})
ROWS: list[dict[str, Any]] = [
    {
        "item_id": "i",
        "question": "Why?",
        "key_elements": ["heat, light", 'a "quote"'],
        "key_weights": [1, 2.5],
        "misconceptions": ["cold"],
        "criteria": [{"id": "a", "text": "Names heat.", "weight": 1, "levels": ["no", "yes"]}],
        "reference_answer": ["Heat.", "Light."],
    }
]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_a_list_is_the_same_in_every_kind_of_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"items{ending}"
    frame = pd.DataFrame(ROWS)
    if ending in (".csv", ".tsv"):
        frame = frame.assign(**{name: frame[name].map(json.dumps) for name in COLUMNS})
        frame.to_csv(path, index=False, sep="\t" if ending == ".tsv" else ",")
    elif ending == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    ((_, item),) = items(Chunk(SOURCE, read(path)))
    told = ROWS[0] | {"context": None, "type": "item", "rubric_id": "i", "rubric_text": None}
    told["criteria"] = [told["criteria"][0] | {"parent": None}]
    assert item == told | {"reference_answer": "Heat.\nor: Light.", "reference_answers": ["Heat.", "Light."]}


def test_semeval_is_read_by_its_study_file_alone(tmp_path: Path) -> None:
    labels = ["correct", "incorrect", "contradictory"]
    told = [{"text": "The bulb lights.", "category": "BEST"}, {"text": "It is lit.", "category": "MINIMAL"}]
    rows = [
        {"answer_id": f"a{n}", "question_id": "q", "question": "Why?", "corpus": "beetle", "module": "M"}
        | {"reference_answers_json": json.dumps(told), "student_answer": "It is.", "label_3way": label}
        for n, label in enumerate(labels)
    ]
    (tmp_path / "semeval2013").mkdir()
    pd.DataFrame(rows).to_parquet(tmp_path / "semeval2013" / "answers_3way.parquet")
    study = load_study(Path(__file__).parents[4] / "data/studies/semeval2013.yaml")
    run = Warehouse.open(tmp_path / "house").run("r")
    data = ingest.fn(run, study, tmp_path)
    assert run.read(data.items)["reference_answers"].to_pylist() == [["The bulb lights.", "It is lit."]]
    assert run.read(data.gradings)["score"].to_pylist() == [2, 1, 0]


# Listed criteria: what a cell may hold, and each mistake by its place.


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
