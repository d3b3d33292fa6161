"""The rubric graph: which criterion licenses which (GEAR, section 3.2)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from pydantic import model_validator

from rubricflow.tasks.core.contracts import Meanings
from rubricflow.tasks.core.contracts.schema import Frozen

Role = Literal["core", "additional", "penalty", "applicability"]
ROLES: Meanings = {
    "core": "a primary requirement",
    "additional": "a refinement that is not central",
    "penalty": "an error or omission that costs",
    "applicability": "a condition that decides whether another criterion is relevant",
}
"""Appendix A.2."""
Relation = Literal["weak_prerequisite", "strong_prerequisite", "activation"]
RELATIONS: Mapping[Relation, str] = {
    "weak_prerequisite": "weak prerequisite",
    "strong_prerequisite": "strong prerequisite",
    "activation": "activation",
}
"""weak_prerequisite: without the parent the child still earns part of its own; strong_prerequisite: little of it;
activation: without the parent the child does not apply (appendix A.4)."""
PREREQUISITES: tuple[Relation, ...] = ("weak_prerequisite", "strong_prerequisite")
CANDIDATES: Mapping[tuple[Role, Role], tuple[Relation, ...]] = {
    ("core", "core"): PREREQUISITES,
    ("core", "additional"): PREREQUISITES,
    ("core", "penalty"): PREREQUISITES,
    ("applicability", "additional"): ("activation",),
    ("applicability", "penalty"): ("activation",),
}
"""Roles of parent and child → the relations that may hold between them; no others are proposed (appendix A.3)."""


class Node(Frozen):
    """A criterion in its role."""

    criterion_id: str
    """The criterion; of one with sub-points the whole."""
    role: Role
    """What it does in the rubric. Roles guide construction and do not enter a reward."""


class Edge(Frozen):
    """The parent licenses the child."""

    parent: str
    """The licensing criterion."""
    child: str
    """The licensed one."""
    relation: Relation
    """How strongly."""


class Graph(Frozen):
    """A rubric's dependencies, acyclic. `graph_id` is the SHA-256 of this content and of nothing else."""

    nodes: tuple[Node, ...]
    """Every criterion of the rubric that is no sub-point, in the rubric's order."""
    edges: tuple[Edge, ...] = ()
    """In the order of their parents, then children, in the rubric."""

    @model_validator(mode="after")
    def _is_a_graph(self) -> Graph:
        names = {node.criterion_id for node in self.nodes}
        if len(names) < len(self.nodes):
            counts = Counter(node.criterion_id for node in self.nodes)
            raise ValueError(f"criterion '{counts.most_common(1)[0][0]}' is given twice")
        parents: dict[str, set[str]] = {}
        for edge in self.edges:
            for name in (edge.parent, edge.child):
                if name not in names:
                    raise ValueError(f"edge {edge.parent} → {edge.child}: there is no criterion '{name}'")
            if edge.parent == edge.child:
                raise ValueError(f"criterion '{edge.parent}' cannot license itself")
            if edge.parent in parents.setdefault(edge.child, set()):
                raise ValueError(f"edge {edge.parent} → {edge.child} is given twice")
            parents[edge.child].add(edge.parent)
        try:
            TopologicalSorter(parents).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1][1:]
            first = circle.index(min(circle))  # it may be found from any of its edges
            ordered = [*circle[first:], *circle[: first + 1]]
            raise ValueError(f"the edges go in a circle: {' → '.join(ordered)}") from None
        return self

    def canonical(self) -> str:
        """The content as JSON with sorted keys and no spaces."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def graph_id(self) -> str:
        """SHA-256 of the canonical content, 64 hex digits."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()
