"""What the reward report is made from, and what it shows: sections of tables, drawings and cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.contracts.settings.reward import Reward

EVERY_REWARD = ("aggregation", "reward", "low", "unscored")
"""What the report shows of the rewards of every aggregation."""


@dataclass(frozen=True)
class RewardView:
    """What the report is made from: Arrow tables with the columns of tasks/contracts/tables."""

    study: str
    run_id: str
    settings: Reward
    rewards: pa.Table
    """Of flat aggregation and GEAR."""
    every_reward: pa.Table
    """Of all aggregations; columns EVERY_REWARD."""
    retention: Mapping[str, float]
    """Relation → the factor that GEAR's rows say they were made with; empty without such rows."""
    edge_cases: pa.Table
    diagnostics: pa.Table
    graphs: pa.Table
    graph_nodes: pa.Table
    graph_edges: pa.Table
    retentions: pa.Table
    """Empty where nothing was learned."""
    questions: Mapping[str, str]
    """item_id → question, at least of the responses that `needs_texts` names."""
    texts: Mapping[str, str]
    """response_id → text, of the same."""
