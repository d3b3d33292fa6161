"""The door of graph: items and bundles in; graphs with their nodes and edges, and the votes on them, out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tasks.contracts.backends import speaks
from tasks.contracts.bundle import unlocked
from tasks.contracts.reference import TableRef
from tasks.contracts.schema import Row
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.graph import GraphEdges, GraphNodes, RubricGraphs
from tasks.contracts.tables.people import Votes
from tasks.graph.annotator import Annotator
from tasks.graph.authored import authored
from tasks.graph.build import build
from tasks.graph.heuristic import rules_of_thumb
from tasks.graph.rows import edge_rows, graph_row, node_rows
from tasks.graph.subject import subjects
from tasks.graph.votes import read_votes
from tasks.llm.budget import Budgeted, Purse
from tasks.llm.calls import telling
from tasks.llm.opening import KeyOf, open_backend
from tasks.llm.stores import open_replies
from tasks.monitor.runs import task
from tasks.store.naming import named
from tasks.store.shards import Rows
from tasks.store.warehouse import Run


class Graphed(NamedTuple):
    """What graph writes."""

    graphs: TableRef
    nodes: TableRef
    edges: TableRef
    votes: TableRef


@task(task_run_name=named("graph"))
def graph(
    run: Run,
    study: Study,
    base: Path,
    items: TableRef,
    bundles: TableRef,
    key_of: KeyOf = os.environ.get,
    purse: Purse | None = None,
) -> Graphed:
    """Read or make the graph of every rubric, from its query and criteria alone.

    The query of a rubric with several items is that of the first by id. key_of: name of a credential → its value, see
    `Engine.key`. purse: what a language model may take; what that takes is said before, and BudgetSpent ends it where
    the purse does not suffice. InputError where an authored graph or a vote names what is not there or breaks a rule;
    BackendError where the annotator cannot be used. A killed run asks nothing twice: replies are kept as they come.
    """

    def make() -> dict[type[Row], Rows]:
        plan = study.graph
        columns = ["item_id", "rubric_id", "question", "context"]
        found = subjects(run.read(items, columns).to_pylist(), unlocked(run.read(bundles).to_pylist()))
        written = authored(base / plan.file, found) if plan.file else {}
        votes = read_votes(base / plan.votes, found) if plan.votes else []
        with open_replies(run.warehouse.replies) as replies:
            rules = rules_of_thumb()
            asking = len(written) < len(found)
            backend = open_backend(plan, base, replies, key_of) if asking and speaks(plan) else rules
            paid = Budgeted(backend, purse) if purse and backend.reads_prose else backend
            with telling(paid, _say) as told:
                annotator = Annotator(told, replies, plan, _say) if asking else None
                built = build(found, written, votes, annotator)
        return {
            RubricGraphs: [graph_row(one) for one in built],
            GraphNodes: [row for one in built for row in node_rows(one)],
            GraphEdges: [row for one in built for row in edge_rows(one)],
            Votes: [vote.row for vote in votes],
        }

    run.once("graph", make)
    return Graphed(*(run.ref(row, "graph") for row in (RubricGraphs, GraphNodes, GraphEdges, Votes)))


def _say(line: str) -> None:
    print(f"graph: {line}")
