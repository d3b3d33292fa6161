"""The tables of rubrics, as authored and as locked."""

from __future__ import annotations

from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.contracts.graph import RELATIONS, ROLES
from rubricflow.tasks.core.contracts.schema import Natural, References, Row, RubricId, Share
from rubricflow.tasks.core.contracts.settings.engine import Call

ORIGINS: Meanings = {
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


Source = Literal["annotator", "fallback", "vote", "authored", "stated"]
SOURCES: Meanings = {
    "annotator": "the annotator",
    "fallback": "the sign of its weight, penalty or core, where the annotator gave no role",
    "vote": "a vote of people",
    "authored": "the rubric's author",
    "stated": "the criterion itself, which names another one as its condition",
}
Dropped = Literal["unknown_criterion", "itself", "roles", "duplicate", "cycle", "voted_out", "one_order"]
DROPPED: Meanings = {
    "unknown_criterion": "names a criterion that there is not",
    "itself": "a criterion cannot license itself",
    "roles": "the roles allow no such dependency",
    "duplicate": "proposed twice",
    "cycle": "it would close a circle",
    "voted_out": "people voted against it",
    "one_order": "not named in every order of the rubric",
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
    """Who made it: 'authored', the model asked, or 'stated' where nobody was: the criteria's own words alone."""
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
    """Of the orders in which the annotator was asked, those without a usable reply: with one there is no edge."""
    roles_missing: Natural
    """Criteria whose role the annotator did not give: they got penalty or core by their weight."""
    depth: Natural
    """Edges on the longest path."""
    calls: list[Call]
    """The model calls that made it, in order; empty where none was needed."""


STATED = "stated"
"""The annotator of a graph that holds what its criteria state themselves, and what people voted for."""


def without_graph(graphs: pa.Table, edges: pa.Table) -> str | None:
    """A sentence about the rubrics whose dependencies nobody looked for; None where there are none.

    graphs, edges: with the columns of `RubricGraphs` and `GraphEdges`.
    """
    voted = edges.filter(pc.equal(edges["source"], "vote"))["rubric_id"].unique()
    stated = graphs.filter(pc.equal(graphs["annotator"], STATED))
    stated = stated.filter(pc.invert(pc.is_in(stated["rubric_id"], voted)))
    return said_of_stated(len(stated), len(graphs), pc.sum(stated["kept"]).as_py() or 0)


def said_of_stated(rubrics: int, of: int, edges: int) -> str | None:
    """The sentence, of so many rubrics and the dependencies that their criteria state; None of none."""
    if not rubrics:
        return None
    stated = f" but for dependencies that criteria state themselves ({edges:,})" if edges else ""
    return (
        f"{rubrics:,} of {of:,} rubrics have no graph by a person, a language model or votes: rewards are flat{stated}"
    )


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
    """How strongly; null for an edge that votes are tied on and nobody else proposes."""
    confidence: Share | None
    """How sure the annotator is; null where it does not say."""
    source: Annotated[Literal["annotator", "vote", "authored", "stated"], SOURCES]
    """Who proposed it."""
    kept: bool
    """Whether it is in the graph."""
    dropped: Annotated[str | None, DROPPED]
    """Why it is not; null where kept."""
    detail: str | None
    """What to know about it: the annotator's reason, the cycle that it would close, the votes."""
