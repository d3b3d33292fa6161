"""What the report of annotation is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa


@dataclass(frozen=True)
class AnnotationView:
    """Arrow tables with the columns of tasks/contracts/tables/people.py; any of them may be empty."""

    study: str
    run_id: str
    names: Mapping[str, str]
    """Criterion id → what people read, of every concept in the bundle's order."""
    agreements: pa.Table
    labels: pa.Table
    queue: pa.Table
    votes: pa.Table
    constructions: pa.Table
    counts: Mapping[str, int] = field(default_factory=dict)
    """What else was counted, in words → how many: shown as it is."""
