"""Schema, rules and documentation of every table come from its one model; conform keeps rows to it."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import annotated_types
import pyarrow as pa
import pytest
from pydantic import BaseModel, ValidationError

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import (
    VOLATILE,
    Row,
    TableRef,
    arrow_type,
    closed_words,
    columns,
    conform,
    expectations,
    lasting,
    schema,
)
from rubricflow.tasks.core.contracts.tables import BY_NAME, TABLES
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments

EVERY = pytest.mark.parametrize("row", TABLES, ids=lambda row: row.table)


def allows_none(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return allows_none(get_args(annotation)[0])
    return get_origin(annotation) in (Union, types.UnionType) and type(None) in get_args(annotation)


def rules(row: type[Row], kind: str) -> dict[tuple[str, ...], Any]:
    return {rule.columns: rule.value for rule in expectations(row) if rule.rule == kind}


def item(**changes: Any) -> dict[str, Any]:
    return {"item_id": "i", "question": "Why?", "key_elements": [], "type": "t", "rubric_id": "r"} | changes


@EVERY
def test_schema_has_the_models_columns_in_order(row: type[Row]) -> None:
    assert schema(row).names == list(row.model_fields)


@EVERY
def test_type_rules_name_the_schemas_types(row: type[Row]) -> None:
    assert rules(row, "type") == {(field.name,): str(field.type) for field in schema(row)}


@EVERY
def test_nullability_is_the_annotations(row: type[Row]) -> None:
    wanted = {name for name, field in row.model_fields.items() if allows_none(field.annotation)}
    assert {field.name for field in schema(row) if field.nullable} == wanted
    assert {name for (name,) in rules(row, "not_null")} == set(row.model_fields) - wanted


@EVERY
def test_an_empty_table_of_the_schema_survives_parquet_types(row: type[Row]) -> None:
    assert conform(row, []).schema.equals(schema(row), check_metadata=True)


@EVERY
def test_every_column_is_documented(row: type[Row]) -> None:
    documented = columns(row)
    assert [name for name, _, _, doc in documented if not doc.strip().endswith(".")] == []
    assert [entry[:3] for entry in documented] == [(f.name, str(f.type), f.nullable) for f in schema(row)]
    assert (row.__doc__ or "").strip()


@EVERY
def test_keys_and_references_point_to_columns(row: type[Row]) -> None:
    assert set(row.key) <= {field.name for field in schema(row) if not field.nullable}
    assert rules(row, "unique") == {row.key: None}
    for table, column in rules(row, "references").values():
        assert BY_NAME[table].key == (column,)


def test_enums_and_bounds_are_the_annotations() -> None:
    assert rules(Gradings, "in_set")[("status",)] == ("scored", "precheck", "unscored")
    assert ("unscored_reason",) in rules(Judgments, "in_set")
    assert rules(Gradings, "between") == {("sample",): (0, None), ("confidence",): (0.0, 1.0)}


def test_literals_within_rows_are_all_enums() -> None:
    for row in TABLES:
        literal = {
            n
            for n, f in row.model_fields.items()
            if "Literal[" in str(f.annotation) or (closed_words(f) and "list[" not in str(f.annotation))
        }
        assert {name for (name,) in rules(row, "in_set")} == literal


def test_volatile_columns_are_the_marked_ones() -> None:
    assert {
        row.table: left for row in TABLES if (left := [name for name in row.model_fields if name not in lasting(row)])
    } == {
        "attempts": ["cached_tokens", "written_tokens", "provider", "stored", "latency_s"],
        "models": ["seconds"],
        "rollouts": ["seconds"],
        "policies": ["seconds"],
    }
    assert VOLATILE in Attempts.model_fields["stored"].metadata


def test_a_bound_without_a_rule_is_refused() -> None:
    class Bounded(Row):
        table: ClassVar[str] = "bounded"
        key: ClassVar[tuple[str, ...]] = ("name",)
        name: Annotated[str, annotated_types.MinLen(3)]

    with pytest.raises(TypeError, match="'bounded', column 'name': no rule for MinLen"):
        expectations(Bounded)


@pytest.mark.parametrize("annotation", [int | str, set[str], object])
def test_an_annotation_without_an_arrow_type_is_refused(annotation: Any) -> None:
    with pytest.raises(TypeError):
        arrow_type(annotation)


def test_nested_models_become_structs() -> None:
    class Point(BaseModel):
        x: float
        kind: Literal["a", "b"] | None

    assert arrow_type(list[Point]) == pa.list_(pa.struct([("x", pa.float64()), ("kind", pa.string())]))


def test_conform_fills_what_may_be_null() -> None:
    assert conform(Items, [item()])["context"].to_pylist() == [None]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([item(), item(item_id="j", question=None)], "'items', column 'question': null.*'item_id': 'j'"),
        ([item(), {"item_id": "j"}], "'items', column 'question': null.*'item_id': 'j'"),
        ([item(), item(item_id="j", question=3)], "'items', column 'question': is not string"),
        ([item(), item(item_id="j", key_elements="x")], "'items', column 'key_elements': is not list"),
        ([item(item_id="j", question="\ud800")], "'items', column 'question': is not string"),
        ([item(), item(answer="x")], r"'items': columns \['answer'\]"),
    ],
)
def test_conform_names_table_and_column_and_the_first_key_without_a_value(
    records: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ContractError, match=message):
        conform(Items, records)


def test_conform_of_an_arrow_table_orders_and_casts_its_columns() -> None:
    table = conform(Items, [item()])
    names = table.column_names[::-1]
    large = pa.array(["r"], pa.large_string())
    turned = table.select(names).set_column(names.index("rubric_id"), "rubric_id", [large])
    assert conform(Items, turned).equals(table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop_columns(["type"]), r"columns \['type'\]"),
        (lambda t: t.append_column("more", [[1]]), r"columns \['more'\]"),
        (lambda t: t.append_column("type", [["t"]]), r"columns \['type'\]"),
        (lambda t: t.set_column(4, "key_elements", [["x"]]), "column 'key_elements': is not list"),
        (lambda t: t.set_column(5, "type", [pa.nulls(1, pa.string())]), "'type': null is not allowed.*'item_id': 'i'"),
    ],
)
def test_conform_refuses_another_arrow_table(change: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        conform(Items, change(conform(Items, [item()])))


def test_references_are_frozen_and_closed() -> None:
    ref = TableRef(table="items", stage="ingest", path="p", digest="d", rows=1)
    with pytest.raises(ValidationError):
        ref.rows = 2  # type: ignore[misc]
    with pytest.raises(ValidationError):
        TableRef(table="items", stage="ingest", path="p", digest="d", rows=1, more=1)  # type: ignore[call-arg]


# Every closed word of every table says something to people, in one place.


OTHER_TEXTS = ("recipes.py", "card.py", "study_text.py", "revision.py")
"""Phrases of a prompt that policies were trained under, measures of a card that is sealed with its grader: neither may
change with what people read elsewhere; comments of a drafted study, which are
about its keys; and what a revision did to a criterion, whose words happen to hold those of a smaller list."""
TASKS = Path(__file__).parents[4] / "tasks"


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A table's model and those within it."""
    yield model
    for field in model.model_fields.values():
        for part in parts(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from models(part)


def parts(annotation: Any) -> Iterator[Any]:
    """An annotation and everything in it."""
    yield annotation
    for part in get_args(annotation) if get_origin(annotation) is not Literal else ():
        yield from parts(part)


FIELDS = [field for row in TABLES for model in models(row) for field in model.model_fields.values()]
WORDS: list[Mapping[str, str]] = [words for field in FIELDS for words in closed_words(field)]


def test_every_closed_word_says_something_and_every_literal_has_words() -> None:
    assert all(says.strip() for words in WORDS for says in words.values())
    for field in FIELDS:
        for part in parts(field.annotation):
            if get_origin(part) is Literal:
                (words,) = closed_words(field)
                assert set(get_args(part)) < set(words)  # all of them: a text with the mapping says it


def texts(path: Path) -> Iterator[tuple[int, set[str]]]:
    """Line and keys of every mapping of words to texts that a file spells out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            says = [value.value for value in node.values if isinstance(value, ast.Constant)]
            if len(says) == len(node.values) and any(" " in str(text) and "<" not in str(text) for text in says):
                yield node.lineno, {key for key in keys if isinstance(key, str)}


def test_no_other_place_explains_closed_words() -> None:
    files = {path: path.read_text() for path in TASKS.rglob("*.py") if "contracts" not in path.parts}
    near = [path for path, text in files.items() if any(all(f'"{word}"' in text for word in words) for words in WORDS)]
    places = [(path.name, keys) for path in near for _, keys in texts(path)]
    assert {name for name, keys in places if any(keys >= set(words) for words in WORDS)} <= set(OTHER_TEXTS)
