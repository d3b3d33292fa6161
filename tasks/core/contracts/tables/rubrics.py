"""The tables of rubrics, as authored and as locked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from rubricflow.tasks.core.contracts.graph import RELATIONS, ROLES
from rubricflow.tasks.core.contracts.schema import Natural, References, Row, RubricId, Share
from rubricflow.tasks.core.contracts.settings.engine import Call

ORIGINS: Mapping[str, str] = {
    "authored": "a person wrote its criteria",
    "reference_answer": "made of the sentences of a reference answer",
    "key_elements": "made of a list of key elements",
    "criteria": "made of the criteria that come with the item",
    "induced": "made by a model of its prose",
}


class Rubrics(Row, table="rubrics", key=("rubric_id",)):
    """An authored rubric."""

    rubric_id: str
    """The name that items point to."""
    title: str
    """Title for people."""
    origin: Annotated[str, ORIGINS]
    """Where its criteria come from."""
    content: str
    """The rubric as JSON, as it was locked: induced and reworded where the study says so."""
    lint: list[str]
    """What the linter has to say about it; empty is good."""
    calls: list[Call]
    """The model calls that made or reworded it, in order; empty where a person or code alone did."""


class Bundles(Row, table="bundles", key=("rubric_id",)):
    """A locked rubric."""

    rubric_id: RubricId
    """The rubric it locks."""
    bundle_id: str
    """SHA-256 of the content."""
    content: str
    """The bundle's canonical JSON."""


class JurorBundles(Bundles, table="juror_bundles", key=("rubric_id", "bundle_id")):
    """A rubric locked as one juror of a jury, or one step of a cascade, is asked."""


Source = Literal["annotator", "fallback", "vote", "authored"]
SOURCES: Mapping[str, str] = {
    "annotator": "the annotator",
    "fallback": "the sign of its weight, penalty or core, where the annotator gave no role",
    "vote": "a vote of people",
    "authored": "the rubric's author",
}
Dropped = Literal["unknown_criterion", "itself", "roles", "duplicate", "cycle", "voted_out", "failed"]
DROPPED: Mapping[str, str] = {
    "unknown_criterion": "names a criterion that there is not",
    "itself": "a criterion cannot license itself",
    "roles": "the roles allow no such dependency",
    "duplicate": "proposed twice",
    "cycle": "it would close a circle",
    "voted_out": "people voted against it",
    "failed": "the annotator gave nothing usable",
}
"""Why a proposed edge is not in the graph."""


class RubricGraphs(Row, table="graphs", key=("rubric_id",)):
    """How the graph of one rubric was made."""

    rubric_id: RubricId
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
    criteria: Natural
    """Criteria that are no sub-points."""
    candidates: Natural
    """Ordered pairs that the roles allow."""
    proposed: Natural
    """Edges proposed, by annotator, author or vote."""
    kept: Natural
    """Edges that stayed."""
    invalid: Natural
    """Proposals that break a rule: unknown criterion, itself, roles, given twice."""
    failed: Natural
    """Candidate pairs for which the annotator gave nothing usable."""
    roles_missing: Natural
    """Criteria whose role the annotator did not give: they got penalty or core by their weight."""
    depth: Natural
    """Edges on the longest path."""
    calls: list[Call]
    """The model calls that made it, in order; empty where none was needed."""


class GraphNodes(Row, table="graph_nodes", key=("rubric_id", "criterion_id")):
    """A criterion in a rubric's graph."""

    rubric_id: Annotated[str, References("graphs", "rubric_id")]
    """The rubric."""
    graph_id: str
    """Its graph."""
    criterion_id: str
    """The criterion."""
    position: Natural
    """Its place in the rubric, from 0."""
    text: str
    """What it looks for."""
    weight: float
    """Signed."""
    role: Annotated[str, ROLES]
    """What it does in the rubric."""
    source: Annotated[str, SOURCES]
    """Who says so."""


class GraphEdges(Row, table="graph_edges", key=("rubric_id", "proposal")):
    """An edge that was proposed, kept or not."""

    rubric_id: Annotated[str, References("graphs", "rubric_id")]
    """The rubric."""
    graph_id: str
    """Its graph."""
    proposal: Natural
    """Number of the proposal in the rubric, in candidate order."""
    parent: str
    """The licensing criterion."""
    child: str
    """The licensed one."""
    relation: Annotated[str | None, RELATIONS]
    """How strongly; null for a pair that the annotator gave nothing usable for."""
    confidence: Share | None
    """How sure the annotator is; null where it does not say."""
    source: Annotated[Literal["annotator", "vote", "authored"], SOURCES]
    """Who proposed it."""
    kept: bool
    """Whether it is in the graph."""
    dropped: Annotated[str | None, DROPPED]
    """Why it is not; null where kept."""
    detail: str | None
    """What to know about it: the cycle that it would close, the votes, the violation."""
