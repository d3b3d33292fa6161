"""The question once more as plain data, for answerers that read no prose."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from tasks.contracts.bundle import Bundle, Criterion, Trait
from tasks.contracts.protocols import PROTOCOLS
from tasks.llm.request import Same
from tasks.text.units import Unit


@dataclass(frozen=True)
class Question:
    """Which criteria of which bundle are to be decided about which response; no criteria means one holistic score."""

    bundle: Bundle
    criteria: tuple[Criterion, ...]
    text: str
    units: tuple[Unit, ...]
    item_id: str
    question: str
    context: str | None
    traits: tuple[Trait, ...] = ()
    """Traits to be scored by the judge."""
    part: str = "all"
    """Name of the part asked for."""
    role: str = "grade"
    """What the call is for."""
    shown: tuple[str, ...] = ()
    """What memory showed, see `Shown.sources`."""
    settled: Any = field(default=None, compare=False)
    """What earlier attempts settled, for a repair's check to carry over."""
    reference_answer: str | None = None
    """The model answer."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what an offline answer may depend on."""
        content = _opening(Same(self.criteria), Same(self.bundle), self.question).copy()
        content.update(f"{json.dumps(self.text)}]".encode())
        if PROTOCOLS[self.bundle.protocol.name].is_trained:  # no other answerer reads them as plain data
            content.update(json.dumps([self.reference_answer, self.context]).encode())
        return content.hexdigest()


@lru_cache(maxsize=1024)
def _opening(criteria: Same[tuple[Criterion, ...]], bundle: Same[Bundle], question: str) -> hashlib._Hash:
    """The hash of what all responses of an item share; the response's text ends it."""
    decided = _as_json(criteria.value) if criteria.value else bundle.value.bundle_id
    return hashlib.sha256(f"[{json.dumps(decided)}, {json.dumps(question)}, ".encode())


def _as_json(criteria: tuple[Criterion, ...]) -> str:
    """Of the weight an answer sees at most the sign: another weight asks nothing anew."""
    content = [c.model_dump(mode="json", exclude={"weight"}) | {"earns": c.weight >= 0} for c in criteria]
    return json.dumps(content, sort_keys=True)
