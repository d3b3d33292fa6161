"""A run's reports written anew."""

from __future__ import annotations

from pathlib import Path

from rubricflow.flows.recorder import gather
from rubricflow.flows.rollouts import CURVES
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.store.recorded import read_manifest
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.report.task import write_page
from rubricflow.tasks.methods.report.bottleneck.task import write_graders
from rubricflow.tasks.methods.report.edit.task import write_policies
from rubricflow.tasks.people.report.task import write_annotation
from rubricflow.tasks.rewards.report.reward.task import write_rewards
from rubricflow.tasks.rewards.report.training.task import write_training


def write_pages(run: Run) -> list[Path]:
    """Write anew every report of a finished run, or of a training under way; StoreError if there is none."""
    gather(run)
    if run.shards(CURVES):  # a training has no end that a manifest could be written at
        return [write_training(run)]
    read_manifest(run)
    writers = {
        ("evaluate", "all"): write_page,
        ("reward", "all"): write_rewards,
        ("compare", "all"): write_annotation,
        ("bottleneck", "people"): write_graders,
        ("edit", "worth"): write_policies,
    }
    done = [write for shard, write in writers.items() if run.done(*shard)]
    if not done:
        raise StoreError(f"run {run.run_id} has no report: nothing was graded, rewarded, annotated or trained in it")
    return [write(run) for write in done]
