"""How long a reply may be, from what it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tasks.contracts.settings.engine import ROOM, Sampling
from tasks.llm.request import Same

_CHARACTERS = 4
"""Of a text in English; a text as long as the contract admits then has room in most others."""
_NAME, _PLAIN = 8, 4
"""Tokens of a member's name with its marks, and of a number, a choice or a bracket."""


@lru_cache(maxsize=1024)
def sampling_for(sampling: Same[Sampling], schema: Same[Mapping[str, Any]], context: int | None) -> Sampling:
    """The sampling with room for what a contract asks for, where the study names none: `ROOM` at least, so that small
    requests stay what they were, and no more than half of the context where that is known."""
    how = sampling.value
    if how.max_tokens is not None:
        return how
    room = needed(schema.value)
    if context is not None:
        room = min(room, context // 2)
    return how.model_copy(update={"max_tokens": max(ROOM, room)})


def needed(schema: Mapping[str, Any]) -> int:
    """Tokens, roughly, of a full reply under a contract: texts of the longest admitted, one entry in every list."""
    kinds = schema.get("anyOf")
    if kinds:
        return max(needed(kind) for kind in kinds)
    if "properties" in schema:
        return _PLAIN + sum(_NAME + needed(member) for member in schema["properties"].values())
    if "items" in schema:
        return _PLAIN + needed(schema["items"])
    return _PLAIN + (0 if "enum" in schema else schema.get("maxLength", 0) // _CHARACTERS)
