"""What a graph is made of: a rubric's criteria and the query it belongs to. Never a response.

The pairs of criteria that may depend on each other at all (GEAR, appendix A.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from rubricflow.tasks.core.contracts import Fields
from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.graph import CANDIDATES, Edge, Graph, Node, Relation, Role
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.written import parse, read_yaml
from rubricflow.tasks.core.store.files import digest_of


class WrittenGraph(Frozen):
    """One rubric's graph as the file has it."""

    rubric_id: str
    nodes: tuple[Node, ...] = ()
    """Criteria that are not listed are penalties where their weight is negative, and core otherwise."""
    edges: tuple[Edge, ...] = ()


class GraphFile(Frozen):
    """A YAML file of authored graphs."""

    graphs: tuple[WrittenGraph, ...]


class Authored(NamedTuple):
    """A graph that a person wrote."""

    graph: Graph
    listed: frozenset[str]
    """The criteria whose roles the author gave."""


@dataclass(frozen=True, eq=False)
class GraphSubject:
    """A rubric with its query. Two are the same only where they are one object."""

    rubric_id: str
    """The rubric."""
    question: str
    """What the responses answer; of a rubric with several items the question of the first one by id."""
    context: str | None
    """Material that belongs to the question."""
    criteria: tuple[Criterion, ...]
    """Those that are no sub-points, in the rubric's order: the graph's nodes."""

    @cached_property
    def by_id(self) -> dict[str, Criterion]:
        """The criteria by id, in order."""
        return {criterion.id: criterion for criterion in self.criteria}

    @property
    def ids(self) -> tuple[str, ...]:
        """Their ids, in order."""
        return tuple(self.by_id)

    @property
    def content(self) -> list[list[Any]]:
        """Id, text and weight of each criterion."""
        return [[criterion.id, criterion.text, criterion.weight] for criterion in self.criteria]

    def digest(self, made_with: Fields) -> str:
        """SHA-256 of this and of what it is made into a graph with."""
        return digest_of([self.question, self.context, self.content, made_with])


def subjects(items: Iterable[Fields], bundles: Mapping[str, Bundle]) -> dict[str, GraphSubject]:
    """Rubric → what its graph is made of.

    items: rows with item_id, rubric_id, question, context; a rubric that no item names has an empty query.
    """
    first: dict[str, Fields] = {}
    for item in sorted(items, key=lambda item: str(item["item_id"])):
        first.setdefault(item["rubric_id"], item)
    nothing = {"question": "", "context": None}
    return {
        name: GraphSubject(name, (item := first.get(name, nothing))["question"], item["context"], bundle.whole)
        for name, bundle in bundles.items()
    }


Pair = tuple[str, str]
"""(parent, child), by id."""


def by_sign(criterion: Criterion) -> Role:
    """The role of a criterion without any other source: penalty for a negative weight, core otherwise."""
    return "penalty" if criterion.weight < 0 else "core"


def roles_by_sign(criterion: Criterion) -> tuple[Role, ...]:
    """The roles that a criterion can have by the sign of its weight: what costs points is a penalty and nothing that a
    response should meet; both kinds may state a condition (GEAR, appendix A.2)."""
    return ("penalty", "applicability") if criterion.weight < 0 else ("core", "additional", "applicability")


def allowed(roles: Mapping[str, Role], pair: Pair) -> tuple[Relation, ...]:
    """The relations that the roles of a pair allow; none for a criterion with itself."""
    parent, child = pair
    return () if parent == child else CANDIDATES.get((roles[parent], roles[child]), ())


def candidates(roles: Mapping[str, Role]) -> list[Pair]:
    """The ordered pairs that the roles allow, row by row: by parent, then by child.

    roles: criterion → role, in the rubric's order.
    """
    return [pair for pair in permutations(roles, 2) if allowed(roles, pair)]


# Graphs that a person wrote: they are taken as they are, or refused by name.


def authored(path: Path, subjects: Mapping[str, GraphSubject]) -> dict[str, Authored]:
    """Rubric → its authored graph.

    InputError names file, rubric, node or edge and rule: an unknown rubric, criterion, role or relation, a rubric, node
    or edge given twice, an edge from a criterion to itself, edges in a circle. Roles do not bind the author's edges.
    """
    graphs = {}
    for written in parse(GraphFile, read_yaml(path), path).graphs:
        name = written.rubric_id
        if name not in subjects:
            hint = f"there are {', '.join(list(subjects)[:20])}"
            raise InputError(f"there is no rubric '{name}'", file=path, field="rubric_id", hint=hint)
        if name in graphs:
            raise InputError(f"the graph of rubric '{name}' is given twice", file=path, field="rubric_id")
        graphs[name] = _as_graph(written, subjects[name], path)
    return graphs


def _as_graph(written: WrittenGraph, subject: GraphSubject, path: Path) -> Authored:
    roles = {criterion.id: by_sign(criterion) for criterion in subject.criteria}
    listed = {}
    for node in written.nodes:
        if node.criterion_id not in roles or node.criterion_id in listed:
            rule = "is given twice" if node.criterion_id in listed else "the rubric has no such criterion"
            where = f"rubric '{written.rubric_id}', node '{node.criterion_id}'"
            raise InputError(f"{where}: {rule}", file=path, field="nodes")
        listed[node.criterion_id] = node.role
    try:
        nodes = tuple(Node(criterion_id=name, role=role) for name, role in (roles | listed).items())
        graph = Graph(nodes=nodes, edges=written.edges)
    except ValidationError as error:
        rule = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"rubric '{written.rubric_id}': {rule}", file=path, field="edges") from error
    return Authored(graph, frozenset(listed))
