"""The question once more as plain data, for answerers that read no prose."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

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
    context: str | None

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what an offline answer may depend on."""
        asked = [criterion.model_dump(mode="json") for criterion in self.criteria] or self.bundle.bundle_id
        content = json.dumps([asked, self.text], ensure_ascii=True, sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()
