"""How the graders of two methods are trained, and what they are compared with: bottleneck graders (REC-CBM, section 4
and appendix D), and an LLM grader by Edit (Edit, section 2 and appendix B)."""

from __future__ import annotations

import re
from typing import Literal, get_args

from pydantic import Field, field_validator, model_validator

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.contracts.backends import BACKENDS, PromptedModel
from rubricflow.tasks.core.contracts.schema import AboveZero, Frozen, NonNegative, Positive, Share, left_out
from rubricflow.tasks.core.contracts.settings.engine import Adapter, EncoderTraining, Sampling
from rubricflow.tasks.core.contracts.tables.edit import Arm

Method = Literal[
    "rec_cbm",
    "no_race",
    "no_opcc",
    "no_lcec",
    "no_race_opcc",
    "no_race_lcec",
    "no_opcc_lcec",
    "no_race_opcc_lcec",
    "plm",
    "vanilla_cbm",
    "c3m",
    "ct_cbm",
    "cb_llm",
]
METHODS: Meanings = {
    "rec_cbm": "REC-CBM",
    "no_race": "REC-CBM − RACE",
    "no_opcc": "REC-CBM − OPCC",
    "no_lcec": "REC-CBM − LCEC",
    "no_race_opcc": "REC-CBM − RACE, OPCC",
    "no_race_lcec": "REC-CBM − RACE, LCEC",
    "no_opcc_lcec": "REC-CBM − OPCC, LCEC",
    "no_race_opcc_lcec": "REC-CBM − all three",
    "plm": "encoder alone (PLM)",
    "vanilla_cbm": "vanilla CBM",
    "c3m": "C³M",
    "ct_cbm": "CT-CBM",
    "cb_llm": "CB-LLM",
}
"""rec_cbm: the full method; no_…: without the rubric-aware encoder (race), the ordinal pairwise calibration (opcc), the
latent error correction (lcec); plm: a grade head on the encoder, no concepts; vanilla_cbm: concepts from one shared
representation, trained jointly with the grade; c3m: the same with augmented labels and concept-level mixup; ct_cbm:
concepts found in the text with the given ones; cb_llm: concepts scored by similarity, a sparse linear head."""
ABLATIONS: tuple[Method, ...] = tuple(method for method in get_args(Method) if method.startswith("no_"))


class Training(Frozen):
    """What Table 7 fixes and Table 8 searches; the defaults are the paper's, or lie among its optima."""

    learning_rate: AboveZero = 2e-5
    """Stage I, of the text encoder, where it is tuned."""
    head_learning_rate: AboveZero = 5e-3
    """Stage I, of queries and classifiers on a frozen encoder, whose states do not move, or on one with an adapter."""
    adapter_learning_rate: AboveZero = 2e-4
    """Stage I, of an adapter on the text encoder."""
    head_learning_rate_2: AboveZero = 0.05
    """Stage II."""
    temperature: AboveZero = 1.0
    """τ, of the attention over tokens (Eq. 9)."""
    concept_weight: NonNegative = 1.0
    """λ_c (Eq. 27)."""
    ranking_weight: NonNegative = 0.4
    """λ_r (Eq. 27)."""
    task_weight: NonNegative = 1.0
    """λ_t (Eq. 28)."""
    denoising_weight: NonNegative = 0.1
    """λ_d (Eq. 28)."""
    sparsity_weight: NonNegative = 0.005
    """λ_s (Eq. 28)."""
    epsilon: AboveZero = 1e-4
    """ε, which keeps the precision positive definite (Eq. 21)."""
    batch_size: int = Field(default=8, ge=2)
    """Responses per step; the pairs that are ranked lie within it."""
    epochs: Positive = 50
    """At most, of each stage."""
    patience: Positive = 3
    """Epochs without progress before a stage ends."""
    progress: Literal["measure_or_loss", "measure"] = "measure_or_loss"
    """What counts as progress: a higher validation macro-F1 or a lower validation loss; or the first alone, as in the
    paper (appendix D)."""
    warmup: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps in which the learning rate rises."""
    weight_decay: NonNegative = 0.01
    """AdamW's."""
    width: Positive | None = None
    """d: token states are projected to this width; null for the encoder's own. For sweeps."""
    concepts: Positive | None = None
    """K: only the first so many concepts; null for all. For sweeps."""


class Prompting(PromptedModel):
    """A language model that is asked for the grade itself, to compare with."""

    shots: tuple[int, ...] = (0, 3)
    """How many examples of the train split are shown; each number is a grader of its own."""
    sampling: Sampling = Sampling(max_tokens=256)
    """How replies are drawn."""

    @model_validator(mode="after")
    def _takes_nothing_else(self) -> Prompting:
        for name in ("engine", "model", "replies"):
            if getattr(self, name) is not None and BACKENDS[self.backend].needs != name:
                raise ValueError(f"backend '{self.backend}' takes no {name}")
        return self


class Bottleneck(Frozen):
    """The graders that a study trains. The first method with the first seed is the one that is exported."""

    backbone: str = "minilm"
    """minilm, the encoder that comes with the package, or name or folder of any Hugging Face encoder,
    encoder-decoder or decoder."""
    layer: Positive | None = None
    """Whose states are read, counted from 1; null for the last. The last layers of a decoder are about the next word,
    those in the middle about the text; what lies above is not computed."""
    encoder: EncoderTraining = "frozen"
    """frozen: token states are computed once and kept; tuned: Stage I trains the encoder too; lora: it trains an
    adapter on it, which is for decoders of a billion weights, and alone goes into the exported file."""
    adapter: Adapter = Adapter(rank=8, alpha=16)
    """Of encoder `lora`."""
    match: bool = False
    """Whether each token also says how closely response and reference answer meet there: ours, not the paper's, and for
    short answers that have a reference."""
    arithmetic: Literal["float32", "bfloat16"] = "float32"
    """In which token states are computed, in training and after; bfloat16 takes a half to a third of the time and
    rounds."""
    max_tokens: int = Field(default=512, ge=16)
    """Longest input; the auxiliary context is cut first, then the question, the response last."""
    labels: str = "mean"
    """Whose concept labels are learned: 'final', what annotators and reviewers of the study settled on; a rater of the
    data; or 'mean', the rounded mean of the persons who marked."""
    bands: int | None = Field(default=None, ge=2)
    """The grades learned are so many equal bands of the scale, each standing for its middle; null for every score of
    the scale."""
    rater_noise: bool = False
    """Whether labels weigh by what their raters' own noise leaves of them, where several persons marked."""
    training: Training = Training()
    """The settings of all methods."""
    methods: tuple[Method, ...] = ("rec_cbm", "no_race_opcc_lcec", "vanilla_cbm", "plm")
    """What is trained, in order."""
    seeds: tuple[int, ...] = Field(default=(0, 1, 2), min_length=1)
    """Seeds of initialisation and batches; each trains every method."""
    sweep: dict[str, tuple[float, ...]] = {}
    """Field of `training` → values tried one at a time with the first method."""
    prompted: Prompting | None = None
    """A prompted language model in the comparison; null for none."""
    grader: str | None = None
    """Where the exported grader goes, next to the study file; `<warehouse>/graders/<study>.safetensors` where not
    given."""

    @model_validator(mode="after")
    def _keeps_all_concepts(self) -> Bottleneck:
        if self.training.concepts is not None:
            raise ValueError("training.concepts belongs to a sweep: an exported grader keeps all concepts")
        return self


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
    by: PromptedModel | None = left_out(None)
    """Who writes checklists, revisions and interventions, by these settings' own sampling; null for the policy itself,
    as in the paper. What follows a revision is the policy's in any case."""
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
