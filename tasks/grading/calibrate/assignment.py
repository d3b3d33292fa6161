"""A pack of gradings as a worker gets it: everything by name and reference, nothing by value."""

from __future__ import annotations

from typing import NamedTuple

from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.study import Calibration
from rubricflow.tasks.core.store.warehouse import Run

STAGE = "calibrate"
FITTED = "fitted"
"""The shard that holds the mappings: by what is read of it every pack is predicted, whoever does it, and when."""


class PredictionAssignment(NamedTuple):
    """What predictions are made of; the same for every pack of a run."""

    run: Run
    plan: Calibration
    items: TableRef
    responses: TableRef
    gradings: TableRef
    """Those of one machine rater."""
    bundles: TableRef


class SentPrediction(NamedTuple):
    """An assignment on its way to workers."""

    assignment: PredictionAssignment
    code: str
    """Digest of the code that sends it: a worker of another version refuses it."""


class GradingPack(NamedTuple):
    """Gradings that are predicted and written together: neighbours in the order of item and response, with all of a
    response in one pack."""

    name: str
    """The shard that its predictions are."""
    rows: int
    first: tuple[str, str]
    """Item and response of the first grading."""
    last: tuple[str, str]
