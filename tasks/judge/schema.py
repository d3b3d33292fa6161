"""The judging contract as JSON Schema, generated from the bundle.

Shapes: a checklist `{"decisions": {criterion: {"evidence": [{"unit", "quote"}], "diagnostic", "level"}}}`, in which
every criterion asked for stands exactly once; in the same way answers `{"answers": {criterion: "yes" or "no"}}`,
components `{"components": {criterion: text or null}}` and traits `{"traits": {trait: {"evidence", "score"}}}`; and one
stated score `{"rationale", "score"}`. Strings are bounded, so that a model that is held to the schema ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tasks.contracts.bundle import Bundle, Criterion, Scale, Trait
from tasks.llm.schema import record

MAX_QUOTE = 400
MAX_QUOTES = 4
MAX_PROSE = 1_200
"""Characters; two long sentences take a third of it, so that only who rambles is cut."""
CHECKLIST_KEYS = frozenset({"decisions"})
HOLISTIC_KEYS = frozenset({"score"})
YES, NO = "yes", "no"

_PROSE = {"type": "string", "maxLength": MAX_PROSE}
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
    return record({"decisions": record({criterion.id: _decision(criterion) for criterion in criteria})})


def holistic(bundle: Bundle) -> dict[str, Any]:
    """Schema of one score on the bundle's scale with its rationale."""
    return stated(bundle.scale)


def stated(scale: Scale) -> dict[str, Any]:
    """Schema of one score on a scale with its rationale."""
    return record({"rationale": _PROSE, "score": _number(scale)})


def answers(criteria: Sequence[Criterion]) -> dict[str, Any]:
    """Schema of yes or no to each of these criteria."""
    answer = {"type": "string", "enum": [YES, NO]}
    return record({"answers": record({criterion.id: answer for criterion in criteria})})


def components(criteria: Sequence[Criterion]) -> dict[str, Any]:
    """Schema of what is found in a response for each of these criteria; null for nothing."""
    found = {"anyOf": [{"type": "string", "minLength": 1, "maxLength": MAX_QUOTE}, {"type": "null"}]}
    return record({"components": record({criterion.id: found for criterion in criteria})})


def traits(of: Sequence[Trait]) -> dict[str, Any]:
    """Schema of a score with its quotes for each of these traits."""
    return record({"traits": record({t.id: record({"evidence": _EVIDENCE, "score": _number(t)}) for t in of})})


def fields(criterion: Criterion) -> list[str]:
    """What a decision on a criterion holds, in order; the level last, so that a model decides after its evidence."""
    evidence = [] if criterion.evidence == "none" else ["evidence"]
    diagnostic = ["diagnostic"] if criterion.evidence == "global_diagnostic" else []
    return [*evidence, *diagnostic, "level"]


def _decision(criterion: Criterion) -> dict[str, Any]:
    level = {"type": "integer", "enum": list(range(len(criterion.levels)))}
    known = {"evidence": _EVIDENCE, "diagnostic": _PROSE, "level": level}
    return record({name: known[name] for name in fields(criterion)})


def _number(scale: Scale) -> dict[str, Any]:
    """A score on the steps of a scale."""
    if scale.step == 1 and scale.min.is_integer():
        return {"type": "integer", "minimum": scale.min, "maximum": scale.max}
    # `multipleOf` counts from 0 and not from the lowest score, and 0.3 is no multiple of 0.1 in floating point.
    return {"type": "number", "enum": [round(scale.min + scale.step * i, 12) for i in range(scale.levels)]}
