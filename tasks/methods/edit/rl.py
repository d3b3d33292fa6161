"""Reinforcement learning of the policy (section 2.3): GRPO with the distance-aware reward, DGPO, and Edit-RL.

Group advantages, the clipped objective and the KL penalty are TRL's. The reference of the penalty, of DGPO and of the
belief probe is the policy as it was when the training began: the model with its new adapter off.

DGPO, the token-level baseline of RL (Jin et al. 2026, arXiv 2605.03327): a rollout's advantage, shared out anew.

The paper's abstract gives the parts: no KL penalty; how far the policy is from the reference at a token, as a bounded
Hellinger distance; an entropy gate; a softmax over the tokens. The forms are those that public re-implementations
report: s_t = d_t · H_t^κ, w_t = T softmax(s_t / τ), A_t = w_t A, with τ (tau) = 0.5 and κ (kappa) = 1. They differ in
whether d is the distance or its square, and in how H is scaled. Ours: the square, and entropy over log |V|.

Rewards of Edit-RL: the distance-aware outcome and the belief-guided shaping (section 2.3, Eqs. 5-7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.contracts.settings.engine import Adapter
from rubricflow.tasks.core.contracts.settings.methods import Reinforcement
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.methods.edit.belief import beliefs, expected
from rubricflow.tasks.methods.edit.policy import Policy, Prompts
from rubricflow.tasks.methods.edit.rollout import Sample, read_mark
from rubricflow.tasks.methods.edit.tuning import (
    Tuned,
    borrowed_model,
    check_fits,
    claim,
    lora,
    quiet,
    settings,
    train,
)

TEMPERATURE = 0.5
"""τ, of the softmax over tokens."""
GATE = 1.0
"""κ, exponent of the entropy gate."""


def hellinger(policy: Tensor, reference: Tensor) -> Tensor:
    """d = 1 − Σ_v √(π(v) π_ref(v)), the squared Hellinger distance in [0, 1]; log-probabilities (…, V) to (…)."""
    return (1 - ((policy + reference) / 2).exp().sum(-1)).clamp(0, 1)


def entropy(policy: Tensor) -> Tensor:
    """H = −Σ_v π(v) log π(v) / log |V| in [0, 1]; log-probabilities (…, V) to (…)."""
    share: Tensor = torch.special.entr(policy.exp()).sum(-1) / math.log(policy.shape[-1])
    return share.clamp(0, 1)


def reallocate(hellinger: Tensor, entropy: Tensor, mask: Tensor, advantage: Tensor) -> Tensor:
    """A_t = w_t A, (B, T), of the rollouts' advantages (B,); the other inputs (B, T). The weights' mean over the tokens
    of a rollout is 1, and 0 stands outside the mask. Where the policy is the reference all are 1, which is GRPO."""
    real = mask.bool()
    scores = (hellinger * entropy**GATE / TEMPERATURE).masked_fill(~real, -torch.inf)
    shares = torch.softmax(scores, dim=-1).masked_fill(~real, 0.0)  # a row without tokens is NaN before the fill
    return shares * real.sum(-1, keepdim=True) * advantage[:, None]


Method = Literal["grpo", "dgpo", "edit"]
Look = Callable[[int, Policy], None]
"""Called with the updates made and the policy as it is now; it must not change it."""
_METRICS = {
    "reward": "reward",
    "rewards/outcome/mean": "outcome",
    "rewards/shaping/mean": "shaping",
    "frac_reward_zero_std": "equal_groups",
    "unmarked": "unmarked",
    "completions/mean_length": "length",
    "kl": "kl",
    "entropy": "entropy",
    "learning_rate": "learning_rate",
    "seconds": "seconds",
}
_CHUNK = 2**26
"""Probabilities (rollouts × tokens × vocabulary) held together for DGPO."""


def reinforce(
    policy: Policy,
    samples: Sequence[Sample],
    prompts: Prompts,
    plan: Reinforcement,
    adapter: Adapter,
    *,
    method: Method,
    seed: int,
    folder: Path,
    max_tokens: int,
    look: Look | None = None,
) -> Tuned:
    """A new adapter on the policy, trained on its own rollouts of the samples.

    method: grpo, Eq. 5; dgpo, Eq. 5 with token-level advantages and without the KL penalty; edit, Eqs. 5-7.
    max_tokens: longest rollout; one that does not end within it has no mark. look: called every `plan.look_every`
    updates and after the last, again where an interrupted training goes over them again.
    Same seed, same adapter, also after an interruption. The policy is as it was afterwards. InputError for no samples,
    a sample without gold mark, one too long for the policy's positions, and a folder of another training; BackendError
    for a policy with learned positions.
    """
    if not samples:
        raise InputError("there are no responses to train on", field="samples")
    # BackendError for a policy with an embedding for each place of a text: TRL reads batches padded on the left and
    # numbers the padding too, so that such a model would be trained on places which it is never asked about.
    places = getattr(policy.model.config, "max_position_embeddings", -1)
    words = policy.model.get_input_embeddings()
    for name, part in policy.model.named_modules():
        if isinstance(part, torch.nn.Embedding) and part is not words and 0 <= part.num_embeddings - places <= 2:
            raise BackendError(f"the policy '{policy.name}' has learned positions ({name}); RL needs rotary ones")
    prompt_ids = []
    for sample in samples:
        if sample.gold is None:
            raise InputError(f"response '{sample.response_id}' has no gold mark", field="gold")
        prompt_ids.append(policy.prompt_ids(prompts.grade(sample)))
        check_fits(policy, len(prompt_ids[-1]) + max_tokens, f"response '{sample.response_id}' with its rollout")
    plans = {"plan": plan.model_dump_json(), "adapter": adapter.model_dump_json(), "method": method}
    identity = {"policy": policy.name, "seed": seed, "max_tokens": max_tokens, "asked": prompt_ids}
    done = claim(folder, plans | identity | {"gold": [(sample.gold, sample.top) for sample in samples]})
    if done is not None:
        return done
    rewards = _Rewards(policy, samples, prompts, plan, prompt_ids, max_tokens)
    with quiet(), borrowed_model(policy):
        from transformers import TrainerCallback

        class Looks(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                step = state.global_step
                if look is None or (step % plan.look_every and step != plan.steps):
                    return
                training = policy.model.training
                policy.model.eval()
                with torch.random.fork_rng():  # what a look samples changes nothing in the training
                    look(step, policy)
                policy.model.train(training)

        trainer = _trainer(rewards, adapter, method, seed, folder)
        trainer.add_callback(Looks())
        return train(trainer, folder, _METRICS)


@dataclass
class _Rewards:
    """One training: what is asked, and the rewards of what is answered."""

    policy: Policy
    samples: Sequence[Sample]
    prompts: Prompts
    plan: Reinforcement
    prompt_ids: list[list[int]]
    """Token ids of every sample's prompt."""
    max_tokens: int
    adapted: Any = field(default=None)
    """The model under its adapter, once there is one."""

    def order(self, seed: int) -> list[str]:
        """The sample of every group in turn: whole permutations of all of them, as many as the updates need.

        Drawn at once, so that a training that goes on needs no sampler's state. The numbers are text because they
        stand where TRL expects a prompt.
        """
        rng = np.random.default_rng(seed)
        groups = self.plan.steps * self.plan.responses
        numbers: list[str] = []
        while len(numbers) < groups:
            numbers += map(str, rng.permutation(len(self.samples)))
        return numbers[:groups]

    def outcome(
        self, prompts: list[str], completions: list[str], completion_ids: list[list[int]], log_metric: Any, **_: Any
    ) -> list[float]:
        """Eq. 5."""
        samples = [self.samples[int(number)] for number in prompts]
        marks = []
        for sample, text, ids in zip(samples, completions, completion_ids, strict=True):
            ended = len(ids) < self.max_tokens or ids[-1] == self.policy.tokenizer.eos_token_id
            marks.append(read_mark(text, sample.top).mark if ended else None)
        log_metric("unmarked", marks.count(None) / len(marks))
        golds = [sample.gold or 0 for sample in samples]
        return list(outcomes(marks, golds, [sample.top for sample in samples]))

    def shaping(self, prompts: list[str], completions: list[str], **_: Any) -> list[float]:
        """Eq. 6, of what the policy as it began believes at the steps' boundaries; with or without a mark at the
        end."""
        cases = [(self.samples[int(number)], text) for number, text in zip(prompts, completions, strict=True)]
        with _adapter_off(self.adapted):
            believed = beliefs(self.policy, self.prompts, cases)
        tolerance, rewards = self.plan.tolerance, []
        for belief, (sample, _text) in zip(believed, cases, strict=True):
            rewards.append(shape(expected(belief), sample.gold or 0, sample.top, tolerance))
        return rewards


@contextmanager
def _adapter_off(adapted: Any) -> Iterator[None]:
    """The policy as it began: its adapter off, without dropout."""
    training = adapted.training
    adapted.eval()
    try:
        with adapted.disable_adapter():
            yield
    finally:
        adapted.train(training)


def _trainer(rewards: _Rewards, adapter: Adapter, method: Method, seed: int, folder: Path) -> Any:
    from datasets import Dataset  # type: ignore[import-untyped]
    from trl.models.utils import unwrap_model_for_generation
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    policy, plan = rewards.policy, rewards.plan

    class Trainer(GRPOTrainer):
        def _tokenize_prompts(self, prompts: list[str]) -> tuple[list[list[int]], None, Record]:
            return [rewards.prompt_ids[int(number)] for number in prompts], None, {}

        def _generate_single_turn(
            self, prompt_ids: list[list[int]], *_: Any, **__: Any
        ) -> tuple[list[list[int]], None]:
            """A group's prompt is read once; the library would read it for every rollout."""
            checkpoints: Any = self.args.gradient_checkpointing_kwargs
            unwrapped = unwrap_model_for_generation(
                self.model_wrapped, self.accelerator, gradient_checkpointing_kwargs=checkpoints
            )
            with unwrapped as model:
                return policy.continued(prompt_ids, plan.temperature, rewards.max_tokens, model), None

        def _generate_and_score_completions(self, inputs: Any) -> Record:
            batch: Record = super()._generate_and_score_completions(inputs)
            return batch | {"advantages": token_advantages(rewards, batch)} if method == "dgpo" else batch

    longest = max(map(len, rewards.prompt_ids)) + rewards.max_tokens
    # Eq. 7
    shaped = [(rewards.shaping, plan.shaping)] if method == "edit" else []
    functions, weights = zip((rewards.outcome, 1.0), *shaped, strict=True)
    arguments = GRPOConfig(
        **settings(policy, folder, batch=plan.group * plan.responses, longest=longest, seed=seed),
        reward_weights=list(weights),
        max_steps=plan.steps,
        learning_rate=plan.learning_rate,
        warmup_steps=plan.warmup,
        num_generations=plan.group,
        max_completion_length=rewards.max_tokens,
        temperature=plan.temperature,
        top_k=0,
        top_p=1.0,
        beta=0.0 if method == "dgpo" else plan.divergence,
        loss_type="grpo",
        importance_sampling_level="token",
        num_iterations=1,
        shuffle_dataset=False,
        use_vllm=False,
        save_steps=plan.save_every,
    )
    trainer = Trainer(
        model=policy.model,
        reward_funcs=list(functions),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": rewards.order(seed)}),
        processing_class=policy.tokenizer,
        peft_config=lora(policy, adapter),
    )
    rewards.adapted = trainer.model
    return trainer


@torch.no_grad()
def token_advantages(rewards: _Rewards, batch: Record) -> Tensor:
    """DGPO's advantages (B, T) of a generated batch, from the policy's and the reference's next-token distributions."""
    tokens = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    real = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    length = batch["completion_ids"].shape[1]
    size = max(1, _CHUNK // (length * rewards.policy.model.config.vocab_size))
    parts = []
    for start in range(0, len(tokens), size):
        batch_tokens = tokens[start : start + size]
        batch_real = real[start : start + size]
        asked = batch_tokens, batch_real, length, rewards.plan.temperature
        current = _distributions(rewards.adapted, *asked)
        with _adapter_off(rewards.adapted):
            initial = _distributions(rewards.adapted, *asked)
        parts.append(torch.stack([hellinger(current, initial), entropy(current)]))
    distances, entropies = torch.cat(parts, 1)
    return reallocate(distances, entropies, batch["completion_mask"], batch["advantages"])


def _distributions(model: Any, tokens: Tensor, real: Tensor, length: int, temperature: float) -> Tensor:
    """Log-probabilities (B, T, V) of the last T tokens' places."""
    logits = model(input_ids=tokens, attention_mask=real, logits_to_keep=length + 1).logits[:, :-1]
    return torch.log_softmax(logits.float() / temperature, -1)


def outcomes(marks: Sequence[int | None], golds: Sequence[int], tops: Sequence[int]) -> Floats:
    """r_out = max(0, 1 − |m − m*| / M_q) of n rollouts, (n,), in [0, 1] (Eq. 5); 0 where the mark cannot be read.

    marks: m, 0…top or None. golds: m*. tops: M_q, ≥ 1.

    >>> outcomes([3, None], [4, 0], [4, 4]).tolist()
    [0.75, 0.0]
    """
    read = np.array([np.nan if mark is None else mark for mark in marks], np.float64)
    reward = np.maximum(0.0, 1.0 - np.abs(read - np.asarray(golds, np.float64)) / np.asarray(tops, np.float64))
    return np.nan_to_num(reward, nan=0.0)


def shape(expected: Floats, gold: int, top: int, tolerance: float) -> float:
    """r_shape = −1/(M_q T) Σ_k max(0, |m̄_k − m*| − β_drift) over k = 1…T, in [−1, 0] (Eq. 6).

    expected: m̄, (T+1,) expected marks at the boundaries 0…T; the one before any step does not count.
    tolerance: β_drift ≥ 0, in marks. Exactly 0 where no boundary is further off, and for a rollout without steps.
    """
    if len(expected) == 1:
        return 0.0
    drift = np.maximum(0.0, np.abs(expected[1:] - gold) - tolerance)
    return -float(drift.mean()) / top if drift.any() else 0.0
