"""An arm's training: supervised on its pool, or by reinforcement from its start; and the looks at the test split that
are taken on the way.

The course of a run: what is proved before hours go into it, and what every arm then goes through.

Supervised fine-tuning of the policy on a pool of rollouts (section 2.2; appendix B): LoRA through TRL and PEFT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.edit import STARTS, TUNED, Arm, FineTuning
from rubricflow.tasks.core.contracts.settings.engine import Adapter
from rubricflow.tasks.core.contracts.tables.edit import (
    Demonstrations,
    Learning,
    Policies,
    Revisions,
    Rollouts,
    Separations,
    Steps,
)
from rubricflow.tasks.core.store.files import file_digest
from rubricflow.tasks.methods.edit.belief import beliefs
from rubricflow.tasks.methods.edit.checklist import room
from rubricflow.tasks.methods.edit.grounding import supports
from rubricflow.tasks.methods.edit.measures import metric_rows
from rubricflow.tasks.methods.edit.phases import (
    SIGNALLED,
    Demonstration,
    Pool,
    chosen,
    curve_rows,
    demonstration_row,
    is_wrong,
    learning_row,
    pooled,
    repaired,
    revised,
    revision_of,
    revision_row,
    selected,
    separated,
    step_rows,
)
from rubricflow.tasks.methods.edit.policy import Policy
from rubricflow.tasks.methods.edit.rl import Method, reinforce
from rubricflow.tasks.methods.edit.rollout import Sample
from rubricflow.tasks.methods.edit.rule_edits import edits
from rubricflow.tasks.methods.edit.testing import measure
from rubricflow.tasks.methods.edit.tuning import Tuned, claim, fits, lent, lora, quiet, settings, train
from rubricflow.tasks.methods.edit.workspace import (
    STAGE,
    Tables,
    TrainingProgress,
    Workspace,
    attempts_of,
    chunks,
    in_chunks,
    of_arm,
    rows_of,
    sampling_seed,
    table_of,
    written,
)

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
        # An arm of supervised fine-tuning
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
    return _reinforced(workspace, arm, seed) if arm in STARTS else ({}, {})


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


def prove(workspace: Workspace) -> None:
    """Refuse at once what would fail after hours: InputError for a prompt that is longer than the policy reads, or a
    scheme that rule faithfulness cannot edit."""
    plan, samples = workspace.plan, workspace.samples
    revises = any(arm in TUNED for arm in plan.arms_in_order())
    for sample in (*samples.train, *samples.test):
        # The longest prompt is the reviser's: it holds a rollout and a checklist.
        added = 2 * plan.max_tokens + room(sample.scheme, plan.max_tokens) if revises else plan.max_tokens
        tokens = len(workspace.policy.prompt_ids(workspace.prompts.grade(sample))) + added
        fits(workspace.policy, tokens, f"response '{sample.response_id}' with its rollouts")
    if plan.faithfulness:
        for item_id in dict.fromkeys(sample.item_id for sample in samples.test):
            edits(samples.bundles[item_id])
    left_out = f", {samples.unlabelled:,} without a target score left out" if samples.unlabelled else ""
    print(f"edit: {len(samples.train):,} responses to train on{left_out}, {len(samples.test):,} to test on")


def go_through(workspace: Workspace, seed: int) -> None:
    """Train and measure every arm with a seed, each after its own start. Base is the same for all seeds but the
    sampling."""
    gather(workspace, seed)
    for arm in workspace.plan.arms_in_order():
        if arm in TUNED:
            revise_for(workspace, arm, seed)
        if arm != "base" or seed == workspace.plan.seeds[0]:
            train_arm(workspace, arm, seed)
            measure(workspace, arm, seed)


_METRICS = {"loss": "loss", "learning_rate": "learning_rate", "entropy": "entropy", "seconds": "seconds"}
_UNSCORED = -100
"""Label of a token that the loss leaves out."""


def fine_tune(
    policy: Policy,
    pairs: Sequence[tuple[str, str, bool]],
    plan: FineTuning,
    adapter: Adapter,
    *,
    seed: int,
    folder: Path,
) -> Tuned:
    """A new adapter on the policy: cross-entropy of the completions' tokens alone.

    pairs: (prompt, completion, whether the end token follows the completion). Same seed, same adapter, also after an
    interruption. The policy is as it was afterwards. InputError for an empty pool, for a pair longer than the policy
    has positions, and for a folder of another training; BackendError for a policy without linear layers.
    """
    if not pairs:
        raise InputError("the pool is empty: there is nothing to fine-tune on", field="pool")
    rows = [_row(policy, *pair) for pair in pairs]
    for number, row in enumerate(rows):
        fits(policy, len(row["input_ids"]), f"pair {number} of the pool")
    plans = {"plan": plan.model_dump_json(), "adapter": adapter.model_dump_json()}
    done = claim(folder, plans | {"policy": policy.name, "seed": seed, "rows": rows})
    if done is not None:
        return done
    with quiet(), lent(policy):
        from datasets import Dataset  # type: ignore[import-untyped]
        from trl.trainer.sft_config import SFTConfig
        from trl.trainer.sft_trainer import SFTTrainer

        steps = plan.epochs * -(-len(rows) // plan.batch_size)
        longest = max(len(row["input_ids"]) for row in rows)
        arguments = SFTConfig(
            **settings(policy, folder, batch=plan.batch_size, longest=longest, seed=seed),
            num_train_epochs=plan.epochs,
            learning_rate=plan.learning_rate,
            warmup_steps=plan.warmup,
            save_steps=max(1, steps // 5),
            max_length=None,
            dataset_kwargs={"skip_prepare_dataset": True},
        )
        trainer = SFTTrainer(
            model=policy.model,
            args=arguments,
            train_dataset=Dataset.from_list(rows),
            processing_class=policy.tokenizer,
            peft_config=lora(policy, adapter),
        )
        return train(trainer, folder, _METRICS)


def _row(policy: Policy, prompt: str, completion: str, ends: bool) -> dict[str, list[int]]:
    """The tokens that the policy would read and write, with labels for what it would write."""
    prompt_ids = policy.prompt_ids(prompt)
    written = policy.ids(completion) + [policy.tokenizer.eos_token_id] * ends
    return {"input_ids": prompt_ids + written, "labels": [_UNSCORED] * len(prompt_ids) + written}


# What a seed's arms learn from: rollouts of the base policy on the train split, their signals, the steps that these
# select, and revisions.


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
