"""The command `grade`, the main job: responses in, calibrated scores and their agreement with people out."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import typer

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
    arguments,
    extends,
    print_rows,
)
from rubricflow.flows.finished_runs import settle_scores
from rubricflow.flows.judging import cascaded, judged_by
from rubricflow.flows.plan import Plan, check_places, plan, record, with_placement
from rubricflow.flows.stage import lock_rubrics, references, staged
from rubricflow.tasks.core.check.task import data_docs
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.llm.budget import kept_budget
from rubricflow.tasks.core.monitor.runs import completed, flow, introduce, log, quiet
from rubricflow.tasks.core.store.part import listed_once
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.calibrate.task import Calibrated, calibrate
from rubricflow.tasks.grading.cascade.task import CascadeTables
from rubricflow.tasks.grading.evaluate.task import evaluate
from rubricflow.tasks.grading.ingest.task import ingest, warning_sentences
from rubricflow.tasks.grading.judge.task import JudgedTables
from rubricflow.tasks.grading.lock.task import fit
from rubricflow.tasks.grading.report.task import report, write_page


@flow(name="grade")
def grade(
    study: StudyFile,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
    token_budget: TokenLimit = None,
    budget_usd: DollarLimit = None,
    model: Annotated[
        str | None, typer.Option(help="A language model in place of the study's judge: a name, or a folder of weights.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="The OpenAI-compatible server that has it; without it vLLM loads it here.")
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            "--compare-with",
            help="A further study file over the same responses: its agreement stands next to this one's.",
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print every table of the summary.")] = False,
    engine: EngineName = None,
    address: Address = None,
    options: Record | None = None,
) -> str:
    """Grade the responses of a study file; returns the run's id. The same study resumes itself.

    token_budget, budget_usd: tokens of prompts and replies, and US dollars, that models may take for this run, by all
    calls together that name one. Where it does not suffice, the run stops with BudgetSpent; a higher one continues it.
    model: a language model in place of the study's judge, behind the server at `url` or else loaded here.
    options: further fields of what it is asked.
    beside: a further study file that the scores are compared with. verbose: print every table of the summary.
    engine, address: who judges and calibrates the shards, see `Placement`; no part of the run's identity.
    """
    check_extras("grade", study, engine, model, url, beside)
    job = with_placement(plan(study, warehouse, limit, model, url, beside, options), engine, address)
    check_places(job)
    introduce(job.study.name, flow="grade", backend=job.study.judge.backend)
    was_graded = job.run.done("evaluate", "all")
    with kept_budget(job.run.warehouse, job.run.run_id, token_budget, budget_usd):
        tables = stages(job)
    if was_graded:
        log(f"{job.run.run_id} was graded before: no model is asked again")
    with listed_once():
        data_docs(job.run)
        settle_scores(job.run, job.study)
        # The commands that follow read the study file: they do not know what options of this one have changed.
        as_written = model is None and beside is None
        next_command = arguments(study, job.run.warehouse.place, limit) if as_written else None
        state = report(job.run, job.study, record(job, tables), next_command, verbose)
    return completed(job.run.run_id, state)


@extends(grade, without=["options"])
def command(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be asked, and ask nothing.")] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A further field of what the model is asked, as JSON or text; repeat."),
    ] = None,
    compare_with: Annotated[str | None, typer.Option("--beside", hidden=True)] = None,
    **given: Any,
) -> None:
    """Grades a study, or prints what would be asked. UserError for an option that is no KEY=VALUE."""
    if dry_run:
        from rubricflow.flows.validate import planned_calls

        header = ["item", "responses", "settled without a call", "calls", "prompt tokens, roughly"]
        print_rows(header, planned_calls(Path(given["study"]), given["limit"]))
        return
    fields: Record = {}
    for text in option or []:
        key, equals, value = text.partition("=")
        if not key.strip() or not equals or key.strip() in fields:
            raise UserError(f"--option {text}: it is KEY=VALUE, each key once")
        try:
            fields[key.strip()] = json.loads(value)  # a value that is JSON has its type, any other is a text
        except ValueError:
            fields[key.strip()] = value
    given["beside"] = given["beside"] or compare_with
    grade(**given, options=fields)


def stages(job: Plan, told: set[str] | None = None) -> list[TableRef]:
    """What every stage of a run wrote, checked before the next one reads it; finished stages are passed over. told:
    what was said of files until now, which is not said twice."""
    run, study, base, told = job.run, job.study, job.base, set() if told is None else told
    others = {name: _compared_with(name, other, told) for name, other in job.beside.items()}

    was_read = run.done("ingest", "all")
    data = staged(run, ingest, study=study, base=base, limit=job.limit, only=job.only)
    files = defaultdict[str, list[str]](list)
    for file, words in job.read_as.items():
        files[words].append(file)
    lines = [f"{', '.join(names)}: read as {words}" for words, names in files.items()]
    lines += [f"warning: {words}" for words in warning_sentences(run, data.input_warnings)]
    with quiet(was_read):
        for line in lines:
            if line not in told:
                log(line)
    told.update(lines)
    locked = lock_rubrics(job, data)
    fit(run, study, base, data.items, data.gradings, locked.bundles)
    judged: JudgedTables | CascadeTables
    scored: Calibrated | CascadeTables
    if study.judge.escalate:
        judged, by_others = cascaded(job, data, locked)
        scored = judged
    else:
        judged, by_others = judged_by(job, study.judge, data, locked, data.responses)
        scored = staged(
            run,
            calibrate,
            study=study,
            items=data.items,
            responses=data.responses,
            people=data.gradings,
            gradings=judged.gradings,
            bundles=locked.bundles,
            placement=study.run,
        )
    agreed = staged(
        run,
        evaluate,
        study=study,
        items=data.items,
        responses=data.responses,
        people=data.gradings,
        gradings=judged.gradings,
        predictions=scored.predictions,
        bundles=locked.bundles,
        marks=data.judgments,
        judgments=judged.judgments,
        others=others,
        preferences=data.preferences,
        comparisons=judged.comparisons if isinstance(judged, JudgedTables) else None,
    )
    return [*references((data, locked, by_others, judged, scored, agreed))]


def _compared_with(name: str, job: Plan, told: set[str]) -> tuple[Run, TableRef]:
    """The run of a study that another one is compared with, and its predictions: graded where it is not yet."""
    with quiet(job.run.done("evaluate", "all")):
        log(f"compared with {name}: {job.run.run_id}")
    tables = stages(job, told)
    with listed_once():
        record(job, tables)
        write_page(job.run)
    return job.run, job.run.ref(Predictions, "calibrate")
