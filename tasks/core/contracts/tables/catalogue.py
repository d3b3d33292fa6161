"""Every table of a run."""

from __future__ import annotations

from rubricflow.tasks.core.contracts.schema import Row
from rubricflow.tasks.core.contracts.tables.bottleneck import ConceptLinks, Interventions, Models, Traces, Trials
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations, Candidates, Predictions, ReleaseRules
from rubricflow.tasks.core.contracts.tables.checks import Checks, Quarantine
from rubricflow.tasks.core.contracts.tables.data import InputWarnings, Items, Responses, Units
from rubricflow.tasks.core.contracts.tables.edit import (
    ArmDifferences,
    ArmMetrics,
    Demonstrations,
    Learning,
    Policies,
    Revisions,
    Rollouts,
    Separations,
    Steps,
)
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics, RaterEffects, Verdicts
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments, Prices, ShardInputs
from rubricflow.tasks.core.contracts.tables.people import (
    Agreements,
    Constructions,
    Labels,
    NextLabels,
    Notes,
    Queue,
    SettledScores,
    Votes,
)
from rubricflow.tasks.core.contracts.tables.reward import (
    Diagnostics,
    EdgeCases,
    HeldOutQuality,
    Retentions,
    Rewards,
    TrainedCriteria,
)
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, GraphEdges, GraphNodes, RubricGraphs, Rubrics
from rubricflow.tasks.core.contracts.tables.rules import RuleFaithfulness, RuleTests

TABLES: tuple[type[Row], ...] = (
    Items,
    Responses,
    Units,
    InputWarnings,
    Rubrics,
    Bundles,
    Judgments,
    Gradings,
    Attempts,
    Prices,
    ShardInputs,
    Calibrations,
    Candidates,
    ReleaseRules,
    Predictions,
    Metrics,
    Verdicts,
    RaterEffects,
    Checks,
    Quarantine,
    Votes,
    RubricGraphs,
    GraphNodes,
    GraphEdges,
    Rewards,
    EdgeCases,
    Retentions,
    Diagnostics,
    HeldOutQuality,
    TrainedCriteria,
    Queue,
    NextLabels,
    Labels,
    SettledScores,
    Notes,
    Agreements,
    Constructions,
    Models,
    Trials,
    Interventions,
    ConceptLinks,
    Traces,
    Rollouts,
    Steps,
    Separations,
    Revisions,
    Demonstrations,
    Policies,
    Learning,
    ArmMetrics,
    ArmDifferences,
    RuleTests,
    RuleFaithfulness,
)
BY_NAME: dict[str, type[Row]] = {row.table: row for row in TABLES}
