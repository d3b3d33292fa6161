"""The question once more as plain data, for answerers that read no prose."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property, lru_cache

from tasks.contracts.bundle import Bundle, Criterion
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

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what an offline answer may depend on."""
        asked = _asked(self.criteria) if self.criteria else self.bundle.bundle_id
        content = json.dumps([asked, self.question, self.text], ensure_ascii=True)
        return hashlib.sha256(content.encode()).hexdigest()


@lru_cache(maxsize=1024)
def _asked(criteria: tuple[Criterion, ...]) -> str:
    """Of the weight an answer sees at most the sign: another weight asks nothing anew."""
    asked = [c.model_dump(mode="json", exclude={"weight"}) | {"earns": c.weight > 0} for c in criteria]
    return json.dumps(asked, sort_keys=True)
