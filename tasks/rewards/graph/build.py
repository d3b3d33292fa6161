"""From queries and rubrics to graphs: roles, candidate pairs, dependencies, projection, and the votes in between.

What annotating takes, said before the first call; asks no model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, cast

import networkx as nx

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node, Relation, Role
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.tables.rubrics import Source
from rubricflow.tasks.core.llm.request import Request, digest
from rubricflow.tasks.core.store.files import digest_of
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.rewards.graph.annotator import Annotator, ask_roles, role_requests
from rubricflow.tasks.rewards.graph.dependencies import PairQuestion, ask_dependencies, pair_requests
from rubricflow.tasks.rewards.graph.project import Ballot, EdgeProposal, Vote, VoteOutcome, ballots, project, with_votes
from rubricflow.tasks.rewards.graph.subject import Authored, GraphSubject, by_sign, candidates, subjects

_INVALID = {"unknown_criterion", "itself", "roles", "duplicate"}


@dataclass(frozen=True)
class Sources:
    """All that a rubric's graph is made from. Equal ones make the same graph."""

    annotator: str
    """'authored', or the model asked."""
    profile: str
    """What the annotator was told to look for; 'none' where nobody was asked."""
    digest: str
    """SHA-256 of it all."""
    parts: dict[str, str]
    """What it is (question, context, criteria, annotator and its settings, votes) → SHA-256 of that."""


@dataclass(frozen=True)
class GraphDraft:
    """A rubric's roles and proposals before the projection."""

    subject: GraphSubject
    roles: dict[str, Role]
    origins: dict[str, Source]
    """Criterion → where its role comes from."""
    roles_missing: int = 0
    """Criteria whose role the annotator was to give and did not."""
    proposals: Sequence[EdgeProposal] = ()
    calls: tuple[dict[str, Any], ...] = ()
    """Rows of `Call`."""


@dataclass(frozen=True)
class Built:
    """A rubric's graph, and how it came to be."""

    draft: GraphDraft
    """Its proposals are those of annotator and author, before the votes."""
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

    written: graphs that a person wrote; annotator: who makes the others, None where there are no others.
    """
    sources = sources_of(subjects, written, votes, annotator.settings if annotator else {})
    ballot = {name: dict[tuple[str, ...], VoteOutcome]() for name in subjects} | ballots(votes)
    drafts: dict[str, GraphDraft] = {}
    for name, one in written.items():
        given = {node.criterion_id: node.role for node in one.graph.nodes}
        origins: dict[str, Source] = {key: "authored" if key in one.listed else "fallback" for key in given}
        edges = one.graph.edges
        proposals = [EdgeProposal(edge.parent, edge.child, edge.relation, source="authored") for edge in edges]
        drafts[name] = GraphDraft(subjects[name], *_voted_roles(given, origins, ballot[name]), proposals=proposals)
    others = [subject for name, subject in subjects.items() if name not in written]
    if others:
        assert annotator is not None
        drafts |= _annotated(others, annotator, ballot)
    graphs = []
    for name in subjects:
        draft = drafts[name]
        found = project(draft.roles, with_votes(draft.proposals, ballot[name]))
        nodes = tuple(Node(criterion_id=key, role=role) for key, role in draft.roles.items())
        kept = tuple(
            Edge(parent=edge.parent, child=edge.child, relation=cast(Relation, edge.relation))
            for edge in found
            if not edge.dropped
        )
        graphs.append(Built(draft, found, Graph(nodes=nodes, edges=kept), sources[name]))
    return graphs


def sources_of(
    subjects: Mapping[str, GraphSubject],
    written: Mapping[str, Authored],
    votes: Sequence[Vote],
    settings: Mapping[str, Any],
) -> dict[str, Sources]:
    """What the graph of every rubric is made from, as `build` makes it. settings: those of the annotator."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in subjects}
    for vote in votes:
        rows[vote.rubric_id].append(vote.row)
    sources = {}
    for name, subject in subjects.items():
        whole: dict[str, Any] = dict(settings)
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


def _annotated(
    others: Sequence[GraphSubject], annotator: Annotator, ballot: Mapping[str, Ballot]
) -> dict[str, GraphDraft]:
    """Votes on roles count before pairs are made of them."""
    if annotator.is_planned:
        tell_plan(others, annotator)
    roled = ask_roles(others, annotator)
    drafts: dict[str, GraphDraft] = {}
    for subject in others:
        said = roled[subject.rubric_id].roles
        given = {criterion.id: said.get(criterion.id, by_sign(criterion)) for criterion in subject.criteria}
        origins: dict[str, Source] = {name: "annotator" if name in said else "fallback" for name in given}
        voted = _voted_roles(given, origins, ballot[subject.rubric_id])
        drafts[subject.rubric_id] = GraphDraft(subject, *voted, roles_missing=len(given) - len(said))
    asked = [_questions(draft.subject, draft.roles) for draft in drafts.values()]
    if annotator.is_planned:
        annotator.tell(f"pairs: {planned_calls(pair_requests(asked, annotator), annotator)}")
    labelled = ask_dependencies(asked, annotator)
    annotated = dict[str, GraphDraft]()
    for name, draft in drafts.items():
        calls = (*roled[name].calls, *labelled[name].calls)
        annotated[name] = replace(draft, proposals=labelled[name].proposals, calls=calls)
    return annotated


def tell_plan(others: Sequence[GraphSubject], annotator: Annotator) -> None:
    """Says what annotating rubrics takes, before anything is asked."""
    by_roles = [_questions(subject, {c.id: by_sign(c) for c in subject.criteria}) for subject in others]
    annotator.tell(f"roles of {len(others):,} rubrics: {planned_calls(role_requests(others, annotator), annotator)}")
    annotator.tell(f"pairs, of roughly so many: {planned_calls(pair_requests(by_roles, annotator), annotator)}")


def _questions(subject: GraphSubject, roles: Mapping[str, Role]) -> PairQuestion:
    """All that is asked about a rubric's pairs."""
    return PairQuestion(subject, roles, tuple(candidates(roles)))


def _voted_roles(
    given: Mapping[str, Role], origins: Mapping[str, Source], ballot: Ballot
) -> tuple[dict[str, Role], dict[str, Source]]:
    """Roles and where they come from, as the votes leave them; a tie changes nothing."""
    voted = {on[0]: cast(Role, outcome.value) for on, outcome in ballot.items() if len(on) == 1 and outcome.value}
    return {**given, **voted}, {**origins, **dict.fromkeys(voted, "vote")}


_CHARACTERS_PER_TOKEN = 4
_REPLY_TOKENS = {"roles": 12, "pairs": 20}
"""Of a reply, for each role or pair."""
_TOGETHER = 1_000


def planned_calls(requests: Iterable[Request], annotator: Annotator) -> str:
    """What the first calls of these requests for roles or pairs take, in words; those that mend a reply come on top and
    are not known before. A reply that is in the reply store costs nothing."""
    calls = kept = characters = replies = 0
    left = iter(requests)
    while together := list(islice(left, _TOGETHER)):
        keys = [digest(request, annotator.backend.model, annotator.backend.by_subject) for request in together]
        known = annotator.replies.get_many(keys)
        calls = calls + len(together)
        kept = kept + sum(key in known for key in keys)
        for request in (request for request, key in zip(together, keys, strict=True) if key not in known):
            characters += sum(len(message.content) for message in request.messages)
            (asked,) = request.keys
            replies += _REPLY_TOKENS[asked] * len(request.data.ids if asked == "roles" else request.data.pairs)
    stored = f", {kept:,} of them answered before" if kept else ""
    tokens = f"about {characters // _CHARACTERS_PER_TOKEN:,} prompt tokens and {replies:,} reply tokens"
    return f"{calls:,} calls{stored}; {tokens}"


# Graphs as rows of their tables.


def graph_row(built: Built) -> dict[str, Any]:
    """One graph as a row of `RubricGraphs`."""
    draft = built.draft
    dropped = [proposal.dropped for proposal in built.proposals]
    return {
        "rubric_id": draft.subject.rubric_id,
        "graph_id": built.graph.graph_id,
        "source_digest": built.sources.digest,
        "made_from": built.sources.parts,
        "content": built.graph.canonical(),
        "annotator": built.sources.annotator,
        "profile": built.sources.profile,
        "criteria": len(draft.roles),
        "candidates": len(candidates(draft.roles)),
        "proposed": sum(proposal.relation is not None for proposal in built.proposals),
        "kept": dropped.count(None),
        "invalid": sum(reason in _INVALID for reason in dropped),
        "failed": sum(proposal.dropped == "failed" for proposal in draft.proposals),
        "roles_missing": draft.roles_missing,
        "depth": nx.dag_longest_path_length(nx.DiGraph((e.parent, e.child) for e in built.graph.edges)),
        "calls": list(draft.calls),
    }


def node_rows(built: Built) -> Iterable[dict[str, Any]]:
    """Its criteria as rows of `GraphNodes`."""
    draft = built.draft
    for position, criterion in enumerate(draft.subject.criteria):
        yield {
            "rubric_id": draft.subject.rubric_id,
            "graph_id": built.graph.graph_id,
            "criterion_id": criterion.id,
            "position": position,
            "text": criterion.text,
            "weight": criterion.weight,
            "role": draft.roles[criterion.id],
            "source": draft.origins[criterion.id],
        }


def edge_rows(built: Built) -> Iterable[dict[str, Any]]:
    """Its proposals as rows of `GraphEdges`."""
    for number, proposal in enumerate(built.proposals):
        yield {
            "rubric_id": built.draft.subject.rubric_id,
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
