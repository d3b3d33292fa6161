"""Training an adapter: supervised fine-tuning on a pool of rollouts (section 2.2; appendix B), and what it shares with
RL: LoRA through TRL and PEFT, checkpoints to go on from, and what is left at the end.

A folder of a training holds plan.json (whose training it is), checkpoints/ while it runs, and at the end adapter/ and
done.json. A folder with done.json is read; without it the training goes on from its last whole checkpoint.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.contracts.settings.engine import Adapter
from rubricflow.tasks.core.contracts.settings.methods import FineTuning
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.text.digest import text_digest
from rubricflow.tasks.methods.edit.policy import Policy

Metrics = Mapping[str, str]
"""The library's name of a metric → ours."""
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_BATCH_LOGITS = {"cpu": 2**27, "cuda": 2**32}
"""Logits of one forward and backward pass, tokens times vocabulary; larger batches are accumulated. A vocabulary of
150,000 makes them by far the largest thing in memory: 2**27 are half a gigabyte, and there are several copies."""
_METRICS = {"loss": "loss", "learning_rate": "learning_rate", "entropy": "entropy", "seconds": "seconds"}
_UNSCORED = -100
"""Label of a token that the loss leaves out."""


@dataclass(frozen=True)
class Tuned:
    """A trained adapter."""

    adapter: Path
    """Folder of the LoRA weights, for `Policy.load`."""
    steps: int
    """Updates."""
    seconds: float
    """In updates, also those before an interruption."""
    parameters: int
    """Numbers trained."""
    history: tuple[tuple[int, str, float], ...]
    """(step, metric, value), steps from 1."""


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
    rows = []
    for number, (prompt, completion, ends) in enumerate(pairs):
        prompt_ids = policy.prompt_ids(prompt)
        written = policy.ids(completion) + [policy.tokenizer.eos_token_id] * ends
        rows.append({"input_ids": prompt_ids + written, "labels": [_UNSCORED] * len(prompt_ids) + written})
        check_fits(policy, len(prompt_ids) + len(written), f"pair {number} of the pool")
    plans = {"plan": plan.model_dump_json(), "adapter": adapter.model_dump_json()}
    done = claim(folder, plans | {"policy": policy.name, "seed": seed, "rows": rows})
    if done is not None:
        return done
    with quiet(), borrowed_model(policy):
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


def claim(folder: Path, identity: Fields) -> Tuned | None:
    """The training that a folder holds, if it is finished; InputError where the folder belongs to another one.

    identity: whatever the result depends on. A new folder is made and marked with it.
    """
    mark = folder / "plan.json"
    digest = text_digest(repr(sorted(identity.items())))
    if not mark.exists():
        write_atomically(mark, json.dumps({"sha256": digest}).encode())
    elif json.loads(mark.read_bytes()).get("sha256") != digest:
        raise InputError("the folder holds another training", file=folder, hint="remove it to train anew")
    done = folder / "done.json"
    if not done.exists():
        return None
    content = json.loads(done.read_bytes())
    history = tuple((int(step), str(metric), float(value)) for step, metric, value in content.pop("history"))
    return Tuned(adapter=folder / "adapter", history=history, **content)


def lora(policy: Policy, adapter: Adapter) -> Any:
    """The LoRA configuration: q, k, v, o, gate, up, down where the model has them (appendix B), else all linear layers.

    BackendError for a model without linear layers.
    """
    from peft import LoraConfig
    from transformers.pytorch_utils import Conv1D

    head = policy.model.get_output_embeddings()
    linear = {
        name.rpartition(".")[2]
        for name, module in policy.model.named_modules()
        if isinstance(module, torch.nn.Linear | Conv1D) and module is not head
    }
    if not linear:
        raise BackendError(f"the policy '{policy.name}' has no linear layers that an adapter could be put on")
    projections = sorted(linear.intersection(_PROJECTIONS))
    return LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,
        lora_dropout=adapter.dropout,
        target_modules=projections or "all-linear",
        task_type="CAUSAL_LM",
    )


def settings(policy: Policy, folder: Path, *, batch: int, longest: int, seed: int) -> Record:
    """Arguments that both trainers get; a batch that is too long for one pass is split evenly and accumulated.

    batch: sequences of an update. longest: tokens of the longest one.
    """
    on_gpu = policy.model.device.type == "cuda"
    most = _BATCH_LOGITS[policy.model.device.type] // (longest * policy.model.config.vocab_size)
    passes = next(n for n in range(1, batch + 1) if batch % n == 0 and (batch // n <= most or n == batch))
    return {
        "output_dir": str(folder / "checkpoints"),
        "per_device_train_batch_size": batch // passes,
        "gradient_accumulation_steps": passes,
        "gradient_checkpointing": on_gpu,
        "bf16": on_gpu or policy.rounds,
        "use_cpu": not on_gpu,
        "lr_scheduler_type": "cosine",
        "logging_steps": 1,
        "logging_first_step": True,
        "save_strategy": "steps",
        "save_total_limit": 1,
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": on_gpu,
        "seed": seed,
    }


def check_fits(policy: Policy, tokens: int, name: str) -> None:
    """InputError where a sequence has more tokens than the policy has positions for. name: of the sequence."""
    positions = getattr(policy.model.config, "max_position_embeddings", None)
    if positions is not None and tokens > positions:
        raise InputError(f"{name} has {tokens} tokens, and the policy has positions for {positions}")


@contextmanager
def borrowed_model(policy: Policy) -> Iterator[None]:
    """The policy's model is a trainer's within, and afterwards as it was, without adapter and without patches."""
    model = policy.model
    before = dict(vars(policy.model))
    try:
        yield
    finally:
        # Puts the layers back that an adapter has wrapped
        from peft.tuners.tuners_utils import BaseTunerLayer

        for name, layer in list(model.named_modules()):
            if isinstance(layer, BaseTunerLayer):
                parent, _, leaf = name.rpartition(".")
                setattr(model.get_submodule(parent), leaf, layer.get_base_layer())
        if model.is_gradient_checkpointing:
            model.gradient_checkpointing_disable()
            model.disable_input_require_grads()
        vars(model).clear()
        vars(model).update(before)
        model.eval()


def train(trainer: Any, folder: Path, metrics: Metrics) -> Tuned:
    """Trains to the end, from the last whole checkpoint if there is one, and leaves adapter/ and done.json."""
    from transformers import PrinterCallback, TrainerCallback

    class Stopwatch(TrainerCallback):
        """Puts the seconds of every update into the history, which is kept with the checkpoint."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            seconds = round(time.perf_counter() - self.began, 4)
            state.log_history.append({"step": state.global_step, "seconds": seconds})

    trainer.remove_callback(PrinterCallback)
    trainer.create_model_card = lambda *_, **__: None  # the library would write one with every checkpoint
    trainer.add_callback(Stopwatch())
    last = last_checkpoint(folder / "checkpoints")
    trainer.train(resume_from_checkpoint=None if last is None else str(last))
    trainer.model.save_pretrained(str(folder / "adapter"))
    rows = trainer.state.log_history
    history = []
    for row in rows:
        for library_name, name in metrics.items():
            if row.get(library_name) is not None:
                history.append((int(row["step"]), name, float(row[library_name])))
    learning = [parameter for parameter in trainer.model.parameters() if parameter.requires_grad]
    seconds = sum(row.get("seconds", 0.0) for row in rows)
    tuned = Tuned(
        adapter=folder / "adapter",
        steps=int(trainer.state.global_step),
        seconds=round(seconds, 3),
        parameters=sum(parameter.numel() for parameter in learning),
        history=tuple(history),
    )
    content = asdict(tuned)
    del content["adapter"]
    write_atomically(folder / "done.json", json.dumps(content).encode())
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return tuned


def last_checkpoint(folder: Path) -> Path | None:
    """The latest whole checkpoint: one whose state, written last, can be read. Half-written ones are left out."""
    for path in sorted(folder.glob("checkpoint-*"), key=lambda path: -int(path.name.rpartition("-")[2])):
        try:
            if json.loads((path / "trainer_state.json").read_bytes())["global_step"]:
                return path
        except (OSError, ValueError, KeyError):
            continue
    return None


@contextmanager
def quiet() -> Iterator[None]:
    """The libraries' bars and warnings off: our output shows our own lines only."""
    import datasets
    from transformers.utils import logging as library

    level, bars = library.get_verbosity(), datasets.are_progress_bars_disabled()
    library.set_verbosity(logging.ERROR)
    datasets.disable_progress_bars()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            library.set_verbosity(level)
            if not bars:
                datasets.enable_progress_bars()
