"""An arm's training: supervised on its pool, or by reinforcement from its start; and the looks at the test split that
are taken on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tasks.contracts.errors import InputError
from tasks.contracts.settings.edit import STARTS, TUNED, Arm
from tasks.contracts.tables.arms import Learning, Policies
from tasks.contracts.tables.edit import Demonstrations, Revisions
from tasks.edit.comparison import metric_rows
from tasks.edit.phases import curve_rows, demonstration_row, learning_row, pooled, revision_of
from tasks.edit.policy import Policy
from tasks.edit.pool import Demonstration, Pool
from tasks.edit.progress import TrainingProgress
from tasks.edit.rl import Method, reinforce
from tasks.edit.sft import fine_tune
from tasks.edit.shards import STAGE, Tables, of_arm, rows_of
from tasks.edit.tuning import Tuned
from tasks.edit.workspace import Workspace, attempts_of, written
from tasks.store.digest import file_digest

METHODS: dict[Arm, Method] = {"dgpo": "dgpo", "edit_rl": "edit", "edit_rl_on_base": "edit"}
"""Arms of RL that are more than GRPO."""
PolicyColumns = dict[str, Any]
"""What a row of `policies` says of a training."""


def train_arm(workspace: Workspace, arm: Arm, seed: int) -> None:
    """The arm's adapter, its pool, and what training logged."""
    shard = f"policy-{arm}-{seed}"
    if workspace.run.done(STAGE, shard):
        return
    row: PolicyColumns = {"arm": arm, "seed": seed, "start": None if arm == "base" else STARTS.get(arm, "base")}
    row |= {"path": None, "note": None, "parameters": 0, "updates": 0, "demonstrations": 0, "seconds": 0.0}
    columns, tables = _trained(workspace, arm, seed)
    row |= columns
    workspace.run.commit(STAGE, shard, {**tables, Policies: [row]})
    if arm != "base":
        done = f"{row['updates']:,} updates in {row['seconds']:.0f} s" if row["path"] else "not trained"
        print(f"edit: seed {seed}: {arm}: {done}" + (f": {row['note']}" if row["note"] else ""))


def _trained(workspace: Workspace, arm: Arm, seed: int) -> tuple[PolicyColumns, Tables]:
    if arm in TUNED:
        return _tuned(workspace, arm, seed)
    return _reinforced(workspace, arm, seed) if arm in STARTS else ({}, {})


def _tuned(workspace: Workspace, arm: Arm, seed: int) -> tuple[PolicyColumns, Tables]:
    """An arm of supervised fine-tuning."""
    try:
        pool = _pool(workspace, arm, seed)
    except InputError as empty:  # the other arms go on
        return {"note": empty.rule}, {}
    texts, plan = pool.demonstrations, workspace.plan
    print(f"edit: seed {seed}: {arm}: fine-tuning on {len(texts):,} texts")
    folder = workspace.folder(arm, seed)
    tuned = fine_tune(
        workspace.policy, _pairs(workspace, texts), plan.fine_tuning, plan.adapter, seed=seed, folder=folder
    )
    rows = [demonstration_row(arm, seed, text) for text in texts]
    columns = {"note": pool.note, "demonstrations": len(texts)} | _adapter_columns(workspace, tuned)
    return columns, {Demonstrations: rows, Learning: list(curve_rows(arm, seed, tuned))}


def _pool(workspace: Workspace, arm: Arm, seed: int) -> Pool:
    """The arm's pool; InputError where it is empty."""
    attempts = attempts_of(workspace, seed, workspace.samples.train)
    by_key = {(attempt.sample.response_id, attempt.number): attempt for attempt in attempts}
    rows = rows_of(workspace.run, Revisions, of_arm(arm, seed))
    revisions = [revision_of(row, by_key[row["response_id"], row["sample"]]) for row in rows]
    return pooled(arm, revisions, attempts, workspace.plan.revising.natural, seed)


def _pairs(workspace: Workspace, texts: Sequence[Demonstration]) -> list[tuple[str, str, bool]]:
    """(prompt, completion, whether it ends) of each text."""
    prompts = {sample.response_id: workspace.prompts.grade(sample) for sample in workspace.samples.train}
    return [(prompts[text.response_id], text.completion, text.ends) for text in texts]


def _reinforced(workspace: Workspace, arm: Arm, seed: int) -> tuple[PolicyColumns, Tables]:
    """An arm of RL."""
    adapters = workspace.adapters(STARTS[arm], seed)
    if adapters is None:
        return {"note": f"{STARTS[arm]}, which it begins with, was not trained"}, {}
    # Looked at after every update, to say how far it is; `_look` keeps to the study's number.
    plan = workspace.plan.reinforcement.model_copy(update={"look_every": 1})
    tuned = reinforce(
        workspace.policy_with(adapters),
        workspace.samples.train,
        workspace.prompts,
        plan,
        workspace.plan.adapter,
        method=METHODS.get(arm, "grpo"),
        seed=seed,
        folder=workspace.folder(arm, seed),
        max_tokens=workspace.plan.max_tokens,
        look=_look(workspace, arm, seed),
    )
    return _adapter_columns(workspace, tuned), {Learning: list(curve_rows(arm, seed, tuned))}


def _look(workspace: Workspace, arm: Arm, seed: int) -> Callable[[int, Policy], None]:
    """Says how far RL is, and looks at the test split now and then; the last look is the arm's test itself."""
    plan = workspace.plan.reinforcement
    progress = TrainingProgress(f"seed {seed}: {arm}: update", plan.steps)

    def look(step: int, policy: Policy) -> None:
        progress.reached(step)
        shard = f"look-{arm}-{seed}-{step:06d}"
        if step % plan.look_every or step == plan.steps or workspace.run.done(STAGE, shard):
            return
        rows = written(workspace, shard, arm, seed, policy, workspace.samples.test)
        points = [learning_row(row, step) for row in metric_rows({(arm, seed): rows}, 0, 0)]
        workspace.run.commit(STAGE, shard, {Learning: points})

    return look


def _adapter_columns(workspace: Workspace, tuned: Tuned) -> PolicyColumns:
    workspace.run.warehouse.share(tuned.adapter.parent)
    return {
        "path": tuned.adapter.relative_to(workspace.run.warehouse.root).as_posix(),
        "digest": file_digest(tuned.adapter / "adapter_model.safetensors"),
        "parameters": tuned.parameters,
        "updates": tuned.steps,
        "seconds": tuned.seconds,
    }
