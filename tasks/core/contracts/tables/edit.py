"""The tables of Edit: arms are named as in `Arm`.

A step's number counts from 1, and boundary k lies behind step k, boundary 0 before the first.

Those of rule faithfulness say what graders do when the mark scheme is edited (Edit, section 3.4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from annotated_types import Ge

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.contracts.schema import (
    VOLATILE,
    ItemId,
    Natural,
    NonNegative,
    Positive,
    ResponseId,
    Row,
    Share,
)

Arm = Literal[
    "base",
    "grpo",
    "dgpo",
    "int_sft",
    "int_rl",
    "edit_sft",
    "edit_rl",
    "edit_rl_on_base",
    "grpo_on_edit_sft",
    "no_signals",
    "no_checklist",
    "no_locality",
]
ARMS: Meanings = {
    "base": "Base",
    "grpo": "GRPO",
    "dgpo": "DGPO",
    "int_sft": "InT-SFT",
    "int_rl": "InT-RL",
    "edit_sft": "Edit-SFT",
    "edit_rl": "Edit-RL",
    "edit_rl_on_base": "Edit-RL on Base",
    "grpo_on_edit_sft": "GRPO on Edit-SFT",
    "no_signals": "Edit-SFT − signals",
    "no_checklist": "Edit-SFT − checklist",
    "no_locality": "Edit-SFT − locality",
}
"""base: the policy as it came; grpo, dgpo: RL on base with the distance-aware outcome reward, the latter with
token-level advantages; int_sft, int_rl: self-proposed interventions, then GRPO; edit_sft, edit_rl: the two phases;
edit_rl_on_base, grpo_on_edit_sft: the other cells of Table 3; no_signals, no_checklist, no_locality: Edit-SFT without
one of its designs (Table 4)."""
ArmName = Annotated[str, ARMS]

Fate = Literal["helped", "near_tie", "not_top_k", "grounded", "chosen"]
FATES: Meanings = {
    "helped": "helped",
    "near_tie": "hardly moved it",
    "not_top_k": "others did more harm",
    "grounded": "harmful but grounded",
    "chosen": "chosen",
}
"""What candidate selection did with a step of a wrong rollout that moved the belief, and which way."""
Tested = Literal["seen", "unseen"]
TESTED: Mapping[Tested, str] = {"seen": "questions seen in training", "unseen": "unseen questions"}
"""Parts of the test split (in the paper: in-distribution and out-of-distribution)."""
Part = Literal["train", "seen", "unseen"]
PARTS: Meanings = {"train": "the train split", "seen": TESTED["seen"], "unseen": TESTED["unseen"]}
Unmarked = Literal["no_mark", "off_scale", "closed"]
UNMARKED: Meanings = {
    "no_mark": "no line states one, not even where it was asked for",
    "off_scale": "it lies outside 0…M_q",
    "closed": "no line stated one, until it was asked for behind the last whole step",
}
"""Why a rollout states no mark by itself."""
Signal = Literal["answer", "scheme", "prefix", "prefix_residual"]
SIGNALS: Meanings = {
    "answer": "G^a of Eq. 3",
    "scheme": "G^ρ of Eq. 3",
    "prefix": "G^p of Eq. 3",
    "prefix_residual": "G^p without what its position explains (Eq. 4)",
}
Unit = Literal["step", "rollout"]
UNITS: Meanings = {"step": "steps", "rollout": "each rollout's mean over its steps of a kind"}
Origin = Literal["repaired", "natural", "intervention"]
ORIGINS: Meanings = {
    "repaired": "a wrong rollout mended",
    "natural": "one that stated the gold mark by itself",
    "intervention": "a wrong one up to the step put in place of the first wrong one (InT)",
}


class Rollouts(Row, table="rollouts", key=("arm", "seed", "response_id", "sample")):
    """One piece of grading by a policy. On the train split: sampled from the base policy, of every seed, for the pools.
    On the test split: one greedy rollout of every arm."""

    arm: ArmName
    """Whose it is."""
    seed: int
    """The arm's seed; the greedy ones of base are the same for all seeds and stand under the first."""
    response_id: ResponseId
    """The response graded."""
    item_id: ItemId
    """Its item."""
    sample: Natural
    """Number of the rollout, from 0."""
    part: Annotated[str, PARTS]
    """Where the response stands."""
    text: str
    """What the policy wrote."""
    steps: Natural
    """T, the steps that it is cut into."""
    mark: Natural | None
    """m, the mark stated, by itself or where it was asked for; null with a reason."""
    unmarked: Annotated[str | None, UNMARKED]
    """Why it states no mark by itself."""
    gold: Natural | None
    """m*, the target score; null where a test response has none."""
    top: Positive
    """M_q, the highest mark."""
    seconds: Annotated[float, Ge(0), VOLATILE]
    """Wall time: its share of the batch that it was written in."""


class Steps(Row, table="steps", key=("arm", "seed", "response_id", "sample", "step")):
    """A step boundary of a rollout of the train split as the base policy sees it, and the step before it (section 2.1).

    Under arm base: all sampled rollouts. Under an arm with a pool of its own: the repaired rollouts in that pool,
    probed in the same way; of these the belief alone is known.
    """

    arm: ArmName
    """base, or the arm whose pool the repaired rollout is in."""
    seed: int
    """The seed of the rollouts."""
    response_id: ResponseId
    """The response."""
    sample: Natural
    """The rollout; of a repaired one, the rollout that it was made from."""
    step: Natural
    """k, 0…T; 0 is the boundary before any step, which has no step of its own."""
    start: Natural | None
    """First character of the step in the rollout's text; null for boundary 0."""
    end: Natural | None
    """One past its last."""
    belief: list[float]
    """p̂_k, the probability of each mark 0…M_q at the boundary (Eq. 1)."""
    expected: NonNegative
    """m̂_k, the mean of the belief."""
    error: NonNegative
    """ε_k, the expected distance from the gold mark, in marks."""
    change: float | None
    """Δε_k = ε_{k−1} − ε_k (Eq. 2): positive where the step helped; null for boundary 0."""
    grounding_scheme: float | None
    """G^ρ_k: by how many nats the step is less likely without the mark scheme (Eq. 3)."""
    grounding_answer: float | None
    """G^a_k: the same without the answer."""
    grounding_prefix: float | None
    """G^p_k: the same without the steps before."""
    prefix_residual: float | None
    """G̃^p_k: G^p less its mean at the same relative position in all rollouts of the seed (Eq. 4)."""
    fate: Annotated[str | None, FATES]
    """What selection by these signals did with it; null for boundary 0 and in rollouts that state the gold mark."""


class Separations(Row, table="separations", key=("seed", "signal", "unit")):
    """How one grounding value tells steps that judge the answer from steps that put others together (appendix D)."""

    seed: int
    """The seed of the rollouts."""
    signal: Annotated[str, SIGNALS]
    """Which grounding value."""
    unit: Annotated[str, UNITS]
    """What is compared."""
    effect: float | None
    """Rank-biserial r in the expected direction (answer and scheme: higher where the answer is judged; prefix: where
    steps are put together), −1…1; null where a kind has no steps."""
    p: Share | None
    """One-sided Mann-Whitney U."""
    grounding: Natural
    """Steps or means of the kind that judges the answer."""
    synthesis: Natural
    """Steps or means of the other kind."""


class Revisions(Row, table="revisions", key=("arm", "seed", "response_id", "sample", "rank")):
    """One attempt to mend a wrong rollout: a chosen step replaced, and what came of it (section 2.2)."""

    arm: ArmName
    """The arm whose pool it is for."""
    seed: int
    """The seed of the rollouts."""
    response_id: ResponseId
    """The response."""
    sample: Natural
    """The rollout mended."""
    rank: Natural
    """Place of the step among the rollout's candidates, the best first from 0."""
    step: Positive | None
    """k, the step replaced; null where the policy was to name one and named none."""
    steps: Natural
    """T of the rollout, so that step/steps is the relative position."""
    checklist: str | None
    """The rubric checklist that the policy wrote with the gold mark at hand; null where the arm has none."""
    sub_steps: list[str]
    """What replaces the step; empty where the reply was refused."""
    refused: str | None
    """Why nothing was continued: what was wrong with the reply or the checklist, as tasks/methods/edit names it;
    null where it was."""
    reply: str | None
    """What the policy wrote where that was refused: the checklist's reply, else the reviser's; null where none was."""
    begun: str | None
    """The rollout up to the step with the sub-steps after it, which was continued; null where refused."""
    marks: list[int | None]
    """Marks of the continuations, in order, null for one without a mark; empty where none was sampled."""
    kept: bool
    """Whether a continuation reached the gold mark."""
    repaired: str | None
    """The rollout as mended, with its mark; null where it was not kept."""


class Demonstrations(Row, table="demonstrations", key=("arm", "seed", "response_id", "sample")):
    """One text that an arm is fine-tuned on; the prompt is the grading prompt of the response."""

    arm: ArmName
    """The arm of supervised fine-tuning."""
    seed: int
    """Its seed."""
    response_id: ResponseId
    """The response."""
    sample: Natural
    """The rollout that it is or was made from."""
    origin: Annotated[str, ORIGINS]
    """What it is."""
    completion: str
    """The text trained on."""
    ends: bool
    """Whether the policy also learns to stop after it."""


class Policies(Row, table="policies", key=("arm", "seed")):
    """A trained arm."""

    arm: ArmName
    """The arm."""
    seed: int
    """Its seed."""
    start: Annotated[str | None, ARMS]
    """The arm that it was initialised from; null for base, which is no one's."""
    path: str | None
    """Folder of its adapter, relative to the warehouse; it goes on top of its start. Null for base and where nothing
    was trained."""
    digest: str | None
    """SHA-256 of its weights."""
    parameters: Natural
    """Numbers trained; 0 where nothing was."""
    updates: Natural
    """Optimiser steps."""
    demonstrations: Natural
    """Texts in its pool; 0 where it learns by reward."""
    note: str | None
    """Why it was not trained, or what to know about it."""
    seconds: Annotated[float, Ge(0), VOLATILE]
    """Wall time of training, over all sessions of it."""


class Learning(Row, table="learning", key=("arm", "seed", "part", "metric", "step")):
    """One point of a learning curve."""

    arm: ArmName
    """The arm."""
    seed: int
    """Its seed."""
    part: Annotated[str, PARTS]
    """train for what training logs; seen and unseen for looks at the test split, by which nothing is chosen."""
    metric: str
    """reward, outcome, shaping, kl, entropy, unmarked, length, loss and others, as tasks/methods/edit/rl.py and
    sft.py name them; on the test split qwk and others, as in `arm_metrics`."""
    step: Natural
    """Updates made until then."""
    value: float | None
    """The number; null where it is undefined."""


class ArmMetrics(Row, table="arm_metrics", key=("arm", "seed", "part", "metric")):
    """One number of one arm."""

    arm: ArmName
    """The arm."""
    seed: int
    """Its seed; base, decoded greedily, is the same for all seeds and stands under the first."""
    part: Annotated[str, TESTED]
    """Responses to items seen in training, or not."""
    metric: str
    """qwk (macro over items), accuracy, within_1, mae, unmarked; of RL on an SFT arm also probe_kl, probe_jsd,
    probe_jsd_early, probe_jsd_mid and probe_jsd_late against its start (appendix C)."""
    value: float | None
    """The number; null with a note."""
    low: float | None
    """Lower end of the 95% interval."""
    high: float | None
    """Upper end."""
    n: Natural
    """Responses that it rests on."""
    note: str | None
    """Why the value is null, or what to know about it."""


class ArmDifferences(Row, table="arm_differences", key=("arm", "against", "seed", "part", "metric")):
    """Two arms of one seed on the same responses; base is the same for all seeds."""

    arm: ArmName
    """The arm."""
    against: ArmName
    """The arm that is taken from it."""
    seed: int
    """The seed of both."""
    part: Annotated[str, TESTED]
    """Responses to items seen in training, or not."""
    metric: str
    """qwk, accuracy, within_1, mae or unmarked."""
    value: float | None
    """arm less against; null with a note."""
    low: float | None
    """Lower end of the 95% interval, paired over responses."""
    high: float | None
    """Upper end."""
    p: Share | None
    """Two-sided bootstrap p-value of no difference."""
    n: Natural
    """Responses that both graded."""
    note: str | None
    """Why the value is null, or what to know about it."""


Family = Literal["points", "levels"]
FAMILIES: Mapping[Family, str] = {"levels": "level-of-response schemes", "points": "points schemes"}
"""Levels: a band of marks for each quality of the whole response; points: marks for each creditable point."""
RuleEdit = Literal["A1", "A2", "B1", "x0.5", "x1.5", "x2.0"]
RULE_EDITS: Meanings = {
    "A1": "every level gets two marks more",
    "A2": "every level gets twice its marks",
    "B1": "the first creditable level gets one mark more, those above two",
    "x0.5": "every point is worth half",
    "x1.5": "every point is worth half as much again",
    "x2.0": "every point is worth twice as much",
}
"""Edits of levels, then of points (appendix E.1)."""
Totals = Literal["stated", "summed"]
TOTALS: Mapping[Totals, str] = {"stated": "graders that state their mark", "summed": "graders whose mark code sums"}
"""What code sums follows an edit of the points' values, whatever the grader read."""


class RuleTests(Row, table="rule_tests", key=("rater_id", "edit", "response_id")):
    """A response marked under its mark scheme and under one edit of it."""

    rater_id: str
    """Who marked."""
    edit: Annotated[str, RULE_EDITS]
    """What was done to the scheme."""
    family: Annotated[str, FAMILIES]
    """The kind of scheme."""
    response_id: str
    """The response."""
    item_id: str
    """Its item."""
    bundle_id: str
    """The edited scheme, as a bundle."""
    gold: Natural
    """The human mark."""
    gold_edited: Natural
    """The mark that it becomes under the edited scheme."""
    predicted: float | None
    """The grader's mark; null where it gave none."""
    predicted_edited: float | None
    """Its mark under the edited scheme; null where it gave none."""
    top: Positive
    """Highest mark."""
    top_edited: Positive
    """Highest mark under the edited scheme."""
    totals: Annotated[str, TOTALS]
    """Who makes the mark."""


class RuleFaithfulness(Row, table="rule_faithfulness", key=("rater_id", "edit")):
    """How far one grader follows one edit: sums over its rows of `rule_tests`."""

    rater_id: str
    """Who marked."""
    edit: Annotated[str, RULE_EDITS]
    """What was done to the scheme."""
    family: Annotated[str, FAMILIES]
    """The kind of scheme."""
    totals: Annotated[str, TOTALS]
    """Who makes the mark."""
    n: Natural
    """Responses with a mark under both schemes."""
    unscored: Natural
    """Responses left out because one of the two marks is missing."""
    gold_change: float | None
    """Mean |change of the human mark|."""
    floor_rate: Share | None
    """Share of marks under the edited scheme that are 0."""
    floor_low: float | None
    """Lower end of its 95% interval, from resampling responses."""
    floor_high: float | None
    """Upper end."""
    rsr: NonNegative | None
    """Rule-sensitivity ratio: mean |change of the grader's mark| over mean |change of the human mark|; 1 follows the
    edit, less does too little. A severe grader's marks have less to change: one whose total code sums has, under an
    edit of points, its mean mark over the mean human one. Null with a note."""
    rsr_low: float | None
    """Lower end."""
    rsr_high: float | None
    """Upper end."""
    rsr_note: str | None
    """Why there is none."""
    in_rubric: NonNegative | None
    """The same over the responses whose mark under the edited scheme is not 0."""
    in_rubric_low: float | None
    """Lower end."""
    in_rubric_high: float | None
    """Upper end."""
    in_rubric_n: Natural
    """How many these are."""
    in_rubric_note: str | None
    """Why there is none."""
