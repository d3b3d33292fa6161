"""What the report of trained arms is made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.contracts.settings.edit import Edit

Key = tuple[int, str, int]
"""A sampled rollout of the base policy: seed, response_id, sample."""


@dataclass(frozen=True)
class EditView:
    """What the report is made from: Arrow tables with the columns of tasks/contracts/tables/edit.py and
    tables/rules.py."""

    study: str
    run_id: str
    settings: Edit
    metrics: pa.Table
    """Table `arm_metrics`."""
    differences: pa.Table
    """Table `arm_differences`."""
    learning: pa.Table
    policies: pa.Table
    rollouts: pa.Table
    """Without its texts."""
    steps: pa.Table
    separations: pa.Table
    """Empty where the study does not tell kinds of steps apart."""
    revisions: pa.Table
    demonstrations: pa.Table
    faithfulness: pa.Table
    """Table `rule_faithfulness`; empty where the arms were not tested."""
    texts: Mapping[Key, str]
    """Rollout → its text, at least of those that `cases.needs_texts` names."""
