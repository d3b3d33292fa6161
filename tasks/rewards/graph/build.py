"""From queries and rubrics to graphs: roles, dependencies and votes, projected onto what is valid.

What annotating takes, said before the first call; asks no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import networkx as nx

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node, Relation, Role
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.tables.rubrics import STATED, Source
from rubricflow.tasks.core.llm.request import digest
from rubricflow.tasks.core.store.files import digest_of
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.rewards.graph.annotator import Annotator, settings_of, silent
from rubricflow.tasks.rewards.graph.dependencies import Annotated, ask_graphs, graph_requests, stated_dependencies
from rubricflow.tasks.rewards.graph.project import EdgeProposal, Vote, ballots, project, with_votes
from rubricflow.tasks.rewards.graph.subject import Authored, GraphSubject, by_sign, candidates, subjects

NOBODY = {"annotator": STATED, "profile": "none"}
"""The settings in place of an annotator's where nobody is asked."""
_INVALID = {"unknown_criterion", "itself", "roles", "duplicate"}


@dataclass(frozen=True)
class Sources:
    """All that a rubric's graph is made from. Equal ones make the same graph."""

    annotator: str
    """'authored', 'stated', or the model asked."""
    profile: str
    """What the annotator was told to look for; 'none' where nobody was asked."""
    digest: str
    """SHA-256 of it all."""
    parts: dict[str, str]
    """What it is (question, context, criteria, annotator and its settings, votes) → SHA-256 of that."""


@dataclass(frozen=True)
class Built:
    """A rubric's graph, and how it came to be."""

    subject: GraphSubject
    annotated: Annotated
    """What annotator, author or criteria say, before the votes."""
    origins: dict[str, Source]
    """Criterion → where its role comes from."""
    proposals: tuple[EdgeProposal, ...]
    """All of them in candidate order, kept or dropped."""
    graph: Graph
    sources: Sources


def build(
    subjects: Mapping[str, GraphSubject],
    written: Mapping[str, Authored],
    votes: Sequence[Vote],
    annotator: Annotator | None,
) -> list[Built]:
    """The graph of every rubric, in their order.

    written: graphs that a person wrote; annotator: who makes the others; without one they hold what the criteria state
    themselves.
    """
    settings = settings_of(annotator.plan, annotator.backend.model, annotator.examples) if annotator else NOBODY
    sources = sources_of(subjects, written, votes, settings)
    voted_on = ballots(votes)
    others = [subject for name, subject in subjects.items() if name not in written]
    if annotator and annotator.tell is not silent and others:
        annotator.tell(planned_calls(others, annotator))
    said = ask_graphs(others, annotator) if annotator else {}
    graphs = []
    for name, subject in subjects.items():
        ballot = voted_on.get(name, {})
        if name in written:
            graph, listed = written[name]
            edges = [EdgeProposal(e.parent, e.child, e.relation, source="authored") for e in graph.edges]
            annotated = Annotated({n.criterion_id: n.role for n in graph.nodes if n.criterion_id in listed}, edges)
        else:
            annotated = said.get(name) or Annotated(proposals=stated_dependencies(subject))
        given = {c.id: annotated.roles.get(c.id, by_sign(c)) for c in subject.criteria}
        said_by: Source = "authored" if name in written else "annotator"
        origins: dict[str, Source] = {key: said_by if key in annotated.roles else "fallback" for key in given}
        voted = {on[0]: cast(Role, vote.value) for on, vote in ballot.items() if len(on) == 1 and vote.value}
        roles = given | voted
        found = project(roles, with_votes(annotated.proposals, ballot))
        nodes = tuple(Node(criterion_id=key, role=role) for key, role in roles.items())
        kept = tuple(
            Edge(parent=edge.parent, child=edge.child, relation=cast(Relation, edge.relation))
            for edge in found
            if not edge.dropped
        )
        origins |= dict.fromkeys(voted, "vote")
        graphs.append(Built(subject, annotated, origins, found, Graph(nodes=nodes, edges=kept), sources[name]))
    return graphs


def sources_of(
    subjects: Mapping[str, GraphSubject],
    written: Mapping[str, Authored],
    votes: Sequence[Vote],
    settings: Fields,
) -> dict[str, Sources]:
    """What the graph of every rubric is made from, as `build` makes it. settings: those of the annotator."""
    rows: dict[str, list[Record]] = {name: [] for name in subjects}
    for vote in votes:
        rows[vote.rubric_id].append(vote.row)
    sources = {}
    for name, subject in subjects.items():
        whole: Record = dict(settings)
        if name in written:
            listed = sorted(written[name].listed)
            whole = {
                "annotator": "authored",
                "profile": "none",
                "graph": written[name].graph.graph_id,
                "listed": listed,
            }
        whole["votes"] = sorted(rows[name], key=lambda row: (row["subject"], row["rater_id"], row["voted_at"]))
        parts = {"question": subject.question, "context": subject.context, "criteria": subject.content, **whole}
        sources[name] = Sources(
            annotator=whole["annotator"],
            profile=whole["profile"],
            digest=subject.digest(whole),
            parts={part: digest_of(content) for part, content in parts.items()},
        )
    return sources


_CHARACTERS_PER_TOKEN, _REPLY_TOKENS = 4, 60
"""The latter for each criterion: its role, and an edge or two with a reason."""


def planned_calls(subjects: Sequence[GraphSubject], annotator: Annotator) -> str:
    """What the first calls about rubrics take, in words; those that mend a reply come on top and are not known before.
    A reply that is in the reply store costs nothing."""
    requests = list(graph_requests(subjects, annotator))
    keys = [digest(request, annotator.backend.model, annotator.backend.by_subject) for request in requests]
    known = annotator.replies.get_many(keys)
    open_ = [request for request, key in zip(requests, keys, strict=True) if key not in known]
    characters = sum(len(message.content) for request in open_ for message in request.messages)
    replies = sum(_REPLY_TOKENS * len(request.data.ids) for request in open_)
    kept = len(requests) - len(open_)
    stored = f", {kept:,} of them answered before" if kept else ""
    tokens = f"about {characters // _CHARACTERS_PER_TOKEN:,} prompt tokens and {replies:,} reply tokens"
    orders = f"{len(subjects):,} rubrics, each in {annotator.plan.orders} orders"
    return f"{orders}: {len(requests):,} calls{stored}; {tokens}"


# Graphs as rows of their tables.


def graph_row(built: Built) -> Record:
    """One graph as a row of `RubricGraphs`."""
    annotated = built.annotated
    roles = {node.criterion_id: node.role for node in built.graph.nodes}
    dropped = [proposal.dropped for proposal in built.proposals]
    return {
        "rubric_id": built.subject.rubric_id,
        "graph_id": built.graph.graph_id,
        "source_digest": built.sources.digest,
        "made_from": built.sources.parts,
        "content": built.graph.canonical(),
        "annotator": built.sources.annotator,
        "profile": built.sources.profile,
        "criteria": len(roles),
        "candidates": len(candidates(roles)),
        "proposed": sum(proposal.relation is not None for proposal in built.proposals),
        "kept": dropped.count(None),
        "invalid": sum(reason in _INVALID for reason in dropped),
        "failed": annotated.failed,
        "roles_missing": len(roles) - len(annotated.roles) if annotated.calls else 0,
        "depth": nx.dag_longest_path_length(nx.DiGraph((e.parent, e.child) for e in built.graph.edges)),
        "calls": annotated.calls,
    }


def node_rows(built: Built) -> Iterable[Record]:
    """Its criteria as rows of `GraphNodes`."""
    for position, (criterion, node) in enumerate(zip(built.subject.criteria, built.graph.nodes, strict=True)):
        yield {
            "rubric_id": built.subject.rubric_id,
            "graph_id": built.graph.graph_id,
            "criterion_id": criterion.id,
            "position": position,
            "text": criterion.text,
            "weight": criterion.weight,
            "role": node.role,
            "source": built.origins[criterion.id],
        }


def edge_rows(built: Built) -> Iterable[Record]:
    """Its proposals as rows of `GraphEdges`."""
    for number, proposal in enumerate(built.proposals):
        yield {
            "rubric_id": built.subject.rubric_id,
            "graph_id": built.graph.graph_id,
            "proposal": number,
            "parent": proposal.parent,
            "child": proposal.child,
            "relation": proposal.relation,
            "confidence": proposal.confidence,
            "source": proposal.source,
            "kept": proposal.dropped is None,
            "dropped": proposal.dropped,
            "detail": proposal.detail,
        }


def rubric_subjects(run: Run, items: TableRef, bundles: TableRef) -> dict[str, GraphSubject]:
    """Rubric → what its graph is made of, in the order of the bundles."""
    columns = ["item_id", "rubric_id", "question", "context"]
    return subjects(run.read(items, columns).to_pylist(), unlocked(run.read(bundles).to_pylist()))
