"""The commands `annotate` and `adjudicate`: two annotators label concepts and the doubtful labels are queued; people
vote; the rest is settled."""

from __future__ import annotations

from typing import NamedTuple

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
from rubricflow.flows.plan import Plan, annotating, check_places, settling, with_placement
from rubricflow.flows.stage import finished, read_and_lock, references, staged
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.llm.budget import kept_budget
from rubricflow.tasks.core.llm.mailbox import asking_together
from rubricflow.tasks.core.monitor.runs import flow, introduce
from rubricflow.tasks.grading.ingest.task import Ingested
from rubricflow.tasks.grading.judge.task import judge
from rubricflow.tasks.grading.lock.task import Locked
from rubricflow.tasks.people.annotate.task import ComparedTables, compare, compare_settled
from rubricflow.tasks.people.report.task import report_annotation
from rubricflow.tasks.people.review.ledger import ActSnapshot
from rubricflow.tasks.people.review.task import SettledTables, adjudicate, queue


@flow(name="annotate")
def annotate(
    study: StudyFile,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
    token_budget: TokenLimit = None,
    budget_usd: DollarLimit = None,
    engine: EngineName = None,
    address: Address = None,
) -> str:
    """Label the concepts of a study's responses by two annotators and queue what is doubtful; returns the run's id.

    InputError where the study has no section `annotation`. token_budget and budget_usd, of both annotators
    together, engine, address: see `grade`.
    """
    check_extras("annotate", study, engine)
    job = with_placement(annotating(study, warehouse, limit), engine, address)
    check_places(job)
    introduce(job.study.name, flow="annotate")
    with kept_budget(job.run.warehouse, job.run.run_id, token_budget, budget_usd):
        proposed = proposals(job)
    return finished(job, proposed.tables, report_annotation)


@flow(name="adjudicate")
def settle(
    study: StudyFile,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
    token_budget: TokenLimit = None,
    budget_usd: DollarLimit = None,
    engine: EngineName = None,
    address: Address = None,
) -> str:
    """Settle the labels of a study by what people have said until now; returns the run's id."""
    job, votes = settling(study, warehouse, limit)
    job = with_placement(job, engine, address)
    introduce(job.study.name, flow="adjudicate")
    with kept_budget(job.run.warehouse, job.run.run_id, token_budget, budget_usd):
        proposed, settled, compared = labels(job, votes)
    return finished(job, [*proposed.tables, *settled, *compared], report_annotation)


class ProposedAnnotations(NamedTuple):
    """What annotators made of a data set, and what people are asked about it."""

    data: Ingested
    locked: Locked
    annotated: dict[str, TableRef]
    """Annotator → its judgments."""
    tables: list[TableRef]
    """All that was written."""


def proposals(job: Plan) -> ProposedAnnotations:
    """Data, bundle, two annotators' judgments, their agreement, and the queue; finished stages are passed over."""
    run, study = job.run, job.study
    assert study.annotation is not None  # or the study would have been refused
    data, locked = read_and_lock(job)
    labelled = {}
    with asking_together() as piece:
        for name in study.annotation.annotators:
            with piece():
                labelled[name] = staged(
                    run,
                    judge,
                    plan=study.annotation.judge(name),
                    base=job.base,
                    items=data.items,
                    responses=data.responses,
                    bundles=locked.bundles,
                    people=(data.gradings, data.judgments),
                    stage=f"annotate-{name}",
                    placement=study.run,
                )
    annotated = {name: made.judgments for name, made in labelled.items()}
    compared = staged(
        run,
        compare,
        study=study,
        items=data.items,
        responses=data.responses,
        people=data.gradings,
        rubrics=locked.rubrics,
        annotated=annotated,
    )
    queued = staged(
        run,
        queue,
        study=study,
        items=data.items,
        responses=data.responses,
        people=data.gradings,
        bundles=locked.bundles,
        annotated=annotated,
    )
    others = [table for made in labelled.values() for table in (made.gradings, made.attempts)]
    tables = [*references((data, locked, annotated, others, compared, queued))]
    return ProposedAnnotations(data, locked, annotated, tables)


def labels(job: Plan, votes: ActSnapshot) -> tuple[ProposedAnnotations, SettledTables, ComparedTables]:
    """The proposals, the labels that people settled, and the agreement after that."""
    proposed = proposals(job)
    data = proposed.data
    locked = proposed.locked
    annotated = proposed.annotated
    settled = staged(
        job.run,
        adjudicate,
        study=job.study,
        until=votes,
        items=data.items,
        responses=data.responses,
        bundles=locked.bundles,
        annotated=annotated,
    )
    compared = staged(
        job.run,
        compare_settled,
        study=job.study,
        items=data.items,
        responses=data.responses,
        people=data.gradings,
        rubrics=locked.rubrics,
        annotated=annotated,
        labels=settled.labels,
    )
    return proposed, settled, compared
