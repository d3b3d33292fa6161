"""The door of graph: items and bundles in; graphs with their nodes and edges, and the votes on them, out."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts.backends import is_generative
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.engine import HERE, Placement
from rubricflow.tasks.core.contracts.settings.reward import Graphs
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.people import Votes
from rubricflow.tasks.core.contracts.tables.rubrics import GraphEdges, GraphNodes, RubricGraphs
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.backends.replay import AskedByWorkers
from rubricflow.tasks.core.llm.budget import Budgeted, TokenBudget
from rubricflow.tasks.core.llm.calls import telling
from rubricflow.tasks.core.llm.opening import model_of, open_backend
from rubricflow.tasks.core.llm.reply_store import Replies, open_replies, shown_place
from rubricflow.tasks.core.llm.terms import (
    PieceNames,
    PieceProgress,
    Terms,
    concurrency,
    terms_of,
    tokens_drawn,
    with_absolute_paths,
)
from rubricflow.tasks.core.monitor.artifacts import saying
from rubricflow.tasks.core.monitor.credentials import credential
from rubricflow.tasks.core.monitor.crew import Crew
from rubricflow.tasks.core.monitor.engines import on_engine
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Rows, Run
from rubricflow.tasks.core.store.workers import DESKS
from rubricflow.tasks.rewards.graph.annotator import Annotator
from rubricflow.tasks.rewards.graph.build import (
    Built,
    build,
    edge_rows,
    graph_row,
    node_rows,
    rubric_subjects,
    tell_plan,
)
from rubricflow.tasks.rewards.graph.heuristic import rules_of_thumb
from rubricflow.tasks.rewards.graph.packs import (
    PACK,
    AnsweredPack,
    GraphAssignment,
    RubricPack,
    RubricWorker,
    SentGraphAssignment,
    is_answered,
    packs_of,
)
from rubricflow.tasks.rewards.graph.subject import Authored, GraphSubject, authored
from rubricflow.tasks.rewards.graph.votes import Vote, read_votes

_WORKER = RubricWorker(DESKS)


class Graphed(NamedTuple):
    """What graph writes."""

    graphs: TableRef
    nodes: TableRef
    edges: TableRef
    votes: TableRef


class _Inputs(NamedTuple):
    """What all graphs of a run are made of."""

    subjects: dict[str, GraphSubject]
    written: Mapping[str, Authored]
    votes: Sequence[Vote]

    @property
    def asked(self) -> dict[str, GraphSubject]:
        """The rubrics whose graph nobody wrote."""
        return {name: subject for name, subject in self.subjects.items() if name not in self.written}


@task(task_run_name=named("graph"))
def graph(
    run: Run,
    study: Study,
    base: Path,
    items: TableRef,
    bundles: TableRef,
    budget: TokenBudget | None = None,
    placement: Placement = HERE,
) -> Graphed:
    """Read or make the graph of every rubric, from its query and criteria alone.

    The query of a rubric with several items is that of the first by id. budget: what a language model may take; what
    that takes is said before, and BudgetSpent ends it where the budget does not suffice. placement: who asks a model
    that is asked now; the graphs are the same. InputError where an authored graph or a vote names what is not there or
    breaks a rule; BackendError where the annotator cannot be used. A killed run keeps what arrived: replies are kept as
    they come.
    """

    def make() -> dict[type[Row], Rows]:
        plan, assignment = study.graph, GraphAssignment(run, study.graph, base, items, bundles)
        subjects = rubric_subjects(run, items, bundles)
        written = authored(base / plan.file, subjects) if plan.file else {}
        votes = read_votes(base / plan.votes, subjects) if plan.votes else []
        inputs = _Inputs(subjects, written, votes)
        if placement.is_local or plan.engine is None or not is_generative(plan):
            graphs = _built_here(assignment, inputs, budget)
        else:
            graphs = _built_by_workers(assignment, inputs, budget, placement)
        return {
            RubricGraphs: [graph_row(built) for built in graphs],
            GraphNodes: [row for built in graphs for row in node_rows(built)],
            GraphEdges: [row for built in graphs for row in edge_rows(built)],
            Votes: [vote.row for vote in votes],
        }

    run.once("graph", make)
    return Graphed(*(run.ref(row, "graph") for row in (RubricGraphs, GraphNodes, GraphEdges, Votes)))


def _built_here(assignment: GraphAssignment, inputs: _Inputs, budget: TokenBudget | None) -> list[Built]:
    """All graphs, asked for in this process."""
    run, plan, base, *_ = assignment
    asking = bool(inputs.asked)
    with open_replies(run.warehouse.replies) as replies:
        backend = _backend(plan, base, replies) if asking and is_generative(plan) else rules_of_thumb()
        paid = Budgeted(backend, budget) if budget and backend.reads_prose else backend
        with telling(paid, _say) as told:
            return build(*inputs, Annotator(told, replies, plan, _say) if asking else None)


def _built_by_workers(
    assignment: GraphAssignment, inputs: _Inputs, budget: TokenBudget | None, placement: Placement
) -> list[Built]:
    """All graphs, of the replies that workers put into the store; a single pack is asked about here."""
    run, plan, base, *_ = assignment
    place = run.warehouse.replies

    def settled(replies: Replies, errors: Mapping[str, str]) -> Annotator:
        return Annotator(AskedByWorkers(model_of(plan, base), errors, shown_place(place)), replies, plan)

    with open_replies(place) as replies:
        nobody = settled(replies, {})
        packs = packs_of(inputs.asked, inputs.votes, PACK)
        open_ = [pack for pack in packs if not is_answered(pack, inputs.subjects, nobody)]
        if len(open_) > 1:
            names = chain.from_iterable(pack.rubric_ids for pack in open_)
            tell_plan([inputs.subjects[name] for name in names], replace(nobody, tell=_say))
    if len(open_) == 1:
        return _built_here(assignment, inputs, budget)
    errors = _share_out(assignment, open_, budget, placement) if open_ else {}
    with open_replies(place) as replies:
        return build(*inputs, settled(replies, errors))


def _share_out(
    assignment: GraphAssignment, packs: Sequence[RubricPack], budget: TokenBudget | None, placement: Placement
) -> Mapping[str, str]:
    """Has the workers of a cluster ask about packs; the errors of requests that got no reply, by digest."""
    run, plan = with_absolute_paths(assignment.run), assignment.plan
    words = PieceNames("graph", "packs", "rubrics", "requests failed")
    rubrics = sum(len(pack.rubric_ids) for pack in packs)
    progress = PieceProgress(words, len(packs), rubrics, saying(run.run_id, "graph"))
    errors: dict[str, str] = {}

    def done(name: str, answered: AnsweredPack) -> None:
        errors.update(answered.errors)
        progress.ended(answered.counts)

    def work(crew: Crew) -> Terms:
        workers = concurrency(plan, crew.room, len(packs))
        terms = terms_of(plan, run, "graph", workers, None if budget is None else budget.tokens - budget.spent)
        sent = pickle.dumps(SentGraphAssignment(assignment._replace(run=run, base=assignment.base.resolve()), terms))
        pieces = {f"graph of {pack.name}": (sent, pickle.dumps(pack), pack.name) for pack in packs}
        crew.each(ask_pack, pieces, workers, done)
        return terms

    terms = on_engine(placement, "graph packs", work)
    if budget is not None:
        budget.spent += tokens_drawn(terms)
    return errors


def asked_pack(sent: bytes, pack: bytes, name: str) -> AnsweredPack:
    """Ask about one pack, wherever this runs.

    sent, pack: the pickled `SentGraphAssignment` and `RubricPack`, for Prefect looks into other parameters; name: of
    the pack.
    """
    return _WORKER.ask(sent, pickle.loads(pack), _backend)


# A name of its own, so that the function travels by its name and meets what its module keeps from pack to pack.
ask_pack = task(task_run_name="graph of {name}")(asked_pack)


def _backend(plan: Graphs, base: Path, replies: Replies) -> Backend:
    """The language model that annotates."""
    return open_backend(plan, base, replies, credential)


def _say(line: str) -> None:
    print(f"graph: {line}")
