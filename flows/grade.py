"""The main job: responses in, calibrated scores and their agreement with people out."""

from __future__ import annotations

from typing import Any

from rubricflow.flows.command_line import arguments
from rubricflow.flows.logs import without_tracebacks
from rubricflow.flows.placed import placed
from rubricflow.flows.plan import Plan, plan, record
from rubricflow.flows.settled import settle_scores
from rubricflow.flows.stage import staged
from rubricflow.flows.trained import grader_of
from rubricflow.tasks.core.check.task import data_docs
from rubricflow.tasks.core.contracts.reference import TableRef
from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.monitor.credentials import credential
from rubricflow.tasks.core.monitor.runs import completed, flow, introduce, log
from rubricflow.tasks.core.store.marks import listed_once
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.calibrate.task import calibrate
from rubricflow.tasks.grading.evaluate.task import evaluate
from rubricflow.tasks.grading.ingest.task import Ingested, ingest, warning_sentences
from rubricflow.tasks.grading.judge.task import judge
from rubricflow.tasks.grading.lock.task import fit, lock
from rubricflow.tasks.grading.report.task import report, write_page

without_tracebacks()


@flow(name="grade")
def grade(
    study: str,
    warehouse: str = "data/warehouse",
    limit: int | None = None,
    token_budget: int | None = None,
    model: str | None = None,
    url: str | None = None,
    beside: str | None = None,
    verbose: bool = False,
    engine: str | None = None,
    address: str | None = None,
    options: dict[str, Any] | None = None,
) -> str:
    """Grade the responses of a study file; returns the run's id. The same study resumes itself.

    token_budget: tokens that the judge may ask for now. Where they do not suffice, the run stops with BudgetSpent, and
    the same call continues it.
    model: a language model in place of the study's judge, behind the server at `url` or else loaded here.
    options: further fields of what it is asked.
    beside: a further study file that the scores stand beside. verbose: print every table of the summary.
    engine, address: who judges and calibrates the shards, see `Placement`; no part of the run's identity.
    """
    job = placed(plan(study, warehouse, limit, model, url, beside, options), engine, address)
    introduce(job.study.name, flow="grade", backend=job.study.judge.backend)
    tables = stages(job, token_budget)
    with listed_once():
        data_docs(job.run)
        settle_scores(job.run, job.study)
        # The commands that follow read the study file: they do not know what options of this one have changed.
        as_written = model is None and beside is None
        command = arguments(study, job.run.warehouse.place, limit) if as_written else None
        state = report(job.run, job.study, record(job, tables), command, verbose)
    return completed(job.run.run_id, state)


def stages(job: Plan, token_budget: int | None = None) -> list[TableRef]:
    """What every stage of a run wrote, checked before the next one reads it; finished stages are passed over."""
    run, settings, base, limit = job.run, job.study, job.base, job.limit
    others = {name: scores_of(one) for name, one in job.beside.items()}

    data = staged(run, ingest, settings, base, limit)
    for line in input_lines(job, data):
        log(line)
    people = data.gradings, data.judgments
    locked = staged(run, lock, settings, base, data.items, data.responses, *people, credential)
    fit(run, settings, base, data.items, data.gradings, locked.bundles)
    to_judge = settings.judge, base, data.items, data.responses, locked.bundles
    grader = grader_of(settings.judge, base)
    judged = staged(
        run, judge, *to_judge, token_budget, people, grader, settings.evaluation.target, placement=settings.run
    )
    answered = data.items, data.responses, data.gradings, judged.gradings
    scored = staged(run, calibrate, settings, *answered, locked.bundles, placement=settings.run)
    decided = data.judgments, judged.judgments
    agreed = staged(run, evaluate, settings, *answered, scored.predictions, locked.bundles, *decided, others)
    return [*data, *locked, *judged, *scored, *agreed]


def input_lines(job: Plan, data: Ingested) -> list[str]:
    """How the sources were read, and what is odd about the responses."""
    lines = [f"{file}: read as {words}" for file, words in job.read_as.items()]
    return lines + [f"warning: {words}" for words in warning_sentences(job.run, data.input_warnings)]


def scores_of(job: Plan) -> tuple[Run, TableRef]:
    """The run of a study that stands beside another one, and its predictions: graded where it is not yet."""
    log(f"beside it: {job.run.run_id}")
    tables = stages(job)
    with listed_once():
        record(job, tables)
        write_page(job.run)
    return job.run, job.run.ref(Predictions, "calibrate")


if __name__ == "__main__":
    grade("data/demo/study.yaml")
