"""The graphs of a study's rubrics: made once, from questions and rubrics only, whatever will be answered."""

from __future__ import annotations

from rubricflow.flows.logs import without_tracebacks
from rubricflow.flows.placed import placed
from rubricflow.flows.plan import Plan, plan, record
from rubricflow.flows.stage import staged
from rubricflow.tasks.core.check.task import data_docs
from rubricflow.tasks.core.llm.budget import TokenBudget
from rubricflow.tasks.core.monitor.credentials import credential
from rubricflow.tasks.core.monitor.runs import completed, flow, introduce
from rubricflow.tasks.grading.ingest.task import Ingested, ingest
from rubricflow.tasks.grading.lock.task import Locked, lock
from rubricflow.tasks.rewards.graph.task import Graphed
from rubricflow.tasks.rewards.graph.task import graph as build
from rubricflow.tasks.rewards.report.reward.task import draw_graphs

without_tracebacks()


@flow(name="graph")
def graph(
    study: str,
    warehouse: str = "data/warehouse",
    limit: int | None = None,
    token_budget: int | None = None,
    engine: str | None = None,
    address: str | None = None,
) -> str:
    """Build the graph of every rubric of a study file and draw it; returns the run's id.

    token_budget: tokens that the annotator may ask for now, see `grade`, as engine and address.
    """
    job = placed(plan(study, warehouse, limit), engine, address)
    introduce(job.study.name, flow="graph", backend=job.study.graph.backend)
    data, locked, graphed = stages(job, budget_of(token_budget))
    data_docs(job.run)
    return completed(job.run.run_id, draw_graphs(job.run, record(job, [*data, *locked, *graphed])))


def budget_of(token_budget: int | None) -> TokenBudget | None:
    """What may be spent; None where nobody set a limit."""
    return None if token_budget is None else TokenBudget(token_budget)


def stages(job: Plan, budget: TokenBudget | None = None) -> tuple[Ingested, Locked, Graphed]:
    """Data, bundles and graphs, checked; what is finished is passed over. budget: of the annotator."""
    run, settings, base = job.run, job.study, job.base
    data = staged(run, ingest, settings, base, job.limit)
    people = data.gradings, data.judgments
    locked = staged(run, lock, settings, base, data.items, data.responses, *people, credential)
    graphed = staged(run, build, settings, base, data.items, locked.bundles, budget, settings.run)
    return data, locked, graphed


if __name__ == "__main__":
    graph("data/demo/reward.yaml")
