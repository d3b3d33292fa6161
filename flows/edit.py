"""The command `edit`: an LLM grader trained where its reasoning leaves the rubric, with the arms that it is compared
with."""

from __future__ import annotations

from pathlib import Path

from rubricflow.flows.checks import check_extras
from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, Limit, StudyFile, WarehouseFolder
from rubricflow.flows.plan import Plan, planned
from rubricflow.flows.stage import finished, read_and_lock, references, staged
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.monitor.runs import credential, flow, introduce
from rubricflow.tasks.methods.edit.task import train
from rubricflow.tasks.methods.report.task import report_policies


@flow(name="edit")
def edit(study: StudyFile, warehouse: WarehouseFolder = DEFAULT_WAREHOUSE, limit: Limit = None) -> str:
    """Train and compare the arms of a study file's section `edit`; returns the run's id. The same study resumes itself.

    InputError where the study has no such section.
    """
    check_extras("edit", study)
    job = training(study, warehouse, limit)
    introduce(job.study.name, flow="edit")
    return finished(job, stages(job), report_policies)


def training(study_file: str | Path, warehouse: str | Path, limit: int | None = None) -> Plan:
    """The run in which a study's arms are trained. Who judges the study otherwise is no part of it: the arms state
    their total themselves, as under the protocol `dhs`."""
    path = Path(study_file)
    study = load_study(path)
    if study.edit is None:
        hint = "edit: {policy: Qwen/Qwen3-8B} trains that model"
        raise InputError("there is no section 'edit', which says what is trained", file=path, hint=hint)
    plain = {"judge": Judge(protocol="dhs"), "reward": None, "annotation": None, "bottleneck": None}
    return planned(study.model_copy(update=plain), path.parent, warehouse, limit)


def stages(job: Plan) -> list[TableRef]:
    """What every stage wrote, checked before the next one reads it; finished stages are passed over."""
    data, locked = read_and_lock(job)
    trained = staged(
        job.run,
        train,
        study=job.study,
        base=job.base,
        items=data.items,
        responses=data.responses,
        people=data.gradings,
        bundles=locked.bundles,
        key_of=credential,
    )
    return [*references((data, locked, trained))]
