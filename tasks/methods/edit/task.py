"""The entry point of edit: responses with target scores in; arms of a trained grader and what they are worth out."""

from __future__ import annotations

from pathlib import Path

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
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
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.rules import RuleFaithfulness, RuleTests
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.methods.edit.rollout import grading_samples
from rubricflow.tasks.methods.edit.training import go_through, prove, worth
from rubricflow.tasks.methods.edit.workspace import STAGE, Workspace

TABLES: tuple[type[Row], ...] = (Rollouts, Steps, Separations, Revisions, Demonstrations, Policies, Learning, Gradings)
TABLES += (RuleTests, RuleFaithfulness, ArmMetrics, ArmDifferences)
"""What edit writes; gradings are those of every arm on the test split."""


@task(task_run_name=named(STAGE))
def train(
    run: Run, study: Study, base: Path, items: TableRef, responses: TableRef, people: TableRef, bundles: TableRef
) -> tuple[TableRef, ...]:
    """Train and measure every arm of the study with every seed. What is finished is passed over, and a training goes on
    from its last checkpoint.

    people: gradings of the data. InputError for target scores that are no whole marks from 0, a train or test split
    without responses, a prompt longer than the policy reads, or schemes that rule faithfulness cannot edit;
    BackendError for a policy that cannot be loaded.
    """
    if not run.done(STAGE, "worth"):
        assert study.edit is not None  # or the flow would have refused the study
        run.commit(STAGE, "start", {row: [] for row in TABLES})
        target = target_scores(run.read(people), study.evaluation.target)
        gold = dict(zip(target["response_id"].to_pylist(), target["score"].to_pylist(), strict=True))
        rows = run.read(responses, ["response_id", "item_id", "text", "split"]).to_pylist()
        locked = unlocked(run.read(bundles).to_pylist())
        samples = grading_samples(rows, run.read(items).to_pylist(), locked, gold)
        workspace = Workspace(run, study.edit, base, samples)
        prove(workspace)
        for seed in study.edit.seeds:
            go_through(workspace, seed)
        run.commit(STAGE, "worth", worth(workspace, study.evaluation.draws, study.evaluation.seed))
    return tuple(run.ref(row, STAGE) for row in TABLES)
