"""What the report of graders is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.contracts.settings.bottleneck import Bottleneck


@dataclass(frozen=True)
class BottleneckView:
    """What the report is made from: Arrow tables with the columns of tasks/contracts/tables/bottleneck.py."""

    study: str
    run_id: str
    settings: Bottleneck
    names: Mapping[str, str]
    """Criterion id → what people read, of every concept in the bundle's order."""
    trials: pa.Table
    models: pa.Table
    interventions: pa.Table
    links: pa.Table
    """Table `concept_links`."""
    traces: pa.Table
    texts: Mapping[str, str]
    """response_id → text, at least of the responses that `needs_texts` names."""
