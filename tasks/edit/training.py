"""An arm's training: supervised on its pool, or by reinforcement from its start; and the looks at the test split that
are taken on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tasks.contracts.errors import InputError
from tasks.contracts.settings.edit import STARTS, TUNED, Arm
from tasks.contracts.tables.arms import Learning, Policies
from tasks.contracts.tables.edit import Demonstrations, Revisions
from tasks.edit.compared import metric_rows
from tasks.edit.phases import curve_rows, demonstration_row, learning_row, pooled, revision_of
from tasks.edit.policy import Policy
from tasks.edit.pool import Demonstration, Pool
from tasks.edit.progress import TrainingProgress
from tasks.edit.rl import Method, reinforce
from tasks.edit.sft import fine_tune
from tasks.edit.shards import STAGE, Tables, of_arm, rows_of
from tasks.edit.tuning import Tuned
from tasks.edit.work import Work, attempts_of, written
from tasks.store.digest import file_digest

METHODS: dict[Arm, Method] = {"dgpo": "dgpo", "edit_rl": "edit", "edit_rl_on_base": "edit"}
"""Arms of RL that are more than GRPO."""
PolicyColumns = dict[str, Any]
"""What a row of `policies` says of a training."""


def train_arm(work: Work, arm: Arm, seed: int) -> None:
    """The arm's adapter, its pool, and what training logged."""
    shard = f"policy-{arm}-{seed}"
    if work.run.done(STAGE, shard):
        return
    row: PolicyColumns = {"arm": arm, "seed": seed, "start": None if arm == "base" else STARTS.get(arm, "base")}
    row |= {"path": None, "note": None, "parameters": 0, "updates": 0, "demonstrations": 0, "seconds": 0.0}
    columns, tables = _trained(work, arm, seed)
    row |= columns
    work.run.commit(STAGE, shard, {**tables, Policies: [row]})
    if arm != "base":
        done = f"{row['updates']:,} updates in {row['seconds']:.0f} s" if row["path"] else "not trained"
        print(f"edit: seed {seed}: {arm}: {done}" + (f": {row['note']}" if row["note"] else ""))


def _trained(work: Work, arm: Arm, seed: int) -> tuple[PolicyColumns, Tables]:
    if arm in TUNED:
        return _tuned(work, arm, seed)
    return _reinforced(work, arm, seed) if arm in STARTS else ({}, {})


def _tuned(work: Work, arm: Arm, seed: int) -> tuple[PolicyColumns, Tables]:
    """An arm of supervised fine-tuning."""
    try:
        pool = _pool(work, arm, seed)
    except InputError as empty:  # the other arms go on
        return {"note": empty.rule}, {}
    texts, plan = pool.demonstrations, work.plan
    print(f"edit: seed {seed}: {arm}: fine-tuning on {len(texts):,} texts")
    folder = work.folder(arm, seed)
    tuned = fine_tune(work.policy, _pairs(work, texts), plan.fine_tuning, plan.adapter, seed=seed, folder=folder)
    rows = [demonstration_row(arm, seed, text) for text in texts]
    columns = {"note": pool.note, "demonstrations": len(texts)} | _adapter_columns(work, tuned)
    return columns, {Demonstrations: rows, Learning: list(curve_rows(arm, seed, tuned))}


def _pool(work: Work, arm: Arm, seed: int) -> Pool:
    """The arm's pool; InputError where it is empty."""
    attempts = attempts_of(work, seed, work.cases.train)
    by_key = {(attempt.sample.response_id, attempt.number): attempt for attempt in attempts}
    rows = rows_of(work.run, Revisions, of_arm(arm, seed))
    revisions = [revision_of(row, by_key[row["response_id"], row["sample"]]) for row in rows]
    return pooled(arm, revisions, attempts, work.plan.revising.natural, seed)


def _pairs(work: Work, texts: Sequence[Demonstration]) -> list[tuple[str, str, bool]]:
    """(prompt, completion, whether it ends) of each text."""
    prompts = {sample.response_id: work.prompts.grade(sample) for sample in work.cases.train}
    return [(prompts[text.response_id], text.completion, text.ends) for text in texts]


def _reinforced(work: Work, arm: Arm, seed: int) -> tuple[PolicyColumns, Tables]:
    """An arm of RL."""
    adapters = work.adapters(STARTS[arm], seed)
    if adapters is None:
        return {"note": f"{STARTS[arm]}, which it begins with, was not trained"}, {}
    # Looked at after every update, to say how far it is; `_look` keeps to the study's number.
    plan = work.plan.reinforcement.model_copy(update={"look_every": 1})
    tuned = reinforce(
        work.policy_with(adapters),
        work.cases.train,
        work.prompts,
        plan,
        work.plan.adapter,
        method=METHODS.get(arm, "grpo"),
        seed=seed,
        folder=work.folder(arm, seed),
        max_tokens=work.plan.max_tokens,
        look=_look(work, arm, seed),
    )
    return _adapter_columns(work, tuned), {Learning: list(curve_rows(arm, seed, tuned))}


def _look(work: Work, arm: Arm, seed: int) -> Callable[[int, Policy], None]:
    """Says how far RL is, and looks at the test split now and then; the last look is the arm's test itself."""
    plan = work.plan.reinforcement
    progress = TrainingProgress(f"seed {seed}: {arm}: update", plan.steps)

    def look(step: int, policy: Policy) -> None:
        progress.reached(step)
        shard = f"look-{arm}-{seed}-{step:06d}"
        if step % plan.look_every or step == plan.steps or work.run.done(STAGE, shard):
            return
        rows = written(work, shard, arm, seed, policy, work.cases.test)
        points = [learning_row(row, step) for row in metric_rows({(arm, seed): rows}, 0, 0)]
        work.run.commit(STAGE, shard, {Learning: points})

    return look


def _adapter_columns(work: Work, tuned: Tuned) -> PolicyColumns:
    work.run.warehouse.share(tuned.adapter.parent)
    return {
        "path": tuned.adapter.relative_to(work.run.warehouse.root).as_posix(),
        "digest": file_digest(tuned.adapter / "adapter_model.safetensors"),
        "parameters": tuned.parameters,
        "updates": tuned.steps,
        "seconds": tuned.seconds,
    }
