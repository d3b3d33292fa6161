"""Graphs as rows of their tables.

Tables of a run as graph building reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import networkx as nx

from tasks.contracts.bundle import unlocked
from tasks.contracts.reference import TableRef
from tasks.graph.build import Built
from tasks.graph.subject import GraphSubject, candidates, subjects
from tasks.store.warehouse import Run

_INVALID = {"unknown_criterion", "itself", "roles", "duplicate"}


def graph_row(built: Built) -> dict[str, Any]:
    """One graph as a row of `RubricGraphs`."""
    draft, dropped = built.draft, [proposal.dropped for proposal in built.proposals]
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
