"""The tables. Keys are stable ids; `run_id` lives in the path and the manifest, not in the rows."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from tasks.contracts.bottleneck_tables import ConceptLinks, Interventions, Models, Traces, Trials
from tasks.contracts.edit_tables import (
    ArmDifferences,
    ArmMetrics,
    Demonstrations,
    Learning,
    Policies,
    Revisions,
    Rollouts,
    Separations,
    Steps,
)
from tasks.contracts.engine import Call
from tasks.contracts.people_tables import Agreements, Constructions, Labels, Queue, Votes
from tasks.contracts.reward_tables import (
    Diagnostics,
    EdgeCases,
    GraphEdges,
    GraphNodes,
    Retentions,
    Rewards,
    RubricGraphs,
)
from tasks.contracts.rule_tables import RuleFaithfulness, RuleTests
from tasks.contracts.table import VOLATILE, Frozen, References, Row, Share, Usually

RaterKind = Literal["human", "llm", "encoder", "replayed", "simulated", "trained", "adjudication"]
UnscoredReason = Literal[
    "no_reply",
    "unreadable_reply",
    "invalid_reply",
    "off_scale",
    "criterion_missing",
    "criterion_unscored",
    "trait_unscored",
    "traits_only",
]
"""Why there is no number: the backend gave none; no artifact in it; one that breaks the contract; a score outside the
judge's scale; no verdict on a criterion; a score that needs an unscored criterion, or an unscored trait; a rater who
marked traits only."""

CalibrationMethod = Literal["rulers", "ridge", "linear", "isotonic", "linking", "identity"]
"""rulers: phase III as published; ridge: the same without its map of distributions; linear: a line with shrunken item
offsets; isotonic: a rising step function with such offsets; linking: mean and standard deviation of the human scores;
identity: the raw score is kept."""
RouteReason = Literal[
    "unscored", "precheck", "weak_evidence", "uncalibrated", "out_of_range", "level_unseen", "no_promise", "risk"
]
"""No score; settled without the judge; a weakly groundable criterion credited without evidence; no labels to tell the
risk; a latent score outside the range seen in calibration; a level that no person gave in calibration; no risk that the
labels of its item can vouch for; a risk above what can be vouched for."""


class Listed(Frozen):
    """A criterion that a source lists with its item."""

    id: str
    """Its id, unique in the item."""
    text: str
    """What is looked for."""
    weight: float
    """Signed."""
    levels: list[str]
    """Ordered anchors, worst first for credit; empty where the study says them."""
    parent: str | None
    """The criterion that it is a sub-point of."""


class Items(Row):
    """A question or prompt."""

    table: ClassVar[str] = "items"
    key: ClassVar[tuple[str, ...]] = ("item_id",)

    item_id: str
    """Stable id of the item."""
    question: str
    """The question as the author of the response saw it."""
    context: str | None
    """Source text, data table or passage that belongs to the question."""
    reference_answer: str | None
    """A model answer."""
    key_elements: list[str]
    """Ideas that a full answer names, where the source lists them; empty otherwise."""
    type: str
    """Kind of item, for slices of the evaluation; 'item' where the source has none."""
    rubric_id: str
    """The rubric it is scored with."""
    key_weights: list[float] | None
    """Weights of the key elements in their order, where the source gives them."""
    misconceptions: list[str] | None
    """Mistakes that cost marks, where the source lists them."""
    criteria: list[Listed] | None
    """Criteria of the rubric, where the source lists them with the item."""


class Responses(Row):
    """One text to score."""

    table: ClassVar[str] = "responses"
    key: ClassVar[tuple[str, ...]] = ("response_id",)

    response_id: str
    """Stable id of the response."""
    item_id: Annotated[str, References("items", "item_id")]
    """The item it answers."""
    author_id: Annotated[str | None, Usually(0.9, "mostly_not_null")]
    """Who wrote it; the cluster of the bootstrap where known."""
    text: Annotated[str, Usually(0.95, "mostly_filled")]
    """The response as stored; all spans count its characters."""
    split: Literal["train", "calibration", "test"]
    """The part of the data it belongs to."""
    groups: dict[str, str]
    """Subgroup memberships: group variable → group."""


class Units(Row):
    """A sentence or paragraph of a response."""

    table: ClassVar[str] = "units"
    key: ClassVar[tuple[str, ...]] = ("response_id", "unit_id")

    response_id: Annotated[str, References("responses", "response_id")]
    """The response."""
    unit_id: str
    """s1, s2, … for sentences; p1, p2, … for paragraphs."""
    kind: Literal["sentence", "paragraph"]
    """What it is."""
    start: Annotated[int, Ge(0)]
    """First character (code point) in the response's text."""
    end: Annotated[int, Ge(0)]
    """One past the last character."""


class Rubrics(Row):
    """An authored rubric."""

    table: ClassVar[str] = "rubrics"
    key: ClassVar[tuple[str, ...]] = ("rubric_id",)

    rubric_id: str
    """The name that items point to."""
    title: str
    """Title for people."""
    origin: Literal["authored", "reference_answer", "key_elements", "criteria", "induced"]
    """Whether a person wrote its criteria, or what they were made from; induced: by a model from its prose."""
    content: str
    """The rubric as JSON, as it was locked: induced and reworded where the study says so."""
    lint: list[str]
    """What the linter has to say about it; empty is good."""
    calls: list[Call]
    """The model calls that made or reworded it, in order; empty where a person or code alone did."""


class Bundles(Row):
    """A locked rubric."""

    table: ClassVar[str] = "bundles"
    key: ClassVar[tuple[str, ...]] = ("rubric_id",)

    rubric_id: Annotated[str, References("rubrics", "rubric_id")]
    """The rubric it locks."""
    bundle_id: str
    """SHA-256 of the content."""
    content: str
    """The bundle's canonical JSON."""


class Evidence(Frozen):
    """A quote offered for a decision and what the verifier found."""

    unit_id: str | None
    """The unit that the rater cited."""
    quote: str
    """The quote as given (cut at 2,000 characters)."""
    start: int | None
    """First character of the quote in the stored text; null unless found."""
    end: int | None
    """One past its last character."""
    status: Literal["verified", "misattributed", "fabricated", "duplicate", "too_short", "context", "echo", "semantic"]
    """Found where cited; found elsewhere in the text; not found; given twice for one criterion; shorter than counts;
    found in the item's context; a repetition of the question or the rubric; not found, but an encoder finds the span
    that says the same."""


class Judgments(Row):
    """One rater's decision on one criterion of one response."""

    table: ClassVar[str] = "judgments"
    key: ClassVar[tuple[str, ...]] = ("response_id", "criterion_id", "rater_id", "sample")

    response_id: Annotated[str, References("responses", "response_id")]
    """The response."""
    criterion_id: str
    """The criterion."""
    rater_id: str
    """The rater and, for a machine, its configuration."""
    rater_kind: RaterKind
    """What the rater is."""
    sample: Annotated[int, Ge(0)]
    """Number of the repetition, from 0."""
    bundle_id: str | None
    """The bundle judged under; null for people who marked outside this pipeline."""
    decision: Annotated[Annotated[int, Ge(0)] | None, Usually(0.95, "mostly_not_null")]
    """The level after verification; null with a reason."""
    stated: Annotated[int, Ge(0)] | None
    """The level that the rater stated."""
    unscored_reason: UnscoredReason | None
    """Why there is no decision."""
    level_probabilities: list[float] | None
    """Probability of each level, where the rater gives them."""
    evidence: list[Evidence]
    """Quotes and what became of them."""
    verified: bool | None
    """Whether the evidence rule of the criterion is met; null where it demands nothing."""
    action: Literal["none", "demoted", "counted", "dropped"]
    """What a failed quote did."""


class Gradings(Row):
    """One rater's grading of one response. Human scores are gradings too."""

    table: ClassVar[str] = "gradings"
    key: ClassVar[tuple[str, ...]] = ("response_id", "rater_id", "sample")

    response_id: Annotated[str, References("responses", "response_id")]
    """The response."""
    item_id: Annotated[str, References("items", "item_id")]
    """Its item."""
    rater_id: str
    """The rater and, for a machine, its configuration."""
    rater_kind: RaterKind
    """What the rater is."""
    sample: Annotated[int, Ge(0)]
    """Number of the repetition, from 0."""
    bundle_id: str | None
    """The bundle graded under."""
    score: Annotated[float | None, Usually(0.95, "mostly_not_null", unless=("rater_kind", "human"))]
    """On the bundle's scale, before calibration; null with a reason."""
    low: float | None
    """Lowest score the unscored criteria allow, where the bundle says bounds."""
    high: float | None
    """Highest such score."""
    trait_scores: dict[str, float]
    """Trait → score in its range; traits without a usable verdict are absent."""
    signals: dict[str, float]
    """Calibration features and the verifier's counts, by name."""
    confidence: Share | None
    """Mean probability of the decided levels; null where the rater gives no probabilities."""
    status: Literal["scored", "precheck", "unscored"]
    """precheck: settled without a model call."""
    unscored_reason: UnscoredReason | None
    """Why there is no score."""


class Attempts(Row):
    """One model call."""

    table: ClassVar[str] = "attempts"
    key: ClassVar[tuple[str, ...]] = ("response_id", "rater_id", "sample", "part", "attempt")

    response_id: Annotated[str, References("responses", "response_id")]
    """The response it was about."""
    rater_id: str
    """The rater that asked."""
    sample: Annotated[int, Ge(0)]
    """Number of the repetition."""
    part: str
    """What was asked for: the criterion in a pointwise protocol, 'all' otherwise."""
    attempt: Annotated[int, Ge(0)]
    """0 for the first call, then one more for each repair."""
    role: Literal["grade", "extract", "contract_repair", "semantic_repair"]
    """What the call was for; extract: autoscore's first step."""
    request_digest: str
    """SHA-256 of the request; the key in the reply store."""
    model: str
    """The model asked."""
    seed: int
    """The sampling seed."""
    reply: str | None
    """The reply as it came; null where there was none."""
    error: Annotated[str | None, Usually(0.95, "mostly_null")]
    """The backend's error, where it gave no reply."""
    violations: list[str]
    """What the verifier found wrong with the reply."""
    mends: list[str]
    """What a repair was asked to mend: fields or criteria; empty for a first call."""
    memory: list[str]
    """What memory put into the prompt: 'card:<criterion>' and 'exemplar:<response>', in the order shown."""
    system: str | None
    """The system message; null where the answerer reads no prose."""
    prompt: str | None
    """The user's message: memory, response and, in a repair, what is to be mended; null where the answerer reads no
    prose."""
    characters: dict[str, int]
    """Characters of the prompt by part: bundle, memory, response, repair."""
    prompt_tokens: Annotated[int, Ge(0)] | None
    """Tokens of the request, as the backend counts them."""
    completion_tokens: Annotated[int, Ge(0)] | None
    """Tokens of the reply."""
    cached_tokens: Annotated[Annotated[int, Ge(0)] | None, VOLATILE]
    """Tokens of the request that the engine's prefix cache held, where it says so."""
    stored: Annotated[bool, VOLATILE]
    """Whether the reply came from the reply store."""
    latency_s: Annotated[float | None, VOLATILE]
    """Seconds the call took."""


class Calibrations(Row):
    """A fitted mapping to the human scale."""

    table: ClassVar[str] = "calibrations"
    key: ClassVar[tuple[str, ...]] = ("calibration_id",)

    calibration_id: str
    """SHA-256 of the fitted content."""
    scope: str
    """The item it was fitted for, or 'pooled'."""
    method: CalibrationMethod
    """How scores are mapped."""
    reason: str
    """Why this method: what the study asked for, or what the comparison inside folds showed."""
    features: list[str]
    """Names of the features, in order."""
    left_out: list[str]
    """Signals that the bundle names but the judge did not give, or that cannot be pooled."""
    n: Annotated[int, Ge(0)]
    """Number of labelled responses fitted on."""
    target: str
    """The human score fitted to."""
    content: str
    """Everything needed to apply it, as JSON."""


class Candidates(Row):
    """One calibration method tried inside folds: every figure is of scores that the method predicted for labelled
    responses it had not seen."""

    table: ClassVar[str] = "candidates"
    key: ClassVar[tuple[str, ...]] = ("scope", "method")

    scope: str
    """The item it was tried for, or 'pooled'."""
    method: CalibrationMethod
    """The method."""
    n: Annotated[int, Ge(0)]
    """Labelled responses."""
    folds: Annotated[int, Ge(0)]
    """Folds, cut between authors where they are known; 0 where there were too few labels to try."""
    qwk: float | None
    """Quadratic weighted kappa of the rounded scores with the target."""
    rmse: float | None
    """Root mean squared error of the unrounded scores, score units; shares of the scale where scales differ."""
    behind: float | None
    """How far it falls behind the best one in what the choice goes by; 0 for the best."""
    behind_se: float | None
    """Standard error of that difference, over authors."""
    sd_ratio: float | None
    """Standard deviation of the unrounded scores over that of the target: below 1 where the spread shrinks."""
    distinct: Annotated[int, Ge(0)]
    """Distinct rounded scores that survive."""
    chosen: bool
    """Whether it was chosen."""
    note: str | None
    """Why it could not be tried or was refused; null otherwise."""


class ReleaseRules(Row):
    """What may be released without review: the largest estimated risk that keeps the promise on labelled responses."""

    table: ClassVar[str] = "release_rules"
    key: ClassVar[tuple[str, ...]] = ("scope",)

    scope: str
    """The item it holds for, or 'all'."""
    tolerance: Annotated[float, Ge(0)]
    """Steps of the scale that a released score may differ from the human score."""
    target: Share
    """Share of released scores that may differ by more."""
    confidence: Share
    """Confidence with which that is promised."""
    n: Annotated[int, Ge(0)]
    """Labelled responses with a cross-fitted risk."""
    threshold: float | None
    """Largest estimated risk that is released; null where nothing may be."""
    released: Annotated[int, Ge(0)]
    """Labelled responses at or below it."""
    wrong: Annotated[int, Ge(0)]
    """Those of them that differ by more than the tolerance."""
    upper: Share | None
    """Upper confidence bound of the share of such scores among the released."""
    levels: list[float]
    """Human scores seen in calibration, on the scale's steps; another level is never released."""
    note: str | None
    """Why nothing may be released; null otherwise."""


class Predictions(Row):
    """One calibrated score."""

    table: ClassVar[str] = "predictions"
    key: ClassVar[tuple[str, ...]] = ("response_id", "rater_id")

    response_id: Annotated[str, References("responses", "response_id")]
    """The response."""
    item_id: Annotated[str, References("items", "item_id")]
    """Its item."""
    rater_id: str
    """The rater whose grading was calibrated."""
    calibration_id: str | None
    """The calibration applied; null where there is no score to calibrate."""
    split: Literal["train", "calibration", "test"]
    """The part of the data the response belongs to."""
    raw: float | None
    """The score before calibration."""
    latent: float | None
    """The ridge's latent score on the human scale, before distribution alignment."""
    aligned: float | None
    """After alignment, before rounding."""
    score: float | None
    """The calibrated score, on the scale's steps."""
    clipped: Annotated[bool, Usually(0.9, "mostly_in_set", (False,))]
    """Whether the latent score lay outside the range seen in calibration."""
    low: float | None
    """Lower end of the conformal interval for the human score that counts, on the grid that such scores lie on: the
    scale's steps or, for means of several persons, equal parts of them; anywhere if there is no grid. Never above
    `score`; rounded down at the ninth digit."""
    high: float | None
    """Upper end; never below `score`, rounded up at the ninth digit."""
    risk: Share | None
    """Estimated probability that a human score differs by more than the tolerance; null without labels to tell."""
    level_probabilities: list[float] | None
    """Probability of each level of the scale for a human score; null without labels to tell."""
    route: Literal["release", "review"]
    """Whether the score may go out, or a person looks first."""
    route_reason: RouteReason | None
    """Why a person looks first; null where released."""
    unscored_reason: UnscoredReason | None
    """Why there is no score."""


class Metrics(Row):
    """One number of the evaluation."""

    table: ClassVar[str] = "metrics"
    key: ClassVar[tuple[str, ...]] = ("metric", "rater_a", "rater_b", "stage", "slice", "value_of")

    metric: str
    """qwk, exact, within_1, mae, … as tasks/stats names them."""
    rater_a: str
    """The reference (a human, or 'target')."""
    rater_b: str
    """The rater compared with it."""
    stage: Literal["human", "raw", "calibrated", "released"]
    """Human with human; machine before calibration; machine after it; of that, what was released."""
    slice: str
    """What the slice is by: 'all', 'item', 'type', 'level', 'rater', 'criterion', 'kind' (of criteria), 'confidence'
    (bins of decisions, least confident first), or a group variable."""
    value_of: str
    """Its value: the item, type or group; 'all'."""
    value: float | None
    """The number; null with a note."""
    low: float | None
    """Lower end of the 95% interval."""
    high: float | None
    """Upper end."""
    n: Annotated[int, Ge(0)]
    """Responses compared."""
    unscored: Annotated[int, Ge(0)]
    """Responses of the slice left out because one of the two has no score."""
    resampled: str
    """What the bootstrap resamples: 'author' or 'response'; 'none: exact binomial' for a share of errors; '' without an
    interval."""
    clusters: Annotated[int, Ge(0)] | None
    """How many of them; null where nothing was resampled. With fewer than 20 the interval may be too narrow."""
    undefined_draws: Annotated[int, Ge(0)]
    """Bootstrap draws in which the metric was undefined."""
    note: str | None
    """Why the value is null, or what to know about it."""


class Verdicts(Row):
    """One gate: a flag for a person, decided only where the whole interval lies on one side of it."""

    table: ClassVar[str] = "verdicts"
    key: ClassVar[tuple[str, ...]] = ("gate", "slice", "value_of")

    gate: str
    """What is asked: human_qwk, machine_qwk, degradation_qwk, mean_shift and others, as tasks/evaluate names them."""
    slice: str
    """What the slice is by: 'all', 'item', or a group variable."""
    value_of: str
    """Its value; 'all'."""
    metric: str
    """The metric it rests on."""
    estimate: float | None
    """The number; null where it is undefined."""
    low: float | None
    """Lower end of the 95% interval."""
    high: float | None
    """Upper end."""
    clusters: Annotated[int, Ge(0)] | None
    """How many the bootstrap resamples, as in `metrics`."""
    n: Annotated[int, Ge(0)]
    """Responses it rests on."""
    least: float | None
    """The number must not be below this; null without such a bound."""
    most: float | None
    """The number must not be above this; null without such a bound."""
    outcome: Literal["pass", "fail", "undecided", "unknown"]
    """unknown: the data do not allow the number or its interval."""
    labels_needed: Annotated[int, Ge(0)] | None
    """About how many further labelled responses would decide it, if the estimate stays; null where decided or not to be
    told."""
    source: str
    """Whose flag it is."""
    if_missed: str
    """What to do where it is missed."""


class Checks(Row):
    """The result of one expectation at one checkpoint."""

    table: ClassVar[str] = "checks"
    key: ClassVar[tuple[str, ...]] = ("stage", "table_name", "rule", "column")

    stage: str
    """The stage whose output was checked."""
    table_name: str
    """The table."""
    rule: str
    """The expectation."""
    column: str
    """The column or columns."""
    severity: Literal["critical", "warning"]
    """critical stops the run; a warning is counted in the report."""
    outcome: Literal["passed", "failed", "error"]
    """error: the check could not run."""
    rows: Annotated[int, Ge(0)]
    """Rows looked at."""
    unexpected: Annotated[int, Ge(0)]
    """Rows that break the rule."""
    first: list[str]
    """Keys of the first of them."""
    detail: str | None
    """The rule's parameters, or the exception."""


class Quarantine(Row):
    """A row that a checkpoint refused."""

    table: ClassVar[str] = "quarantine"
    key: ClassVar[tuple[str, ...]] = ("stage", "table_name", "row_key", "rule", "column")

    stage: str
    """The stage whose output was checked."""
    table_name: str
    """The table."""
    row_key: str
    """The row's key."""
    rule: str
    """The expectation that it breaks."""
    column: str
    """The column or columns."""
    reason: str
    """The rule in words, and what was there instead."""
    content: str
    """The row as JSON (cut at 10,000 characters)."""


TABLES: tuple[type[Row], ...] = (
    Items,
    Responses,
    Units,
    Rubrics,
    Bundles,
    Judgments,
    Gradings,
    Attempts,
    Calibrations,
    Candidates,
    ReleaseRules,
    Predictions,
    Metrics,
    Verdicts,
    Checks,
    Quarantine,
    Votes,
    RubricGraphs,
    GraphNodes,
    GraphEdges,
    Rewards,
    EdgeCases,
    Retentions,
    Diagnostics,
    Queue,
    Labels,
    Agreements,
    Constructions,
    Models,
    Trials,
    Interventions,
    ConceptLinks,
    Traces,
    Rollouts,
    Steps,
    Separations,
    Revisions,
    Demonstrations,
    Policies,
    Learning,
    ArmMetrics,
    ArmDifferences,
    RuleTests,
    RuleFaithfulness,
)
BY_NAME: dict[str, type[Row]] = {row.table: row for row in TABLES}


class TableRef(Frozen):
    """A reference to one writer's part of a table; what doors pass to each other instead of rows."""

    table: str
    """Name of the table."""
    stage: str
    """The stage that wrote it."""
    path: str
    """Its folder, relative to the warehouse."""
    digest: str
    """SHA-256 of the sorted logical content without volatile columns, the same however it is sharded."""
    rows: int
    """Number of rows."""
