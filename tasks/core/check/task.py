"""Stage entry point of check: what a stage wrote in; the same out, or an error."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from rubricflow.tasks.core.check import docs
from rubricflow.tasks.core.check.checkpoint import stored_findings
from rubricflow.tasks.core.check.suite import REFUSED, Finding, broken, stop, warnings
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.monitor.runs import log, task
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run

Written = TypeVar("Written", bound=TableRef | tuple[object, ...])


def _name(parameters: Record) -> str:
    """`check <stage>`, and whether its results were there already."""
    run = parameters["run"]
    refs = _refs(parameters["written"])
    return named(f"check-{refs[0].stage}")(parameters={"run": run}) if refs else "check"


@task(task_run_name=cast(Any, _name))  # see named
def checked(run: Run, written: Written) -> Written:
    """Hold every table just written against its contract, store the results, and pass the references on.

    Says a line for each warning. ContractError if a rule is broken, CheckError if a check could not run: both after the
    results and the rows that break a rule are stored.
    """
    refs = _refs(written)
    if not refs:
        raise TypeError(f"nothing to check in {type(written).__name__}: it holds no TableRef")
    for stage in dict.fromkeys(ref.stage for ref in refs):
        of_stage = [ref for ref in refs if ref.stage == stage]
        findings = stored_findings(run, of_stage)
        for line in warnings(findings, stage):
            log(line, logging.WARNING)
        if broken(findings):
            raise stop(findings, stage, _where(run, findings))
    return written


def _refs(written: Any) -> list[TableRef]:
    return [written] if isinstance(written, TableRef) else [part for part in written if isinstance(part, TableRef)]


@task(task_run_name="data docs")
def data_docs(run: Run) -> Path:
    """The first page of the run's Data Docs: all its validation results, built from what the checkpoints kept."""
    return docs.build(run)


def _where(run: Run, findings: Sequence[Finding]) -> list[str]:
    """Where to look, for the person whose run has stopped."""
    lines = []
    if any(finding.outcome == "failed" for finding in broken(findings)):
        warehouse = shlex.quote(run.warehouse.place)
        ask = f'rubricflow sql "SELECT * FROM quarantine" --run {run.run_id} --warehouse {warehouse}'
        lines.append(f"the rows, the first {REFUSED:,} of each rule, are in table 'quarantine': {ask}")
    try:
        lines.append(f"all checkpoints: {run.warehouse.shown(docs.build(run))}")
    except Exception as error:  # the pages are no reason to keep back why the run stops
        lines.append(f"no Data Docs: {type(error).__name__}: {error}")
    return lines
