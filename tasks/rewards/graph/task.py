"""Stage entry point of graph: items and bundles in; graphs with their nodes and edges, and the votes on them, out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts.backends import is_generative
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.engine import HERE, Placement
from rubricflow.tasks.core.contracts.settings.reward import Graphs
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.people import Votes
from rubricflow.tasks.core.contracts.tables.rubrics import GraphEdges, GraphNodes, RubricGraphs, without_graph
from rubricflow.tasks.core.llm.backends.replay import AskedByWorkers, UnansweredError
from rubricflow.tasks.core.llm.calls import Watched, telling
from rubricflow.tasks.core.llm.opening import model_of, open_backend
from rubricflow.tasks.core.llm.reply_store import Replies, open_replies, shown_place
from rubricflow.tasks.core.llm.request import Reply, Request, digest
from rubricflow.tasks.core.monitor.piece_progress import PieceCounts
from rubricflow.tasks.core.monitor.runs import credential, task
from rubricflow.tasks.core.monitor.shared_stage import (
    Piece,
    PieceResult,
    SharedStage,
    share_out,
    with_absolute_paths,
)
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run, Tables
from rubricflow.tasks.rewards.graph.annotator import Annotator, worked_examples
from rubricflow.tasks.rewards.graph.build import (
    Built,
    build,
    edge_rows,
    graph_row,
    node_rows,
    planned_calls,
    rubric_subjects,
)
from rubricflow.tasks.rewards.graph.project import Vote, read_votes
from rubricflow.tasks.rewards.graph.subject import Authored, GraphSubject, authored

PACK = 50
"""Rubrics of a pack: they take 100 calls."""
_NO_REPLY = "no_reply: the backend gave no reply"


class Graphed(NamedTuple):
    """What graph writes."""

    graphs: TableRef
    nodes: TableRef
    edges: TableRef
    votes: TableRef


class GraphAssignment(NamedTuple):
    """What is annotated, how, and where it is: everything by name and reference but the examples."""

    run: Run
    plan: Graphs
    base: Path
    items: TableRef
    bundles: TableRef
    examples: str


class _Inputs(NamedTuple):
    """What all graphs of a run are made of."""

    subjects: dict[str, GraphSubject]
    written: Mapping[str, Authored]
    votes: Sequence[Vote]


@task(task_run_name=named("graph"))
def graph(
    run: Run,
    study: Study,
    base: Path,
    items: TableRef,
    bundles: TableRef,
    placement: Placement = HERE,
) -> Graphed:
    """Read or make the graph of every rubric, from its query and criteria alone.

    The query of a rubric with several items is that of the first by id. Where the study names no language model,
    rubrics without a graph by a person hold what their criteria state themselves, and that is said. What a model takes
    is said before, and BudgetSpent ends it where the present budget does not suffice. placement: who asks a model that
    is asked now; the graphs are the same. InputError where an authored graph or a vote names what is not there or
    breaks a rule; BackendError where the annotator cannot be used. A killed run keeps what arrived: replies are kept as
    they come.
    """

    def make() -> Tables:
        plan = study.graph
        subjects = rubric_subjects(run, items, bundles)
        written = authored(base / plan.file, subjects) if plan.file else {}
        examples = worked_examples(plan.examples, written, subjects)
        assignment = GraphAssignment(run, plan, base, items, bundles, examples)
        votes = read_votes(base / plan.votes, subjects) if plan.votes else []
        inputs = _Inputs(subjects, written, votes)
        if placement.is_local or plan.engine is None or not is_generative(plan):
            graphs = _built_here(assignment, inputs)
        else:
            graphs = _built_by_workers(assignment, inputs, placement)
        return {
            RubricGraphs: [graph_row(built) for built in graphs],
            GraphNodes: [row for built in graphs for row in node_rows(built)],
            GraphEdges: [row for built in graphs for row in edge_rows(built)],
            Votes: [vote.row for vote in votes],
        }

    run.once("graph", make)
    graphed = Graphed(*(run.ref(row, "graph") for row in (RubricGraphs, GraphNodes, GraphEdges, Votes)))
    said = without_graph(run.read(graphed.graphs), run.read(graphed.edges))
    if said:
        _say(said)
    return graphed


def _built_here(assignment: GraphAssignment, inputs: _Inputs) -> list[Built]:
    """All graphs, asked for in this process."""
    run, plan, base, *_, examples = assignment
    if inputs.subjects.keys() == inputs.written.keys() or not is_generative(plan):
        return build(*inputs, None)
    with open_replies(run.warehouse.replies) as replies, telling(_say):
        return build(*inputs, Annotator(open_backend(plan, base, replies, credential), replies, plan, _say, examples))


def _say(line: str) -> None:
    print(f"graph: {line}")


# Rubrics that the workers of a cluster ask about, in packs: every reply goes into the store, and the command builds the
# graphs of what it finds there.


def pieces_of(inputs: _Inputs) -> list[Piece]:
    """The rubrics that no person wrote a graph for, in packs of at most PACK, in their order."""
    names = [name for name in inputs.subjects if name not in inputs.written]
    pieces = []
    for start in range(0, len(names), PACK):
        pack = names[start : start + PACK]
        pieces.append(Piece(f"graph of {pack[0]} to {pack[-1]}", len(pack), content=pack))
    return pieces


def _built(piece: Piece, subjects: Mapping[str, GraphSubject], annotator: Annotator) -> list[Built]:
    """The graphs of a piece's rubrics, but for votes, which change no request."""
    return build({name: subjects[name] for name in piece.content}, {}, [], annotator)


def _built_by_workers(assignment: GraphAssignment, inputs: _Inputs, placement: Placement) -> list[Built]:
    """All graphs, of the replies that workers put into the store; a single pack is asked about here."""
    run, plan, base, *_, examples = assignment
    place = run.warehouse.replies

    def reading(replies: Replies, errors: Mapping[str, str]) -> Annotator:
        """Takes its replies from the store, and asks no model."""
        backend = AskedByWorkers(model_of(plan, base), errors, shown_place(place))
        return Annotator(backend, replies, plan, examples=examples)

    lacking = list[Piece]()
    with open_replies(place) as replies:
        annotator = reading(replies, {})
        for piece in pieces_of(inputs):
            try:
                _built(piece, inputs.subjects, annotator)
            except UnansweredError:
                lacking.append(piece)
        if len(lacking) > 1:
            names = chain.from_iterable(piece.content for piece in lacking)
            _say(planned_calls([inputs.subjects[name] for name in names], annotator))
    if len(lacking) == 1:
        return _built_here(assignment, inputs)
    errors: Mapping[str, str] = {}
    if lacking:
        rubrics = sum(piece.members for piece in lacking)
        errors = share_out(share_of(assignment), lambda _: lacking, rubrics, len(lacking), placement)
    with open_replies(place) as replies:
        return build(*inputs, reading(replies, errors))


def share_of(assignment: GraphAssignment) -> SharedStage:
    """The stage as workers get it."""
    sent = assignment._replace(run=with_absolute_paths(assignment.run), base=assignment.base.resolve())
    written = assignment.bundles.stage, "all"
    members = "rubrics", "requests failed"
    return SharedStage("graph", "graph", members, sent.run, sent, written, _open_rubrics, _ask_about, sent.plan)


class _OpenedRubrics(NamedTuple):
    """What a command's packs are worked with."""

    subjects: dict[str, GraphSubject]
    annotator: Annotator


def _open_rubrics(assignment: GraphAssignment) -> _OpenedRubrics:
    run, plan, base, items, bundles, examples = assignment
    replies = open_replies(run.warehouse.replies)
    annotator = Annotator(open_backend(plan, base, replies, credential), replies, plan, examples=examples)
    return _OpenedRubrics(rubric_subjects(run, items, bundles), annotator)


def _ask_about(opened: _OpenedRubrics, piece: Piece) -> PieceResult:
    """Asks for all that a pack's graphs are made of, so that every reply is in the store."""
    subjects, annotator = opened
    backend = annotator.backend
    replied = {}

    def keep(request: Request, reply: Reply) -> None:
        replied[digest(request, backend.model, backend.by_subject)] = reply

    graphs = _built(piece, subjects, replace(annotator, backend=Watched(backend, keep)))
    calls = [call for built in graphs for call in built.annotated.calls]
    lacking = [call["request_digest"] for call in calls if call["reply"] is None]
    errors = {key: (replied[key].error if key in replied else None) or _NO_REPLY for key in lacking}
    tokens = sum((reply.prompt_tokens or 0) + (reply.completion_tokens or 0) for reply in replied.values())
    counts = PieceCounts(len(graphs), len(errors), len(replied), len(calls) - len(replied), tokens)
    return PieceResult(counts, errors)
