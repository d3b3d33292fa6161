"""The tables of rewards and what they say about a rubric's dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from rubricflow.tasks.core.contracts.graph import RELATIONS, Relation
from rubricflow.tasks.core.contracts.schema import References, Row, Share, Usually
from rubricflow.tasks.core.contracts.settings.reward import AGGREGATIONS, Aggregation

Inference = Literal["none", "topological", "exact"]
INFERENCES: Mapping[str, str] = {
    "none": "without dependencies, or by gates",
    "topological": "by the linear-time update",
    "exact": "by exact marginals",
}
DECIDED_BY = {"probability": "probabilities", "decision": "plain decisions", "both": "some of each"}
PER = {
    "response": "every response",
    "edge": "every dependency",
    "child": "every licensed criterion once",
    "graph": "every graph",
}


class Rewards(Row):
    """The reward of one rater's judgments of one response, by one aggregation."""

    table: ClassVar[str] = "rewards"
    key: ClassVar[tuple[str, ...]] = ("response_id", "rater_id", "sample", "aggregation")

    response_id: str
    """The response, or the rollout."""
    item_id: str
    """Its item."""
    rubric_id: str
    """The rubric it is rewarded by."""
    graph_id: str
    """The graph it is rewarded by."""
    rater_id: str
    """Whose judgments are rewarded."""
    sample: Annotated[int, Ge(0)]
    """Number of the repetition."""
    aggregation: Annotated[Aggregation, AGGREGATIONS]
    """How they are put together."""
    reward: Annotated[float | None, Usually(0.95, "mostly_not_null")]
    """At most 1, below 0 where penalties outweigh credit; null where a criterion is unscored and the bundle says so."""
    low: float | None
    """Lower bound over all that the unscored criteria could be, where the bundle says bounds."""
    high: float | None
    """Upper bound."""
    reward_variance: Annotated[float | None, Ge(0)]
    """How far the reward would vary if the judge's own doubts were settled one way or the other, as a variance; of flat
    and gear. Null where the judge gives no probabilities, a criterion is unscored, or the graph is too wide for it."""
    marginals: dict[str, float]
    """Criterion → its share after the dependencies, in [0, 1]; unscored ones and what depends on them are absent."""
    inference: Annotated[Inference, INFERENCES]
    """How the marginals were found."""
    eta: Annotated[float, Ge(0)]
    """Suppression strength."""
    retention: dict[str, float]
    """Relation → retention factor before η; empty for an aggregation without."""
    unscored: Annotated[int, Ge(0)]
    """Criteria without a usable verdict."""
    decided_by: Annotated[Literal["probability", "decision", "both"], DECIDED_BY]
    """What the local scores are."""


class EdgeCases(Row):
    """A dependency of one response whose child is supported on its own (GEAR, section 4.3)."""

    table: ClassVar[str] = "edge_cases"
    key: ClassVar[tuple[str, ...]] = ("response_id", "rater_id", "sample", "aggregation", "parent", "child")

    response_id: str
    """The response."""
    item_id: str
    """Its item: what the bootstrap resamples."""
    rubric_id: str
    """Its rubric."""
    rater_id: str
    """Whose judgments."""
    sample: Annotated[int, Ge(0)]
    """Number of the repetition."""
    aggregation: Annotated[Aggregation, AGGREGATIONS]
    """How they are put together."""
    parent: str
    """The licensing criterion."""
    child: str
    """The licensed one."""
    relation: Annotated[Relation, RELATIONS]
    """How strongly."""
    state: Annotated[
        Literal["violated", "satisfied"],
        {"violated": "the parent is not supported on its own", "satisfied": "it is, too"},
    ]
    """Whether the dependency holds."""
    effective: Share
    """The child's share after the dependencies."""
    leaked: float | None
    """Violated: |weight| of the child times its effective share over the positive weights (Eq. 15); null otherwise."""
    preserved: float | None
    """Satisfied: effective share over its own (Eq. 16); null otherwise."""


class Retentions(Row):
    """An edge's retention factor, learned from human scores."""

    table: ClassVar[str] = "retentions"
    key: ClassVar[tuple[str, ...]] = ("rubric_id", "parent", "child")

    rubric_id: Annotated[str, References("graphs", "rubric_id")]
    """The rubric."""
    parent: str
    """The licensing criterion."""
    child: str
    """The licensed one."""
    relation: Annotated[Relation, RELATIONS]
    """How strongly, by the graph."""
    retention: Share
    """The learned factor."""
    by_relation: Share
    """The relation's factor, that it takes the place of."""
    n: Annotated[int, Ge(0)]
    """Labelled responses fitted on."""
    target: str
    """The human score fitted to."""


class Diagnostics(Row):
    """One number about rewards."""

    table: ClassVar[str] = "diagnostics"
    key: ClassVar[tuple[str, ...]] = ("metric", "aggregation", "per", "slice")

    metric: str
    """leakage, preservation, reward_mean, reward_sd, marginal_mae, reward_mae, reward_correlation, and others."""
    aggregation: str
    """The aggregation, or an ablation of one: random_graph, untyped."""
    per: Annotated[Literal["response", "edge", "child", "graph"], PER]
    """What is counted."""
    slice: str
    """all, prerequisite, or a relation."""
    value: float | None
    """The number; null with a note."""
    low: float | None
    """Lower end of the 95% interval, from resampling items."""
    high: float | None
    """Upper end."""
    clusters: Annotated[int, Ge(0)] | None
    """How many items, of figures of what was learned how many authors, it resamples; null without an interval."""
    n: Annotated[int, Ge(0)]
    """Cases it is the mean of."""
    unscored: Annotated[int, Ge(0)]
    """Responses left out because they have no reward; of leakage and preservation those of which a dependency is passed
    over, since something that it hangs on is unscored."""
    note: str | None
    """Why the value is null, or what to know about it."""


class HeldOutQuality(Row):
    """What one held-out item was worth at one evaluation of the policy that is trained."""

    table: ClassVar[str] = "held_out_quality"
    key: ClassVar[tuple[str, ...]] = ("step", "item_id")

    step: Annotated[int, Ge(0)]
    """The step of the training that the evaluation came after."""
    item_id: str
    """The held-out item, as whoever evaluates calls it."""
    quality: float
    """Higher is better; in whatever unit the training's own measure has."""


class TrainedCriteria(Row):
    """A criterion that rollouts of a training are rewarded by."""

    table: ClassVar[str] = "trained_criteria"
    key: ClassVar[tuple[str, ...]] = ("item_id", "criterion_id")

    item_id: str
    """The item."""
    criterion_id: str
    """Unique in its rubric."""
    text: str
    """What is looked for."""
    weight: float
    """Signed."""
