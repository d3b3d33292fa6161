"""The command `graph`: the graphs of a study's rubrics, made once, from questions and rubrics only, whatever will be
answered."""

from __future__ import annotations

from rubricflow.flows.checks import check_extras
from rubricflow.flows.command_line import (
    DEFAULT_WAREHOUSE,
    Address,
    DollarLimit,
    EngineName,
    Limit,
    StudyFile,
    TokenLimit,
    WarehouseFolder,
)
from rubricflow.flows.plan import Plan, check_places, plan, with_placement
from rubricflow.flows.stage import finished, read_and_lock, references, staged
from rubricflow.tasks.core.llm.budget import kept_budget
from rubricflow.tasks.core.monitor.runs import flow, introduce
from rubricflow.tasks.grading.ingest.task import Ingested
from rubricflow.tasks.grading.lock.task import Locked
from rubricflow.tasks.rewards.graph.task import Graphed
from rubricflow.tasks.rewards.graph.task import graph as build
from rubricflow.tasks.rewards.report.task import draw_graphs


@flow(name="graph")
def graph(
    study: StudyFile,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
    token_budget: TokenLimit = None,
    budget_usd: DollarLimit = None,
    engine: EngineName = None,
    address: Address = None,
) -> str:
    """Build the graph of every rubric of a study file and draw it; returns the run's id.

    token_budget, budget_usd: what the annotator may take, see `grade`, as engine and address.
    """
    check_extras("graph", study, engine)
    job = with_placement(plan(study, warehouse, limit), engine, address)
    check_places(job, [job.study.graph])
    introduce(job.study.name, flow="graph", backend=job.study.graph.backend)
    with kept_budget(job.run.warehouse, job.run.run_id, token_budget, budget_usd):
        data, locked = read_and_lock(job)
        graphed = graphs_of(job, data, locked)
    return finished(job, [*references((data, locked, graphed))], draw_graphs)


def graphs_of(job: Plan, data: Ingested, locked: Locked) -> Graphed:
    """The graphs of a run, checked; finished ones are passed over."""
    return staged(
        job.run,
        build,
        study=job.study,
        base=job.base,
        items=data.items,
        bundles=locked.bundles,
        placement=job.study.run,
    )
