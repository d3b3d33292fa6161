"""The tables of trained graders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.contracts.schema import VOLATILE, Frozen, Natural, ResponseId, Row, Share
from rubricflow.tasks.core.contracts.tables.data import SPLITS

Order = Literal["confidence", "uncertainty", "expected_change", "random"]
ORDERS: Mapping[Order, str] = {
    "confidence": "surest first",
    "uncertainty": "least sure first",
    "expected_change": "most expected change first",
    "random": "random order",
}
"""Which concepts of a response are asked about first; the paper: those that the grader is surest of."""
Intervention = Literal["oracle", "wrong", "random"]
INTERVENTIONS: Meanings = {
    "oracle": "set to people's level",
    "random": "set at random",
    "wrong": "set to the most damaging level",
}
GradeMetric = Literal["task_accuracy", "task_macro_f1", "task_qwk"]
GRADE_METRICS: Meanings = {"task_accuracy": "accuracy", "task_qwk": "QWK", "task_macro_f1": "macro-F1"}


class Models(Row, table="models", key=("method", "seed", "setting")):
    """A trained grader."""

    method: str
    """As `Method` names it."""
    seed: int
    """Seed of initialisation and batches."""
    setting: str
    """What differs from the study's training settings, as 'field=value'; '' for nothing."""
    backbone: str
    """The text encoder, with a digest of its weights."""
    encoder: Annotated[
        str,
        {"frozen": "it stays as it was", "tuned": "it was trained, too", "lora": "an adapter on it was trained"},
    ]
    """What became of the encoder."""
    parameters: Natural
    """Numbers trained."""
    epochs_1: Natural
    """Epochs of Stage I, or of the only one."""
    epochs_2: Natural
    """Epochs of Stage II."""
    validation: float | None
    """Macro-F1 of the grade on the calibration split, by which the epoch was chosen."""
    grade_temperature: float | None
    """What the grade's logits are divided by, so that its probabilities are right on the calibration split."""
    path: str | None
    """Where it was exported to, relative to the warehouse; null where it was not."""
    digest: str | None
    """SHA-256 of that file."""
    head: str | None
    """Of the exported grader, all that lies behind its bottleneck, as JSON: `criteria`, `tops`, `correction` (A),
    `weights` (W), `bias`, `scores` and `temperature`; a page that lets people move a concept reckons with it."""
    seconds: Annotated[float, VOLATILE]
    """Seconds that training took."""


class Trials(Row, table="trials", key=("method", "seed", "setting", "split", "metric", "criterion_id")):
    """One number of one grader on one split."""

    method: str
    """As `Method` names it; 'human' for one person against another; a rater's id for what was judged or recorded."""
    seed: int
    """Seed of the grader; 0 for who has none."""
    setting: str
    """As in `models`."""
    split: Annotated[str, SPLITS]
    """What it is measured on."""
    metric: str
    """concept_accuracy, concept_macro_f1, concept_qwk, task_accuracy, task_macro_f1, task_qwk, task_rps, task_ece,
    task_ece_uncalibrated, leakage_task, leakage_concepts, contribution_error and others, as tasks/methods/bottleneck
    names them."""
    criterion_id: str
    """The concept; 'all' for the mean over concepts, '' for the grade."""
    value: float | None
    """The number; null where it is undefined."""
    n: Natural
    """Responses that it rests on."""
    note: str | None
    """Why the value is null, or what to know about it."""


class Interventions(Row, table="interventions", key=("method", "seed", "kind", "order", "asked", "metric")):
    """The grade after so many concepts of each response were set."""

    method: str
    """The grader."""
    seed: int
    """Its seed."""
    kind: Annotated[str, INTERVENTIONS]
    """What the concepts are set to: the label; of the other levels the one that moves the probability of the right
    grade down most, given those set before; any level."""
    order: Annotated[str, ORDERS]
    """Which are set first."""
    asked: Natural
    """Concepts set in each response; 0 for none."""
    metric: Annotated[str, GRADE_METRICS]
    """What is measured on the test split."""
    value: float | None
    """The number."""
    change: float | None
    """Less what it is without intervention, on the same responses."""
    low: float | None
    """Lower end of the change's 95% interval, paired over responses."""
    high: float | None
    """Upper end."""
    n: Natural
    """Responses."""


class ConceptLinks(Row, table="concept_links", key=("method", "seed", "a", "b")):
    """Two concepts: how their labels go together, and how the grader's latent concepts do given all others."""

    method: str
    """The grader."""
    seed: int
    """Its seed."""
    a: str
    """A concept."""
    b: str
    """A later one."""
    label_correlation: float | None
    """Pearson correlation of the labels on the train split; null where one of them does not vary."""
    partial_correlation: float
    """−Ω_ab/√(Ω_aa·Ω_bb) of the learned precision."""
    n: Natural
    """Responses with both labels."""


class Attended(Frozen):
    """A piece of the response that a concept looks at."""

    start: int
    """First character in the response's text."""
    end: int
    """One past the last."""
    weight: float
    """Attention, as a share of all that the concept pays to the whole input."""


class Traces(Row, table="traces", key=("response_id", "criterion_id")):
    """How one concept of one response enters its grade, by the exported grader. The contributions of a response's rows,
    that of the bias among them, sum to `logit`."""

    response_id: ResponseId
    """The response, of the test split."""
    criterion_id: str
    """The concept; 'bias' for what is added whatever the response says."""
    level_probabilities: list[float] | None
    """Probability of each level; null for the bias."""
    expected: float | None
    """Expected level ĉ (Eq. 13)."""
    share: float | None
    """s̃, the expected level over the highest."""
    corrected: float | None
    """The posterior mean μ_post (Eq. 20)."""
    contribution: float
    """What it adds to the logit of the grade given."""
    attention: list[Attended]
    """The tokens of the response that it looks at most, heaviest first."""
    score: float
    """The score given."""
    probability: Share
    """The calibrated probability of that score."""
    logit: float
    """Of the grade given."""
    runner_up: float | None
    """The next most probable score."""
    human: float | None
    """The score that the human grade stands for, among the scores that the grader gives; null where there is none."""
