"""The pieces of a contract's JSON Schema: everything bounded, nothing else allowed.

And the one form of JSON in which prompts show a contract and engines hold a model to it: compact, without a blank
outside strings. A small model that is shown blanks which its grammar forbids ends lists where they should begin.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain
from typing import Any

JsonObject = Mapping[str, Any]
"""An object of JSON, to be read."""
JsonDict = dict[str, Any]
"""One that is made."""
_SHOWN = 8
"""Members of one shape that a form shows in full; of further ones it shows the names."""
BLANKS = ("\n" * 20, "\t" * 20, " \n" * 20, " " * 200)
"""Where a reply is cut: a weak model whose grammar lets blanks in may write nothing else to its end. The published API
takes four."""
_BOUNDS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "pattern"})


def text(longest: int, shown: str = "text") -> JsonDict:
    """Schema of a text that is not empty and ends. shown: what a form shows in its place."""
    return {"type": "string", "minLength": 1, "maxLength": longest, "description": shown}


def record(properties: JsonObject) -> JsonDict:
    """Schema of an object with exactly these keys."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def several(item: JsonObject, fewest: int, most: int) -> JsonDict:
    """Schema of a list."""
    return {"type": "array", "items": item, "minItems": fewest, "maxItems": most}


compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""A value as JSON in the one form."""


def form(schema: JsonObject, of_refs: Mapping[str, str] | None = None) -> str:
    """What keeps a schema, as a prompt shows it: compact JSON with placeholders, since a small model copies what it is
    shown. Every member is named; of many that look alike the first are shown in full.

    of_refs: placeholder of what stands under `$defs`, by name.
    """
    if "$ref" in schema:
        return f'"<{(of_refs or {})[schema["$ref"].rpartition("/")[2]]}>"'
    if "anyOf" in (schema := one_record(schema)):
        return " or ".join(dict.fromkeys(form(kind, of_refs) for kind in schema["anyOf"]))
    match schema.get("type"):
        case "object":
            members = list[str]()
            values = set[str]()
            for name, of in schema["properties"].items():
                value = form(of, of_refs)
                repeated = len(members) >= _SHOWN and value in values
                members.append(f"{compact(name)}:{'...' if repeated else value}")
                values.add(value)
            return f"{{{','.join(members)}}}"
        case "array":
            return f"[{','.join([form(schema['items'], of_refs)] * max(1, schema.get('minItems', 1)))}]"
        case "string" if "enum" in schema:
            return compact(f"<{' or '.join(schema['enum'])}>")
        case "string":
            return f'"<{schema["description"]}>"'
        case "null":
            return "null"
        case _:
            return "<number>"


def plain(schema: Any) -> Any:
    """A schema within what the strictest servers take: without bounds, and with one record in place of several that
    begin alike. It admits all that the schema does, and more: what it no longer says is left to the reply's reader."""
    if isinstance(schema, list):
        return [plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    # A dict under a bound's name is the schema of a member that is called so.
    parts = one_record(schema).items()
    return {name: plain(part) for name, part in parts if name not in _BOUNDS or isinstance(part, dict)}


def one_record(schema: JsonObject) -> JsonObject:
    """One record that admits all that several which begin alike do; another schema as it is."""
    kinds = schema.get("anyOf", ())
    if not kinds or not all("properties" in kind for kind in kinds):
        return schema
    merged = JsonDict()
    for name in kinds[0]["properties"]:
        members = [kind["properties"][name] for kind in kinds]  # all of one type
        joined = next((member for member in members if "enum" not in member), None)
        if joined is None:
            values = dict.fromkeys(chain.from_iterable(member["enum"] for member in members))
            joined = {**members[-1], "enum": list(values)}
        merged[name] = joined
    return record(merged)
