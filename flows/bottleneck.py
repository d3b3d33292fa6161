"""The command `train`: bottleneck graders trained on concept labels, compared, and exported."""

from __future__ import annotations

from pathlib import Path

from rubricflow.flows.annotate import labels
from rubricflow.flows.checks import check_extras
from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, DollarLimit, Limit, StudyFile, TokenLimit, WarehouseFolder
from rubricflow.flows.plan import Plan, planned, record, settling
from rubricflow.flows.stage import read_and_lock, references, staged
from rubricflow.tasks.core.check.task import data_docs
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.llm.budget import kept_budget
from rubricflow.tasks.core.monitor.runs import completed, credential, flow, introduce
from rubricflow.tasks.methods.bottleneck.task import train
from rubricflow.tasks.methods.report.task import report_graders
from rubricflow.tasks.people.report.task import report_annotation
from rubricflow.tasks.people.review.ledger import ActSnapshot


@flow(name="bottleneck")
def bottleneck(
    study: StudyFile,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
    token_budget: TokenLimit = None,
    budget_usd: DollarLimit = None,
) -> str:
    """Train and compare the graders of a study file and export the first; returns the run's id. The same study resumes
    itself.

    InputError where the study has no section `bottleneck`. token_budget, budget_usd: of annotators
    and prompted models, see `grade`.
    """
    check_extras("train", study)
    job, votes = training(study, warehouse, limit)
    introduce(job.study.name, flow="train")
    with kept_budget(job.run.warehouse, job.run.run_id, token_budget, budget_usd):
        tables = stages(job, votes)
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


def stages(job: Plan, votes: ActSnapshot | None) -> list[TableRef]:
    """What every stage wrote, checked before the next one reads it; finished stages are passed over."""
    if votes is None:
        data, locked = read_and_lock(job)
        final = None
        before = [*references((data, locked))]
    else:
        proposed, settled, compared = labels(job, votes)
        data = proposed.data
        locked = proposed.locked
        final = settled.labels
        before = [*proposed.tables, *settled, *compared]
    taught = staged(
        job.run,
        train,
        study=job.study,
        base=job.base,
        items=data.items,
        responses=data.responses,
        people=data.gradings,
        marks=data.judgments,
        bundles=locked.bundles,
        labels=final,
        key_of=credential,
    )
    return [*before, *taught]
