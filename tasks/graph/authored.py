"""Graphs that a person wrote: they are taken as they are, or refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError

from tasks.contracts.errors import InputError
from tasks.contracts.graph import Graph, Relation, Role
from tasks.contracts.schema import Frozen
from tasks.contracts.settings.written import parse, read_yaml
from tasks.graph.subject import GraphSubject, by_sign


class WrittenNode(Frozen):
    """A criterion in its role, as the file has it."""

    criterion_id: str
    role: str


class WrittenEdge(Frozen):
    """An edge as the file has it."""

    parent: str
    child: str
    relation: str


class WrittenGraph(Frozen):
    """One rubric's graph as the file has it."""

    rubric_id: str
    nodes: tuple[WrittenNode, ...] = ()
    """Criteria that are not listed are penalties where their weight is negative, and core otherwise."""
    edges: tuple[WrittenEdge, ...] = ()


class GraphFile(Frozen):
    """A YAML file of authored graphs."""

    graphs: tuple[WrittenGraph, ...]


class Authored(NamedTuple):
    """A graph that a person wrote."""

    graph: Graph
    listed: frozenset[str]
    """The criteria whose roles the author gave."""


def authored(path: Path, subjects: Mapping[str, GraphSubject]) -> dict[str, Authored]:
    """Rubric → its authored graph.

    InputError names file, rubric, node or edge and rule: an unknown rubric, criterion, role or relation, a rubric, node
    or edge given twice, an edge from a criterion to itself, edges in a circle. Roles do not bind the author's edges.
    """
    graphs: dict[str, Authored] = {}
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
    listed: dict[str, Any] = {}
    for node in written.nodes:
        where = f"rubric '{written.rubric_id}', node '{node.criterion_id}'"
        if node.criterion_id not in roles or node.criterion_id in listed:
            rule = "is given twice" if node.criterion_id in listed else "the rubric has no such criterion"
            raise InputError(f"{where}: {rule}", file=path, field="nodes")
        if node.role not in get_args(Role):
            raise InputError(f"{where}: '{node.role}' is none of {', '.join(get_args(Role))}", file=path, field="role")
        listed[node.criterion_id] = node.role
    for edge in written.edges:
        if edge.relation not in get_args(Relation):
            where = f"rubric '{written.rubric_id}', edge {edge.parent} → {edge.child}"
            rule = f"'{edge.relation}' is none of {', '.join(get_args(Relation))}"
            raise InputError(f"{where}: {rule}", file=path, field="relation")
    try:
        nodes = [{"criterion_id": name, "role": role} for name, role in (roles | listed).items()]
        graph = Graph.model_validate({"nodes": nodes, "edges": [edge.model_dump() for edge in written.edges]})
    except ValidationError as error:
        rule = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise InputError(f"rubric '{written.rubric_id}': {rule}", file=path, field="edges") from error
    return Authored(graph, frozenset(listed))
