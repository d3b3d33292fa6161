"""The judging contract as JSON Schema, generated from the bundle.

Two shapes: a checklist `{"decisions": {criterion: {"level", "evidence": [{"unit", "quote"}], "diagnostic"}}}`, in which every
criterion asked for stands exactly once, and a holistic score `{"score", "rationale"}`. Strings are bounded, so that a
model that is held to the schema ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.contracts.bundle import Bundle, Criterion

MAX_QUOTE = 400
MAX_QUOTES = 4
MAX_PROSE = 600
CHECKLIST_KEYS = frozenset({"decisions"})
HOLISTIC_KEYS = frozenset({"score"})

_EVIDENCE = {
    "type": "array",
    "maxItems": MAX_QUOTES,
    "items": {
        "type": "object",
        "properties": {
            "unit": {"type": "string", "pattern": "^[sp][1-9][0-9]{0,4}$"},
            "quote": {"type": "string", "minLength": 1, "maxLength": MAX_QUOTE},
        },
        "required": ["unit", "quote"],
        "additionalProperties": False,
    },
}


def checklist(criteria: Sequence[Criterion]) -> dict[str, Any]:
    """Schema of the decisions on these criteria, in their order."""
    return _object({"decisions": _object({criterion.id: _decision(criterion) for criterion in criteria})})


def holistic(bundle: Bundle) -> dict[str, Any]:
    """Schema of one score on the bundle's scale with its rationale."""
    low, high, step = bundle.scale.bounds
    kind = "integer" if all(float(x).is_integer() for x in (low, high, step)) else "number"
    return _object(
        {
            "rationale": {"type": "string", "maxLength": MAX_PROSE},
            "score": {"type": kind, "minimum": low, "maximum": high, "multipleOf": step},
        }
    )


def _decision(criterion: Criterion) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    if criterion.evidence != "none":
        properties["evidence"] = _EVIDENCE
    if criterion.evidence == "global_diagnostic":
        properties["diagnostic"] = {"type": "string", "maxLength": MAX_PROSE}
    # The level comes last, so that a model commits to its evidence before it decides.
    properties["level"] = {"type": "integer", "enum": list(range(len(criterion.levels)))}
    return _object(properties)


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
