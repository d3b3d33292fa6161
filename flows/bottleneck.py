"""Bottleneck graders: trained on concept labels, compared, and exported."""

from __future__ import annotations

from pathlib import Path

from rubricflow.flows.annotate import labels, settling
from rubricflow.flows.logs import without_tracebacks
from rubricflow.flows.plan import Plan, planned, record
from rubricflow.flows.stage import staged
from rubricflow.tasks.core.check.task import data_docs
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.reference import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.monitor.credentials import credential
from rubricflow.tasks.core.monitor.runs import completed, flow, introduce
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.lock.task import lock
from rubricflow.tasks.methods.bottleneck.task import train
from rubricflow.tasks.methods.report.bottleneck.task import report_graders
from rubricflow.tasks.people.report.task import report_annotation
from rubricflow.tasks.people.review.ledger import ActSnapshot

without_tracebacks()


@flow(name="bottleneck")
def bottleneck(
    study: str, warehouse: str = "data/warehouse", limit: int | None = None, token_budget: int | None = None
) -> str:
    """Train and compare the graders of a study file and export the first; returns the run's id. The same study resumes
    itself.

    InputError where the study has no section `bottleneck`. token_budget: of the annotators, see `grade`.
    """
    job, votes = training(study, warehouse, limit)
    introduce(job.study.name, flow="train")
    tables = stages(job, votes, token_budget)
    data_docs(job.run)
    manifest = record(job, tables)
    if votes is not None:
        report_annotation(job.run, manifest)
    return completed(job.run.run_id, report_graders(job.run, manifest))


def training(
    study_file: str | Path, warehouse: str | Path, limit: int | None = None
) -> tuple[Plan, ActSnapshot | None]:
    """The run in which a study's graders are trained, and what people have said until now, where it rests on that."""
    path = Path(study_file)
    study = load_study(path)
    if study.bottleneck is None:
        hint = "bottleneck: {labels: mean} learns from persons' marks, {labels: final} from the study's annotation"
        raise InputError("there is no section 'bottleneck', which says what is trained", file=path, hint=hint)
    if study.bottleneck.labels == "final":
        return settling(study_file, warehouse, limit)
    plain = {"judge": Judge(protocol="concepts"), "reward": None, "annotation": None}
    return planned(study.model_copy(update=plain), path.parent, warehouse, limit), None


def stages(job: Plan, votes: ActSnapshot | None, token_budget: int | None = None) -> list[TableRef]:
    """What every stage wrote, checked before the next one reads it; finished stages are passed over."""
    run, settings, base = job.run, job.study, job.base
    if votes is not None:
        proposed, settled, compared = labels(job, votes, token_budget)
        data, locked, found = proposed.data, proposed.locked, settled.labels
        before = [*proposed.tables, *settled, *compared]
    else:
        data = staged(run, ingest, settings, base, job.limit)
        people = data.gradings, data.judgments
        locked = staged(run, lock, settings, base, data.items, data.responses, *people, credential)
        found, before = None, [*data, *locked]
    given = data.items, data.responses, data.gradings, data.judgments, locked.bundles, found
    taught = staged(run, train, settings, base, *given, credential)
    return [*before, *taught]


if __name__ == "__main__":
    bottleneck("data/demo/concepts.yaml")
