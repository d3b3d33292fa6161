"""What a seed's arms learn from: rollouts of the base policy on the train split, their signals, the steps that these
select, and revisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tasks.contracts.settings.edit import TUNED, Arm
from tasks.contracts.tables.edit import Revisions, Rollouts, Separations, Steps
from tasks.edit.belief import beliefs
from tasks.edit.grounding import supports
from tasks.edit.phases import SIGNALLED, chosen, is_wrong, revised, revision_row, selected, separated, step_rows
from tasks.edit.pool import repaired
from tasks.edit.rollout import Sample
from tasks.edit.shards import STAGE, Tables, chunks, in_chunks, of_arm, rows_of, sampling_seed, table_of
from tasks.edit.workspace import Workspace, attempts_of, written


def gather(workspace: Workspace, seed: int) -> None:
    """What is told of the base policy, as far as an arm of the plan learns from it."""
    arms = workspace.plan.arms_in_order()
    if any(arm in TUNED for arm in arms):
        _rollouts(workspace, seed)
    if any(arm in SIGNALLED for arm in arms):
        _signals(workspace, seed)
        _selection(workspace, seed)


def revise_for(workspace: Workspace, arm: Arm, seed: int) -> None:
    """Attempts to mend the wrong rollouts for the arm's pool, and what is believed along those that succeed."""

    def fill(shard: str, samples: Sequence[Sample]) -> Tables:
        return _revisions(workspace, arm, seed, shard, samples)

    label = f"seed {seed}: {arm}: revisions of responses"
    in_chunks(workspace.run, f"revisions-{arm}-{seed}", workspace.samples.train, fill, label)


def _rollouts(workspace: Workspace, seed: int) -> None:
    plan = workspace.plan.revising

    def fill(shard: str, samples: Sequence[Sample]) -> Tables:
        rollouts = written(
            workspace, shard, "base", seed, workspace.policy, samples, count=plan.rollouts, temperature=plan.temperature
        )
        return {Rollouts: rollouts}

    in_chunks(workspace.run, f"rollouts-{seed}", workspace.samples.train, fill, f"seed {seed}: rollouts", plan.rollouts)


def _signals(workspace: Workspace, seed: int) -> None:
    """What the base policy believes at every boundary of its rollouts, and what every step rests on."""

    def fill(_: str, samples: Sequence[Sample]) -> Tables:
        attempts = attempts_of(workspace, seed, samples)
        texts = [(attempt.sample, attempt.text) for attempt in attempts]
        believed = beliefs(workspace.policy, workspace.prompts, texts)
        rested = supports(workspace.policy, workspace.prompts, texts)
        rows: list[dict[str, Any]] = []
        for attempt, belief, support in zip(attempts, believed, rested, strict=True):
            rows += step_rows("base", seed, attempt, belief, support)
        return {Steps: rows}

    count = workspace.plan.revising.rollouts
    in_chunks(
        workspace.run, f"signals-{seed}", workspace.samples.train, fill, f"seed {seed}: signals of rollouts", count
    )


def _selection(workspace: Workspace, seed: int) -> None:
    """Adds to the signals what only all of them tell. That rests on columns which a shard has with and without it, so a
    kill between two shards does no harm."""
    run, train = workspace.run, workspace.samples.train
    if run.done(STAGE, f"selection-{seed}"):
        return
    wrong = [attempt for attempt in attempts_of(workspace, seed, train) if is_wrong(attempt)]
    keys = [(attempt.sample.response_id, attempt.number) for attempt in wrong]
    steps = selected(table_of(run, Steps, of_arm("base", seed)), keys, workspace.plan.revising)
    for shard, samples in chunks(f"signals-{seed}", train):
        in_shard = pc.is_in(steps["response_id"], pa.array([sample.response_id for sample in samples]))
        run.commit(STAGE, shard, {Steps: steps.filter(in_shard)})
    run.commit(STAGE, f"selection-{seed}", {Separations: _separations(workspace, seed, steps)})
    fates = steps["fate"].drop_null().value_counts().to_pylist()
    counts = ", ".join(f"{fate['counts']:,} {fate['values']}" for fate in fates) or "none"
    print(f"edit: seed {seed}: {len(wrong):,} rollouts are wrong; their steps: {counts}")


def _separations(workspace: Workspace, seed: int, steps: pa.Table) -> list[dict[str, Any]]:
    """How the signals tell kinds of steps apart, where the plan has a pattern for these."""
    if not workspace.plan.synthesis:
        return []
    rows = rows_of(workspace.run, Rollouts, of_arm("base", seed))
    texts = {(row["response_id"], row["sample"]): row["text"] for row in rows}
    return separated(steps, texts, workspace.plan.synthesis, seed)


def _revisions(workspace: Workspace, arm: Arm, seed: int, shard: str, samples: Sequence[Sample]) -> Tables:
    attempts = [attempt for attempt in attempts_of(workspace, seed, samples) if is_wrong(attempt)]
    steps = chosen(rows_of(workspace.run, Steps, of_arm("base", seed, samples))) if arm in SIGNALLED else {}
    revisions = revised(
        arm,
        attempts,
        steps,
        workspace.prompts,
        workspace.policy.write,
        workspace.plan.revising,
        max_tokens=workspace.plan.max_tokens,
        seed=sampling_seed(shard),
    )
    wrong = {(attempt.sample.response_id, attempt.number): attempt for attempt in attempts}
    texts = repaired(revisions) if arm != "int_sft" else []
    mended = [wrong[text.response_id, text.sample]._replace(text=text.completion) for text in texts]
    believed = beliefs(workspace.policy, workspace.prompts, [(attempt.sample, attempt.text) for attempt in mended])
    rows: list[dict[str, Any]] = []
    for attempt, belief in zip(mended, believed, strict=True):
        rows += step_rows(arm, seed, attempt, belief)
    return {Revisions: [revision_row(arm, seed, revision) for revision in revisions], Steps: rows}
