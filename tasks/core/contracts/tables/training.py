"""The tables that only the recording of a training has."""

from __future__ import annotations

from typing import Annotated, ClassVar

from annotated_types import Ge

from rubricflow.tasks.core.contracts.schema import Row


class HeldOutQuality(Row):
    """What one held-out item was worth at one evaluation of the policy that is trained."""

    table: ClassVar[str] = "held_out_quality"
    key: ClassVar[tuple[str, ...]] = ("step", "item_id")

    step: Annotated[int, Ge(0)]
    """The step of the training that the evaluation came after."""
    item_id: str
    """The held-out item, as whoever evaluates calls it."""
    quality: float
    """Higher is better; in whatever unit the training's own measure has."""


class TrainedCriteria(Row):
    """A criterion that rollouts of a training are rewarded by."""

    table: ClassVar[str] = "trained_criteria"
    key: ClassVar[tuple[str, ...]] = ("item_id", "criterion_id")

    item_id: str
    """The item."""
    criterion_id: str
    """Unique in its rubric."""
    text: str
    """What is looked for."""
    weight: float
    """Signed."""
