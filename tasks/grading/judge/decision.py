"""What a rater decides on one criterion, once it is verified."""

from __future__ import annotations

from typing import Any, NamedTuple

FAILED = {"demote": "demoted", "drop": "dropped", "count": "counted"}
"""What a protocol does with a level whose quotes fail → what became of it."""


class Decision(NamedTuple):
    """A verified decision. `level` is None with a `reason`; `evidence` are rows as the contract `Evidence` has them."""

    criterion_id: str
    level: int | None
    stated: int | None = None
    reason: str | None = None
    evidence: tuple[dict[str, Any], ...] = ()
    diagnostic: str = ""
    verified: bool | None = None
    action: str = "none"
