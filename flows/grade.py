"""The main job: responses in, calibrated scores and their agreement with people out."""

from __future__ import annotations

from prefect import flow

from flows.logs import without_tracebacks
from flows.plan import plan, record
from tasks.calibrate.task import calibrate
from tasks.check.task import checked, data_docs
from tasks.evaluate.task import evaluate, report
from tasks.ingest.task import ingest
from tasks.judge.task import judge
from tasks.lock.task import lock

without_tracebacks()


@flow(name="grade", flow_run_name="{study}")
def grade(study: str, warehouse: str = "data/warehouse", limit: int | None = None) -> str:
    """Grade the responses of a study file; returns the run's id. The same study resumes itself."""
    job = plan(study, warehouse, limit)
    run, settings, base = job.run, job.study, job.base

    data = checked(run, ingest(run, settings, base, limit))
    locked = checked(run, lock(run, settings, base, data.items, data.responses, data.gradings, data.judgments))
    judged = checked(run, judge(run, settings.judge, base, data.items, data.responses, locked.bundles))
    answered = data.items, data.responses, data.gradings, judged.gradings
    scored = checked(run, calibrate(run, settings, *answered, locked.bundles))
    agreed = checked(run, evaluate(run, settings, *answered, scored.predictions, locked.bundles))
    data_docs(run)
    report(run, settings, record(job, [*data, *locked, *judged, *scored, *agreed]))
    return run.run_id


if __name__ == "__main__":
    grade("data/demo/study.yaml")
