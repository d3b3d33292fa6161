"""How an LLM grader is trained by Edit (Edit, section 2 and appendix B), and which arms it is compared with."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from rubricflow.tasks.core.contracts.schema import AboveZero, Frozen, NonNegative, Positive, Share, left_out
from rubricflow.tasks.core.contracts.settings.engine import Adapter
from rubricflow.tasks.core.contracts.tables.edit import Arm

STARTS: dict[Arm, Arm] = {
    "grpo": "base",
    "dgpo": "base",
    "edit_rl_on_base": "base",
    "int_rl": "int_sft",
    "edit_rl": "edit_sft",
    "grpo_on_edit_sft": "edit_sft",
}
"""Arms of RL → the arm that they are initialised from."""
TUNED: tuple[Arm, ...] = ("int_sft", "edit_sft", "no_signals", "no_checklist", "no_locality")
"""Arms of supervised fine-tuning, all on base."""


class FineTuning(Frozen):
    """Supervised fine-tuning (appendix B)."""

    epochs: Positive = 2
    """Passes over the pool."""
    learning_rate: AboveZero = 2e-4
    """Peak; cosine schedule."""
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps in which the rate rises."""
    batch_size: Positive = 32
    """Rollouts per step; 8 for a small set."""


class Reinforcement(Frozen):
    """Group-relative RL. The paper gives the rate, schedule and batch of `FineTuning`; the rest is ours."""

    steps: Positive = 200
    """Policy updates."""
    learning_rate: AboveZero = 2e-4
    """Peak; cosine schedule."""
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps in which the rate rises."""
    group: int = Field(default=8, ge=2)
    """Rollouts of one response that are compared."""
    responses: Positive = 4
    """Responses per update; with `group` the batch is their product."""
    divergence: NonNegative = 0.02
    """Weight of the KL divergence from the policy that the arm began with."""
    tolerance: NonNegative = 0.5
    """β_drift (Eq. 6), in marks."""
    shaping: NonNegative = 0.5
    """γ_Φ (Eq. 7)."""
    temperature: AboveZero = 1.0
    """Of the rollouts."""
    save_every: Positive = 20
    """Updates between checkpoints; a killed run goes on from the last one."""
    look_every: Positive = 50
    """Updates between looks at the test split, for the learning curve; nothing is chosen by it."""


class Revising(Frozen):
    """How Edit-SFT finds and mends steps (section 2.2)."""

    rollouts: Positive = 4
    """Rollouts of the base policy for each training response."""
    temperature: AboveZero = 1.0
    """Of rollouts, revisions and continuations."""
    candidates: Positive = 3
    """k: steps taken of a rollout, the most negative change of belief first."""
    near_tie: NonNegative = 0.01
    """A change of belief above −near_tie (in marks) counts as a tie, and is left out."""
    weak_below: Share = 0.25
    """Quantile of all steps under which a grounding value counts as weak."""
    checklist: Literal["ids", "verbatim"] = left_out("ids")
    """How the checklist's lines name the marking points: by their ids; or verbatim, as in the paper (section 2.2)."""
    sub_steps: Positive = 3
    """Most sub-steps of a revision."""
    continuations: Positive = 4
    """N: continuations sampled of a revision; one that reaches the gold mark keeps it."""
    natural: Share = 0.5
    """Most of the pool that naturally correct rollouts make up."""


class Edit(Frozen):
    """The arms that a study trains and compares."""

    policy: str
    """Name or folder of a causal language model."""
    prompts: Literal["full", "compact"] = "full"
    """full: for language models; compact: for the laboratory's small decoder."""
    max_tokens: int = Field(default=512, ge=8)
    """Longest reply."""
    arithmetic: Literal["float32", "bfloat16"] = "float32"
    """In which a policy on a processor multiplies; bfloat16 takes about a third of the time and rounds, which moves a
    belief by hundredths. A GPU trains in bfloat16 whatever stands here."""
    arms: tuple[Arm, ...] = ("base", "grpo", "int_sft", "int_rl", "edit_sft", "edit_rl")
    """What is trained; what an arm is initialised from is trained with it."""
    seeds: tuple[int, ...] = Field(default=(0, 1, 2), min_length=1)
    """Seeds of rollouts, batches and adapters; each trains every arm."""
    adapter: Adapter = Adapter()
    """The LoRA recipe that all arms share (appendix B)."""
    revising: Revising = Revising()
    fine_tuning: FineTuning = FineTuning()
    reinforcement: Reinforcement = Reinforcement()
    synthesis: str | None = None
    """Pattern of the steps that put earlier ones together, found at a step's beginning; all other steps judge the
    answer against the scheme. With it the grounding audit is tried against the two kinds (appendix D); null where no
    pattern tells them apart."""
    faithfulness: bool = True
    """Whether every arm is also tested under the edited mark schemes (section 3.4)."""

    @field_validator("synthesis")
    @classmethod
    def _is_a_pattern(cls, pattern: str | None) -> str | None:
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"is no regular expression: {error}") from error
        return pattern

    @model_validator(mode="after")
    def _has_a_prompt(self) -> Edit:
        if self.revising.checklist == "verbatim" and self.prompts == "compact":
            raise ValueError("revising.checklist: verbatim needs prompts: full; the small decoder knows ids alone")
        return self

    def arms_in_order(self) -> tuple[Arm, ...]:
        """The arms with what they are initialised from, each after its own start."""
        ordered = []
        for arm in self.arms:
            start = STARTS.get(arm)
            ordered += [name for name in (start, arm) if name is not None and name not in ordered]
        return tuple(ordered)
