"""A fitted mapping as it is stored: everything needed to apply it later, and a hash that names it."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Literal

from pydantic import Field, ValidationError

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.study import Feature
from rubricflow.tasks.core.contracts.tables.calibration import CALIBRATION_FORMAT, CalibrationMethod, Refusal
from rubricflow.tasks.core.text.digest import text_digest
from rubricflow.tasks.grading.calibrate.alignment import Alignment, ScoreCurve
from rubricflow.tasks.grading.calibrate.release import ReleaseRule
from rubricflow.tasks.grading.calibrate.rows import UNIT
from rubricflow.tasks.grading.calibrate.spread import Spread
from rubricflow.tasks.grading.calibrate.stack import Stack

POOLED = "pooled"


class FoldFit(Frozen):
    """A cross-fitted mapping for labelled responses that it was fitted to: as fitted without them."""

    clusters: tuple[str, ...]
    """Their authors or, where not known, themselves, as `clusters` has them."""
    mapping: Stack | Alignment | ScoreCurve | None
    text_only: Stack | None
    spread: Spread


class ScaleMapping(Frozen):
    """A mapping of one rater's gradings to the human scale."""

    format: Literal[3] = CALIBRATION_FORMAT
    """Version of this content."""
    scope: str
    """The item it was fitted for, or 'pooled'."""
    bundle_id: str | None
    """The bundle of that item; null where pooled, whose features and scores are shares of each item's ranges."""
    rater_id: str
    """The rater whose gradings it maps."""
    method: CalibrationMethod
    """How scores are mapped."""
    reason: str
    """Why this method."""
    features: tuple[str, ...]
    """Names of the features that the mapping takes, in order."""
    left_out: tuple[str, ...]
    """Signals that the bundle names but no grading gives, or that cannot be pooled."""
    n: int
    """Number of labelled responses fitted on."""
    target: str
    """The human score fitted to."""
    mapping: Stack | Alignment | ScoreCurve | None
    """The fitted numbers; null for identity."""
    weight: float = Field(default=1.0, ge=0, le=1)
    """Of the mapped score; the raw one has the rest."""
    text_only: Stack | None
    """The baseline that takes the text without the judge; null where none could be fitted."""
    texts: tuple[Feature, ...]
    """What of the text the mapping or its baseline takes."""
    encoder: str | None = None
    """What encoded the texts, and how; null where nothing did, or an earlier version wrote this."""
    spread: Spread | None
    """How far human scores lie from the mapped ones; null where there were too few labels to tell."""
    rules: dict[str, ReleaseRule]
    """What may be released of each item that it was fitted for."""
    new: float | None
    """Largest risk released of another item, where pooled and promised for the whole set; null otherwise."""
    folds: tuple[FoldFit, ...] = ()
    """For the labels of a split that crosses, the fits without each fold; none otherwise."""

    @property
    def pooled(self) -> bool:
        """Whether it was fitted over several items."""
        return self.bundle_id is None

    def unit(self, scale: Scale) -> Scale:
        """The scale that an item's scores have inside the mapping: its own or, pooled, shares."""
        return UNIT if self.pooled else scale

    def rule(self, item_id: str, scale: Scale) -> ReleaseRule:
        """What may be released of an item; of one without a rule, levels seen on the same scale, and nothing where
        nothing of any item on that scale may be."""
        if item_id in self.rules:
            return self.rules[item_id]
        same_scale = [rule for rule in self.rules.values() if rule.scale == scale.bounds]
        levels = set[float]().union(*(rule.levels for rule in same_scale))
        why = {rule.refused for rule in same_scale}
        refused: Refusal | None = None if None in why or not why else why.pop() if len(why) == 1 else "no_promise"
        return ReleaseRule(
            scale=scale.bounds,
            levels=tuple(sorted(levels)),
            threshold=None if refused else self.new,
            refused=refused or ("no_promise" if self.new is None else None),
        )

    def without(self, fold: int) -> ScaleMapping:
        """As fitted without a fold; what may be released stays."""
        part = self.folds[fold]
        return self.model_copy(update={"mapping": part.mapping, "text_only": part.text_only, "spread": part.spread})

    @property
    def content(self) -> str:
        """Itself as JSON; every float is kept exactly."""
        return self.model_dump_json(exclude=None if self.folds else {"folds"})

    @cached_property
    def calibration_id(self) -> str:
        """SHA-256 of the content, 64 hex digits."""
        return text_digest(self.content)

    def row(self) -> dict[str, object]:
        shown = self.model_dump(include={"scope", "method", "reason", "weight", "features", "left_out", "n", "target"})
        return {"calibration_id": self.calibration_id, **shown, "content": self.content}


def read_calibration(content: str) -> ScaleMapping:
    """A calibration from its stored content; ContractError for another format or content that is none."""
    try:
        stored_format = json.loads(content).get("format")
        if stored_format != CALIBRATION_FORMAT:
            raise ContractError(
                f"calibration has format {stored_format}; this version reads format {CALIBRATION_FORMAT}"
            )
        return ScaleMapping.model_validate_json(content)
    except (ValidationError, ValueError, AttributeError) as error:
        raise ContractError(f"not the content of a calibration: {error}") from error
