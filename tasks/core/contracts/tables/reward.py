"""The tables of rewards and what they say about a rubric's dependencies."""

from __future__ import annotations

from typing import Annotated, Literal

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.contracts.graph import RELATIONS
from rubricflow.tasks.core.contracts.schema import Natural, NonNegative, References, Row, Share, Usually

INFERENCES: Meanings = {
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

PARENTS = ("1 parent", "2 parents", "3 parents or more")
"""How many parents a licensed criterion has: slices of leakage and preservation."""
Aggregation = Literal["flat", "hard_verdict", "hard_local", "hard_propagated", "gear"]
AGGREGATIONS: Meanings = {
    "flat": "flat",
    "hard_verdict": "hard, by verdict",
    "hard_local": "hard, local",
    "hard_propagated": "hard, propagated",
    "gear": "GEAR",
}
"""flat: every criterion for itself (Eq. 2); hard_verdict: a child counts if the judge decided that every parent holds,
whatever probability it gave (the published baseline, appendix E); hard_local: if every parent's own score reaches the
threshold; hard_propagated: if every parent itself still counts and reaches it; gear: dependency-adjusted marginals
(Eqs. 7-14)."""


class Rewards(Row, table="rewards", key=("response_id", "rater_id", "sample", "aggregation")):
    """The reward of one rater's judgments of one response, by one aggregation."""

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
    sample: Natural
    """Number of the repetition."""
    aggregation: Annotated[str, AGGREGATIONS]
    """How they are put together."""
    reward: Annotated[float | None, Usually(0.95, "mostly_not_null")]
    """At most 1, below 0 where penalties outweigh credit; null where a criterion is unscored and the bundle says so."""
    low: float | None
    """Lower bound over all that the unscored criteria could be, where the bundle says bounds."""
    high: float | None
    """Upper bound."""
    reward_variance: NonNegative | None
    """How far the reward would vary if the judge's own doubts were settled one way or the other, as a variance; of flat
    and gear. Null where the judge gives no probabilities, a criterion is unscored, or the graph is too wide for it."""
    marginals: dict[str, float]
    """Criterion → its share after the dependencies, in [0, 1]; unscored ones and what depends on them are absent."""
    inference: Annotated[str, INFERENCES]
    """How the marginals were found."""
    eta: NonNegative
    """Suppression strength."""
    retention: dict[str, float]
    """Relation → retention factor before η; empty for an aggregation without."""
    unscored: Natural
    """Criteria without a usable verdict."""
    decided_by: Annotated[str, DECIDED_BY]
    """What the local scores are."""


class EdgeCases(Row, table="edge_cases", key=("response_id", "rater_id", "sample", "aggregation", "parent", "child")):
    """A dependency of one response whose child is supported on its own (GEAR, section 4.3)."""

    response_id: str
    """The response."""
    item_id: str
    """Its item: what the bootstrap resamples."""
    rubric_id: str
    """Its rubric."""
    rater_id: str
    """Whose judgments."""
    sample: Natural
    """Number of the repetition."""
    aggregation: Annotated[str, AGGREGATIONS]
    """How they are put together."""
    parent: str
    """The licensing criterion."""
    child: str
    """The licensed one."""
    relation: Annotated[str, RELATIONS]
    """How strongly."""
    state: Annotated[
        str,
        {"violated": "the parent is not supported on its own", "satisfied": "it is, too"},
    ]
    """Whether the dependency holds."""
    effective: Share
    """The child's share after the dependencies."""
    leaked: float | None
    """Violated: |weight| of the child times its effective share over the positive weights (Eq. 15); null otherwise."""
    preserved: float | None
    """Satisfied: effective share over its own (Eq. 16); null otherwise."""


class Retentions(Row, table="retentions", key=("rubric_id", "parent", "child")):
    """An edge's retention factor, learned from human scores."""

    rubric_id: Annotated[str, References("graphs", "rubric_id")]
    """The rubric."""
    parent: str
    """The licensing criterion."""
    child: str
    """The licensed one."""
    relation: Annotated[str, RELATIONS]
    """How strongly, by the graph."""
    retention: Share
    """The learned factor."""
    by_relation: Share
    """The relation's factor, that it takes the place of."""
    n: Natural
    """Labelled responses fitted on; by marks the credited and marked children whose parent fails."""
    target: str
    """The human score fitted to, or whose marks."""


class Diagnostics(Row, table="diagnostics", key=("metric", "aggregation", "per", "slice")):
    """One number about rewards."""

    metric: str
    """leakage, preservation, reward_mean, reward_sd, marginal_mae, reward_mae, reward_correlation, and others."""
    aggregation: str
    """The aggregation, or an ablation of one: random_graph, untyped."""
    per: Annotated[str, PER]
    """What is counted."""
    slice: str
    """all, prerequisite, a relation, or the number of parents that the child has: '1 parent', '2 parents', '3 parents
    or more'."""
    value: float | None
    """The number; null with a note."""
    low: float | None
    """Lower end of the 95% interval, from resampling items."""
    high: float | None
    """Upper end."""
    clusters: Natural | None
    """How many items, of figures of what was learned how many authors, it resamples; null without an interval."""
    n: Natural
    """Cases it is the mean of."""
    unscored: Natural
    """Responses left out because they have no reward; of leakage and preservation those of which a dependency is passed
    over, since something that it hangs on is unscored."""
    note: str | None
    """Why the value is null, or what to know about it."""


class HeldOutQuality(Row, table="held_out_quality", key=("step", "item_id")):
    """What one held-out item was worth at one evaluation of the policy that is trained."""

    step: Natural
    """The step of the training that the evaluation came after."""
    item_id: str
    """The held-out item, as whoever evaluates calls it."""
    quality: float
    """Higher is better; in whatever unit the training's own measure has."""


class TrainedCriteria(Row, table="trained_criteria", key=("item_id", "criterion_id")):
    """A criterion that rollouts of a training are rewarded by."""

    item_id: str
    """The item."""
    criterion_id: str
    """Unique in its rubric."""
    text: str
    """What is looked for."""
    weight: float
    """Signed."""
