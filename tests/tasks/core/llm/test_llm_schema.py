"""The one form of JSON, and what is left of a schema where a server takes less."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.llm.schema import compact, form, plain, record, several, text

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
NAMES = ("minLength", "enum", "type", "a", "required", "maximum", "anyOf", "properties", "$ref")
"""Of members, some called as keywords are."""


def alternatives(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Records of the same members, of which one may say more than the other."""
    return st.builds(
        lambda name, low, member, least: {
            "anyOf": [
                record({name: {"type": "integer", "enum": [low]}, "b": several(member, 0, 2)}),
                record({name: {"type": "integer", "enum": [low + 1, low + 2]}, "b": several(member, least, 2)}),
            ]
        },
        st.sampled_from(NAMES),
        st.integers(0, 3),
        inner,
        st.integers(1, 2),
    )


SCHEMAS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.builds(text, st.integers(1, 5))
    | st.just({"type": "integer", "minimum": 0, "maximum": 2})
    | st.just({"type": "string", "enum": ["x", "y"]})
    | st.just({"anyOf": [text(3), {"type": "null"}]}),
    lambda inner: (
        st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=3).map(record)
        | st.builds(several, inner, st.just(0), st.integers(1, 3))
        | alternatives(inner)
    ),
    max_leaves=6,
)


def values_of(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """What keeps a schema."""
    if "anyOf" in schema:
        return st.one_of([values_of(kind) for kind in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "object":
            return st.fixed_dictionaries({name: values_of(of) for name, of in schema["properties"].items()})
        case "array":
            return st.lists(values_of(schema["items"]), min_size=schema["minItems"], max_size=schema["maxItems"])
        case "string":
            return st.text(min_size=schema["minLength"], max_size=schema["maxLength"])
        case "null":
            return st.none()
        case _:
            return st.integers(schema["minimum"], schema["maximum"])


def objects_in(schema: Any) -> list[dict[str, Any]]:
    """All schemas in a schema."""
    if "anyOf" in schema:
        return [schema, *(found for kind in schema["anyOf"] for found in objects_in(kind))]
    inside = list(schema.get("properties", {}).values()) + ([schema["items"]] if "items" in schema else [])
    return [schema, *(found for part in inside for found in objects_in(part))]


@settings(max_examples=20)
@given(VALUES)
def test_the_one_form_is_the_value_without_a_blank_outside_strings(value: Any) -> None:
    written = compact(value)
    assert json.loads(written) == value
    assert not re.search(r"\s", re.sub(r'"(?:[^"\\]|\\.)*"', "", written, flags=re.DOTALL))


@settings(max_examples=20)
@given(SCHEMAS.flatmap(lambda schema: st.tuples(st.just(schema), values_of(schema))))
def test_a_plain_schema_admits_all_that_the_schema_does(drawn: tuple[dict[str, Any], Any]) -> None:
    schema, value = drawn
    jsonschema.Draft202012Validator.check_schema(plain(schema))
    assert jsonschema.Draft202012Validator(schema).is_valid(value)
    assert jsonschema.Draft202012Validator(plain(schema)).is_valid(value)


@settings(max_examples=20)
@given(SCHEMAS)
def test_a_plain_schema_has_no_bounds_and_no_records_that_begin_alike(schema: dict[str, Any]) -> None:
    for part in objects_in(plain(schema)):
        assert not part.keys() & {"minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "pattern"}
        assert sum("properties" in kind for kind in part.get("anyOf", ())) < 2


@settings(max_examples=20)
@given(SCHEMAS)
def test_a_form_is_compact_and_names_every_member(schema: dict[str, Any]) -> None:
    shown = form(schema)
    assert not re.search(r"[:,] ", shown)
    for part in objects_in(schema):
        assert all(f"{compact(name)}:" in shown for name in part.get("properties", ()))


def test_a_form_names_all_of_many_members_and_shows_each_look_of_them() -> None:
    many = {f"c{n}": {"type": "null"} for n in range(10)} | {"score": {"type": "number"}}
    shown = [*(f'"c{n}":null' for n in range(8)), '"c8":...', '"c9":...', '"score":<number>']
    assert form(record(many)) == "{" + ",".join(shown) + "}"


def test_a_form_is_json_but_for_numbers_and_null() -> None:
    """What a small model copies from its prompt breaks off nowhere: no `or` stands between two values."""
    missed, covered = ({"status": {"type": "string", "enum": [status]}} for status in ("missed", "covered"))
    nothing = {"type": "string", "enum": [""]}
    claim = {"anyOf": [record({**missed, "quote": nothing}), record({**covered, "quote": text(9, "exact words")})]}
    shown = json.loads(form(record({f"{n}": claim for n in range(8)})))
    assert shown == {f"{n}": {"status": "<missed or covered>", "quote": "<exact words>"} for n in range(8)}
    assert json.loads(form({"type": "string", "enum": ["yes", "no"]})) == "<yes or no>"


def test_alternatives_that_look_the_same_are_shown_once() -> None:
    kinds = [record({"level": {"type": "integer", "enum": of}, "why": text(9, "words")}) for of in ([0], [1, 2])]
    assert form({"anyOf": kinds}) == '{"level":<number>,"why":"<words>"}'
    assert form({"anyOf": [text(9, "words"), {"type": "null"}]}) == '"<words>" or null'
