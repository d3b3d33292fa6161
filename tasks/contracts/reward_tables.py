"""The tables of graphs and rewards."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from tasks.contracts.engine import Call
from tasks.contracts.graph import Aggregation, Relation, Role
from tasks.contracts.table import References, Row, Share, Usually


class RubricGraphs(Row):
    """How the graph of one rubric was made."""

    table: ClassVar[str] = "graphs"
    key: ClassVar[tuple[str, ...]] = ("rubric_id",)

    rubric_id: Annotated[str, References("rubrics", "rubric_id")]
    """The rubric."""
    graph_id: str
    """SHA-256 of the graph's content: nodes with their roles, edges with their relations."""
    source_digest: str
    """SHA-256 of all that the graph was made from: query, context, criteria with their weights, annotator and profile,
    authored graph and votes. Never a response."""
    made_from: dict[str, str]
    """Each part of that (question, context, criteria, annotator, profile, votes and so on) → its SHA-256."""
    content: str
    """The graph's canonical JSON."""
    annotator: str
    """Who annotated: 'authored', the model asked, or the heuristic's name."""
    profile: str
    """What the annotator was told to look for."""
    criteria: Annotated[int, Ge(0)]
    """Criteria that are no sub-points."""
    candidates: Annotated[int, Ge(0)]
    """Ordered pairs that the roles allow."""
    proposed: Annotated[int, Ge(0)]
    """Edges proposed, by annotator, author or vote."""
    kept: Annotated[int, Ge(0)]
    """Edges that stayed."""
    invalid: Annotated[int, Ge(0)]
    """Proposals that break a rule: unknown criterion, itself, roles, given twice."""
    failed: Annotated[int, Ge(0)]
    """Candidate pairs for which the annotator gave nothing usable."""
    roles_missing: Annotated[int, Ge(0)]
    """Criteria whose role the annotator did not give: they got penalty or core by their weight."""
    depth: Annotated[int, Ge(0)]
    """Edges on the longest path."""
    calls: list[Call]
    """The model calls that made it, in order; empty where none was needed."""


class GraphNodes(Row):
    """A criterion in a rubric's graph."""

    table: ClassVar[str] = "graph_nodes"
    key: ClassVar[tuple[str, ...]] = ("rubric_id", "criterion_id")

    rubric_id: Annotated[str, References("graphs", "rubric_id")]
    """The rubric."""
    graph_id: str
    """Its graph."""
    criterion_id: str
    """The criterion."""
    position: Annotated[int, Ge(0)]
    """Its place in the rubric, from 0."""
    text: str
    """What it looks for."""
    weight: float
    """Signed."""
    role: Role
    """What it does in the rubric."""
    source: Literal["annotator", "fallback", "vote", "authored"]
    """Who says so; fallback: penalty for a negative weight and core otherwise, where the annotator gave none."""


class GraphEdges(Row):
    """An edge that was proposed, kept or not."""

    table: ClassVar[str] = "graph_edges"
    key: ClassVar[tuple[str, ...]] = ("rubric_id", "proposal")

    rubric_id: Annotated[str, References("graphs", "rubric_id")]
    """The rubric."""
    graph_id: str
    """Its graph."""
    proposal: Annotated[int, Ge(0)]
    """Number of the proposal in the rubric, in candidate order."""
    parent: str
    """The licensing criterion."""
    child: str
    """The licensed one."""
    relation: Relation | None
    """How strongly; null for a pair that the annotator gave nothing usable for."""
    confidence: Share | None
    """How sure the annotator is; null where it does not say."""
    source: Literal["annotator", "vote", "authored"]
    """Who proposed it."""
    kept: bool
    """Whether it is in the graph."""
    dropped: Literal["unknown_criterion", "itself", "roles", "duplicate", "cycle", "voted_out", "failed"] | None
    """Why it is not; null where kept."""
    detail: str | None
    """What to know about it: the cycle that it would close, the votes, the violation."""


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
    aggregation: Aggregation
    """How they are put together."""
    reward: Annotated[float | None, Usually(0.95, "mostly_not_null")]
    """At most 1, below 0 where penalties outweigh credit; null where a criterion is unscored and the bundle says so."""
    low: float | None
    """Lower bound over all that the unscored criteria could be, where the bundle says bounds."""
    high: float | None
    """Upper bound."""
    marginals: dict[str, float]
    """Criterion → its share after the dependencies, in [0, 1]; unscored ones and what depends on them are absent."""
    inference: Literal["none", "topological", "exact"]
    """How the marginals were found; none: without dependencies, or by gates."""
    eta: Annotated[float, Ge(0)]
    """Suppression strength."""
    retention: dict[str, float]
    """Relation → retention factor before η; empty for an aggregation without."""
    unscored: Annotated[int, Ge(0)]
    """Criteria without a usable verdict."""
    decided_by: Literal["probability", "decision", "both"]
    """Whether the local scores are probabilities, plain decisions, or some of each."""


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
    aggregation: Aggregation
    """How they are put together."""
    parent: str
    """The licensing criterion."""
    child: str
    """The licensed one."""
    relation: Relation
    """How strongly."""
    state: Literal["violated", "satisfied"]
    """Whether the parent is supported on its own, too."""
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
    relation: Relation
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
    per: Literal["response", "edge", "child", "graph"]
    """What is counted: with 'child', a child with several unsupported parents counts once."""
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
