"""Every table of a run."""

from __future__ import annotations

from tasks.contracts.schema import Row
from tasks.contracts.tables.arms import ArmDifferences, ArmMetrics, Learning, Policies
from tasks.contracts.tables.bottleneck import ConceptLinks, Interventions, Models, Traces, Trials
from tasks.contracts.tables.calibration import Calibrations, Candidates, Predictions, ReleaseRules
from tasks.contracts.tables.checks import Checks, Quarantine
from tasks.contracts.tables.data import InputWarnings, Items, Responses, Units
from tasks.contracts.tables.edit import Demonstrations, Revisions, Rollouts, Separations, Steps
from tasks.contracts.tables.evaluation import Metrics, RaterEffects, Verdicts
from tasks.contracts.tables.graph import GraphEdges, GraphNodes, RubricGraphs
from tasks.contracts.tables.judging import Attempts, Gradings, Judgments, ShardInputs
from tasks.contracts.tables.people import (
    Agreements,
    Constructions,
    Labels,
    NextLabels,
    Notes,
    Queue,
    SettledScores,
    Votes,
)
from tasks.contracts.tables.reward import Diagnostics, EdgeCases, Retentions, Rewards
from tasks.contracts.tables.rubrics import Bundles, Rubrics
from tasks.contracts.tables.rules import RuleFaithfulness, RuleTests
from tasks.contracts.tables.training import HeldOutQuality, TrainedCriteria

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
