"""A fitted mapping as it is stored: everything needed to apply it later, and a hash that names it."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Literal

from pydantic import ValidationError

from tasks.calibrate.alignment import Alignment
from tasks.contracts.errors import ContractError
from tasks.contracts.table import Frozen

FORMAT: Literal[1] = 1
POOLED = "pooled"


class Calibration(Frozen):
    """A mapping of one rater's gradings to the human scale."""

    format: Literal[1] = FORMAT
    """Version of this content."""
    scope: str
    """The item it was fitted for, or 'pooled'."""
    bundle_id: str | None
    """The bundle of that item; null where pooled, whose features and scores are shares of each item's ranges."""
    rater_id: str
    """The rater whose gradings it maps."""
    method: Literal["rulers", "identity"]
    """rulers: phase III as published; identity: too few labels or no feature, the raw score is kept."""
    features: tuple[str, ...]
    """Names of the features, in order."""
    left_out: tuple[str, ...]
    """Signals that the bundle names but no grading gives, or that cannot be pooled."""
    n: int
    """Number of labelled responses fitted on."""
    target: str
    """The human score fitted to."""
    alignment: Alignment | None
    """The fitted numbers; null for identity."""

    @property
    def pooled(self) -> bool:
        """Whether it was fitted over several items."""
        return self.bundle_id is None

    @property
    def content(self) -> str:
        """Itself as JSON; every float is kept exactly."""
        return self.model_dump_json()

    @cached_property
    def calibration_id(self) -> str:
        """SHA-256 of the content, 64 hex digits."""
        return hashlib.sha256(self.content.encode()).hexdigest()

    def row(self) -> dict[str, object]:
        """Its row of table `calibrations`."""
        shown = self.model_dump(include={"scope", "method", "features", "left_out", "n", "target"})
        return {"calibration_id": self.calibration_id, **shown, "content": self.content}


def read_calibration(content: str) -> Calibration:
    """A calibration from its stored content; ContractError for another format or content that is none."""
    try:
        found = json.loads(content).get("format")
        if found != FORMAT:
            raise ContractError(f"calibration has format {found}; this version reads format {FORMAT}")
        return Calibration.model_validate_json(content)
    except (ValidationError, ValueError, AttributeError) as error:
        raise ContractError(f"not the content of a calibration: {error}") from error
