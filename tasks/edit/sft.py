"""Supervised fine-tuning of the policy on a pool of rollouts (section 2.2; appendix B): LoRA through TRL and PEFT."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.contracts.errors import InputError
from tasks.contracts.settings.adapter import Adapter
from tasks.contracts.settings.edit import FineTuning
from tasks.edit.policy import Policy
from tasks.edit.tuning import Tuned, claim, fits, lent, lora, quiet, settings, train

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
        return train(_trainer(policy, rows, plan, adapter, seed, folder), folder, _METRICS)


def _row(policy: Policy, prompt: str, completion: str, ends: bool) -> dict[str, list[int]]:
    """The tokens that the policy would read and write, with labels for what it would write."""
    prompt_ids = policy.prompt_ids(prompt)
    written = policy.ids(completion) + [policy.tokenizer.eos_token_id] * ends
    return {"input_ids": prompt_ids + written, "labels": [_UNSCORED] * len(prompt_ids) + written}


def _trainer(
    policy: Policy, rows: list[dict[str, list[int]]], plan: FineTuning, adapter: Adapter, seed: int, folder: Path
) -> Any:
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
    return SFTTrainer(
        model=policy.model,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=policy.tokenizer,
        peft_config=lora(policy, adapter),
    )
