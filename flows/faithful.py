"""The command `faithful`: a study's test split judged under the mark schemes and under every edit of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.dataset as ds

from rubricflow.flows.command_line import (
    DEFAULT_WAREHOUSE,
    DollarLimit,
    Limit,
    StudyFile,
    TokenLimit,
    WarehouseFolder,
    print_rows,
)
from rubricflow.flows.plan import Plan, plan, record
from rubricflow.flows.stage import read_and_lock, references, staged
from rubricflow.tasks.core.check.task import data_docs
from rubricflow.tasks.core.contracts.backends import backends_serving
from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.edit import Family, RuleFaithfulness, RuleTests
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.llm.budget import kept_budget
from rubricflow.tasks.core.llm.mailbox import asking_together
from rubricflow.tasks.core.monitor.artifacts import leave_table
from rubricflow.tasks.core.monitor.runs import flow, introduce, task
from rubricflow.tasks.core.stats.scores import GIVEN, target_scores
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.ingest.task import Ingested
from rubricflow.tasks.grading.judge.task import judge
from rubricflow.tasks.methods.edit.rollout import family
from rubricflow.tasks.methods.edit.rule_edits import EDITS, Edited, edits, faithfulness, restated, totals

STAGE = "faithful"
PLAIN = "unedited"
"""The version of a scheme without an edit."""
SHOWN = (
    "rater_id",
    "totals",
    "edit",
    "n",
    "unscored",
    "gold_change",
    "floor_rate",
    "floor_low",
    "floor_high",
    "rsr",
    "rsr_low",
    "rsr_high",
    "in_rubric_n",
    "in_rubric",
    "in_rubric_low",
    "in_rubric_high",
    "rsr_note",
    "in_rubric_note",
)
"""Columns of `rule_faithfulness` for people to look at."""
_SUMMING = "embedded"
"""The backend whose total code makes of its decisions under every protocol."""


class JudgingBatch(NamedTuple):
    """What is judged together: the items of one family of schemes, their responses, and the schemes."""

    family: Family
    version: str
    """An edit, or `PLAIN`."""
    items: TableRef
    responses: TableRef
    bundles: TableRef


class Scheme(NamedTuple):
    """A rubric that is tested."""

    rubric_id: str
    bundle: Bundle
    edited: dict[str, Edited]
    """Edit → the scheme after it."""


@flow(name="faithful")
def faithful(
    study: StudyFile,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
    token_budget: TokenLimit = None,
    budget_usd: DollarLimit = None,
) -> str:
    """Judge the test responses of a study file under its mark schemes and under each edit of them, and print how far
    the judge follows each edit; returns the run's id. The same study resumes itself.

    InputError for a judge that reads no scheme, a scheme that cannot be edited, and a study without test responses that
    have the human score. token_budget, budget_usd: see `grade`.
    """
    job = plan(study, warehouse, limit)
    _require_reader(job.study.judge, study)
    introduce(job.study.name, flow="faithful", backend=job.study.judge.backend)
    with kept_budget(job.run.warehouse, job.run.run_id, token_budget, budget_usd):
        tables = stages(job)
    data_docs(job.run)
    record(job, tables)
    rows = job.run.table(RuleFaithfulness, STAGE).to_pylist()
    print_rows(SHOWN, ([row[name] for name in SHOWN] for row in rows))
    return job.run.run_id


def _require_reader(judge: Judge, file: str) -> None:
    """InputError for a judge to whom an edit of the scheme cannot get through."""
    if judge.foreign:
        rule = "recorded replies of a foreign judge were given under the scheme as it is"
        raise InputError(
            rule, file=file, field="judge.foreign", hint=f"use the judge itself: {backends_serving('schemes')}"
        )
    if judge.examples:
        rule = "people graded the examples under the scheme as it is: they would speak against every edit"
        raise InputError(rule, file=file, field="judge.examples", hint="leave them out")
    if not judge.can("schemes"):
        what = "a cascade" if judge.escalate else f"a judge with backend '{judge.backend}'"
        rule = f"{what} reads no mark scheme"
        raise InputError(rule, file=file, field="judge.backend", hint=f"use {backends_serving('schemes')}")


def stages(job: Plan) -> list[TableRef]:
    """What every stage wrote, checked before the next one reads it; finished stages are passed over."""
    run, study = job.run, job.study
    data, locked = read_and_lock(job)
    judged = []
    anew = study.judge.model_copy(update={"keep": None})  # every decision is taken anew
    with asking_together() as piece:
        for batch in prepare(run, study, data, locked.bundles):
            with piece():
                gradings = judge(
                    _edited_run(run),
                    plan=anew,
                    base=job.base,
                    items=batch.items,
                    responses=batch.responses,
                    bundles=batch.bundles,
                    stage=f"judge-{batch.family}-{batch.version}",
                    placement=study.run,
                ).gradings
                judged.append((batch, gradings))
    return [
        *references((data, locked, staged(run, compare, study=study, data=data, bundles=locked.bundles, judged=judged)))
    ]


@task(task_run_name="edit the schemes")
def prepare(run: Run, study: Study, data: Ingested, bundles: TableRef) -> list[JudgingBatch]:
    """What the judge is asked: each family's test responses that have the human score, under the schemes as they are
    and after every edit."""
    (gold, schemes), edited_run, batches = _tested(run, study, data, bundles), _edited_run(run), []
    for kind in EDITS:
        mine = {item: scheme for item, scheme in schemes.items() if family(scheme.bundle) == kind}
        if not mine:
            continue
        of_items = ds.field("item_id").isin(list(mine))
        tested = run.read(data.responses, where=of_items & ds.field("response_id").isin(list(gold)))
        edited_run.commit(f"asked-{kind}", "all", {Items: run.read(data.items, where=of_items), Responses: tested})
        items, responses = (edited_run.ref(table, f"asked-{kind}") for table in (Items, Responses))
        for version in (PLAIN, *EDITS[kind]):
            rows = []
            for name, scheme in {scheme.rubric_id: scheme for scheme in mine.values()}.items():
                bundle = restated(scheme.bundle) if version == PLAIN else scheme.edited[version].bundle
                rows.append({"rubric_id": name, "bundle_id": bundle.bundle_id, "content": bundle.canonical()})
            edited_run.commit(f"lock-{kind}-{version}", "all", {Bundles: rows})
            locked = edited_run.ref(Bundles, f"lock-{kind}-{version}")
            batches.append(JudgingBatch(kind, version, items, responses, locked))
    return batches


@task(task_run_name="compare with the edits")
def compare(
    run: Run, study: Study, data: Ingested, bundles: TableRef, judged: list[tuple[JudgingBatch, TableRef]]
) -> tuple[TableRef, TableRef]:
    """Write every response's marks under both schemes, and how far the judge follows each edit. judged: what was asked,
    and its gradings."""
    (gold, schemes), edited_run = _tested(run, study, data, bundles), _edited_run(run)
    marks = {(batch.family, batch.version): _marks(edited_run, gradings) for batch, gradings in judged}
    tests = []
    for (kind, version), after in marks.items():
        for key, mark in marks[kind, PLAIN].items() if version != PLAIN else ():
            rater_id, item_id, response_id = key
            edited = schemes[item_id].edited[version]
            summed = "summed" if study.judge.backend == _SUMMING else totals(edited.bundle)
            tests.append(edited.row(rater_id, response_id, item_id, gold[response_id], (mark, after[key]), summed))
    summary = faithfulness(tests, study.evaluation.draws, study.evaluation.seed)
    run.commit(STAGE, "all", {RuleTests: tests, RuleFaithfulness: summary})
    leave_table(run.run_id, "rule-faithfulness", [{name: row[name] for name in SHOWN} for row in summary])
    return run.ref(RuleTests, STAGE), run.ref(RuleFaithfulness, STAGE)


def _edited_run(run: Run) -> Run:
    """Where the judge's work under edited schemes is kept: its scores are on other scales than the study's."""
    return run.warehouse.run(f"{run.run_id}-rules")


def _tested(run: Run, study: Study, data: Ingested, bundles: TableRef) -> tuple[dict[str, int], dict[str, Scheme]]:
    """Test response → its human score, to the nearest mark, halves up; and item → its scheme, for the items of these
    responses. InputError where there is no such score, and names a rubric that cannot be edited."""
    targets = target_scores(run.read(data.gradings, GIVEN), study.evaluation.target)
    tested = run.read(data.responses, ["response_id"], ds.field("split") == "test")["response_id"]
    targets = targets.filter(pc.is_in(targets["response_id"], value_set=tested.combine_chunks()))
    if not targets.num_rows:
        rule = f"no test response has a score of '{study.evaluation.target}', which an edit could change"
        raise InputError(rule, field="evaluation.target")
    gold = {row["response_id"]: math.floor(row["score"] + 0.5) for row in targets.to_pylist()}
    answered = run.read(data.responses, ["item_id"], ds.field("response_id").isin(list(gold)))["item_id"]
    items = run.read(data.items, ["item_id", "rubric_id"], ds.field("item_id").isin(answered.unique().to_pylist()))
    locked = unlocked(run.read(bundles).to_pylist())
    schemes = {}
    for name in items["rubric_id"].unique().to_pylist():
        try:
            schemes[name] = Scheme(name, locked[name], {edited.edit: edited for edited in edits(locked[name])})
        except InputError as error:
            rule = f"rubric '{name}' cannot be edited: {error.rule}"
            raise InputError(rule, field=error.field, hint=error.hint) from error
    return gold, {row["item_id"]: schemes[row["rubric_id"]] for row in items.to_pylist()}


def _marks(run: Run, gradings: TableRef) -> dict[tuple[str, str, str], float | None]:
    """(rater, item, response) → the judge's score, the mean of its samples; None where there is none."""
    key = ["rater_id", "item_id", "response_id"]
    means = run.read(gradings, [*key, "score"]).group_by(key).aggregate([("score", "mean")])
    rows = means.sort_by([(column, "ascending") for column in key]).to_pylist()
    return {(row["rater_id"], row["item_id"], row["response_id"]): row["score_mean"] for row in rows}
