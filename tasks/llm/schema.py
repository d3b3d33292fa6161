"""The pieces of a contract's JSON Schema: everything bounded, nothing beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text(longest: int) -> dict[str, Any]:
    """Schema of a text that is not empty and ends."""
    return {"type": "string", "minLength": 1, "maxLength": longest}


def record(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Schema of an object with exactly these keys."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def several(item: Mapping[str, Any], fewest: int, most: int) -> dict[str, Any]:
    """Schema of a list."""
    return {"type": "array", "items": item, "minItems": fewest, "maxItems": most}
