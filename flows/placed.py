"""A study with its engine: what the study file says, unless the command says otherwise."""

from __future__ import annotations

from dataclasses import replace

from pydantic import ValidationError

from rubricflow.flows.plan import Plan
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.placement import Placement
from rubricflow.tasks.core.contracts.settings.study import Study


def placed(job: Plan, engine: str | None, address: str | None) -> Plan:
    """The same run, worked by this engine at this address; as the study says where neither is given. What stands beside
    it is worked so, too. InputError for an engine or an address that there cannot be."""
    if engine is None and address is None:
        return job
    beside = {name: placed(other, engine, address) for name, other in job.beside.items()}
    return replace(job, study=_placed(job.study, engine, address), beside=beside)


def _placed(study: Study, engine: str | None, address: str | None) -> Study:
    changes = {"engine": engine} if engine else {}
    settings = (
        {} if engine not in (None, study.run.engine) else study.run.model_dump()
    )  # another engine's are not its own
    try:
        run = Placement.model_validate(settings | changes | ({"address": address} if address else {}))
    except ValidationError as error:
        field = "--engine" if address is None else "--address"
        raise InputError(error.errors()[0]["msg"].removeprefix("Value error, "), field=field) from error
    return study.model_copy(update={"run": run})
