"""Rule faithfulness of a study's judge: its test split judged under the mark schemes and under every edit of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pyarrow.dataset as ds

from rubricflow.flows.logs import without_tracebacks
from rubricflow.flows.plan import Plan, plan, record
from rubricflow.flows.stage import staged
from rubricflow.tasks.core.check.task import data_docs
from rubricflow.tasks.core.contracts.backends import BACKENDS, backends_serving
from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.reference import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.contracts.tables.rules import Family, RuleFaithfulness, RuleTests, Totals
from rubricflow.tasks.core.monitor.artifacts import leave_table
from rubricflow.tasks.core.monitor.credentials import credential
from rubricflow.tasks.core.monitor.runs import flow, introduce, task
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.ingest.task import Ingested, ingest
from rubricflow.tasks.grading.judge.task import judge
from rubricflow.tasks.grading.lock.task import lock
from rubricflow.tasks.methods.edit.rollout import family
from rubricflow.tasks.methods.edit.rule_edits import EDITS, Edited, edits, faithfulness, restated, totals

without_tracebacks()

STAGE = "faithful"
PLAIN = "unedited"
"""The version of a scheme without an edit."""
SHOWN = (
    *("rater_id", "totals", "edit", "n", "unscored", "gold_change", "floor_rate", "floor_low", "floor_high"),
    *("rsr", "rsr_low", "rsr_high", "in_rubric_n", "in_rubric", "in_rubric_low", "in_rubric_high"),
    *("rsr_note", "in_rubric_note"),
)
"""Columns of `rule_faithfulness` for people to look at."""
_COUNTS = "embedded"
"""The backend whose total code makes of its decisions under every protocol."""


class Sitting(NamedTuple):
    """What is judged together: the items of one family of schemes, their responses, and the schemes."""

    family: Family
    version: str
    """An edit, or `PLAIN`."""
    items: TableRef
    responses: TableRef
    bundles: TableRef


Judging = tuple[Sitting, TableRef]
"""What was asked, and the gradings."""


class Scheme(NamedTuple):
    """A rubric that is tested."""

    rubric_id: str
    bundle: Bundle
    edited: dict[str, Edited]
    """Edit → the scheme after it."""

    def after(self, version: str) -> Bundle:
        """The scheme that a version's judge is shown."""
        return restated(self.bundle) if version == PLAIN else self.edited[version].bundle


@flow(name="faithful")
def faithful(study: str, warehouse: str = "data/warehouse", limit: int | None = None) -> str:
    """Judge the test responses of a study file under its mark schemes and under each edit of them; returns the run's
    id. The same study resumes itself.

    InputError for a judge that reads no scheme, a scheme that cannot be edited, and a study without test responses that
    have the human score.
    """
    job = plan(study, warehouse, limit)
    _refuse_deaf(job.study.judge, study)
    introduce(job.study.name, flow="faithful", backend=job.study.judge.backend)
    tables = stages(job)
    data_docs(job.run)
    record(job, tables)
    return job.run.run_id


def stages(job: Plan) -> list[TableRef]:
    """What every stage wrote, checked before the next one reads it; finished stages are passed over."""
    run, settings, base = job.run, job.study, job.base
    data = staged(run, ingest, settings, base, job.limit)
    people = data.gradings, data.judgments
    locked = staged(run, lock, settings, base, data.items, data.responses, *people, credential)
    judging = settings.judge.model_copy(update={"keep": None})  # every decision is taken anew
    judged: list[Judging] = []
    for sitting in prepare(run, settings, data, locked.bundles):
        inputs = judging, base, sitting.items, sitting.responses, sitting.bundles
        stage = f"judge-{sitting.family}-{sitting.version}"
        judged.append((sitting, judge(_aside(run), *inputs, stage=stage, placement=settings.run).gradings))
    return [*data, *locked, *staged(run, compare, settings, data, locked.bundles, judged)]


def summary(warehouse: Path, run_id: str) -> list[list[Any]]:
    """How the judge of a finished run follows each edit: rows of the columns `SHOWN`."""
    run = Warehouse.open(warehouse).run(run_id)
    rows = run.read(run.ref(RuleFaithfulness, STAGE)).to_pylist()
    return [[row[name] for name in SHOWN] for row in rows]


@task(task_run_name="edit the schemes")
def prepare(run: Run, study: Study, data: Ingested, bundles: TableRef) -> list[Sitting]:
    """What the judge is asked: each family's test responses that have the human score, under the schemes as they are
    and after every edit."""
    gold, aside, sittings = _gold(run, study, data), _aside(run), list[Sitting]()
    schemes = _schemes(run, data, bundles, gold)
    for kind in EDITS:
        mine = {item: scheme for item, scheme in schemes.items() if family(scheme.bundle) == kind}
        if not mine:
            continue
        items = ds.field("item_id").isin(list(mine))
        tested = run.read(data.responses, where=items & ds.field("response_id").isin(list(gold)))
        aside.commit(f"asked-{kind}", "all", {Items: run.read(data.items, where=items), Responses: tested})
        for version in (PLAIN, *EDITS[kind]):
            locked = {scheme.rubric_id: scheme.after(version) for scheme in mine.values()}
            aside.commit(f"lock-{kind}-{version}", "all", {Bundles: _bundle_rows(locked)})
            answers = aside.ref(Items, f"asked-{kind}"), aside.ref(Responses, f"asked-{kind}")
            sittings.append(Sitting(kind, version, *answers, aside.ref(Bundles, f"lock-{kind}-{version}")))
    return sittings


def _bundle_rows(locked: Mapping[str, Bundle]) -> list[dict[str, Any]]:
    """Rows of `bundles`; locked: rubric → its bundle."""
    return [
        {"rubric_id": name, "bundle_id": bundle.bundle_id, "content": bundle.canonical()}
        for name, bundle in locked.items()
    ]


@task(task_run_name="compare with the edits")
def compare(
    run: Run, study: Study, data: Ingested, bundles: TableRef, judged: list[Judging]
) -> tuple[TableRef, TableRef]:
    """Write every response's marks under both schemes, and how far the judge follows each edit."""
    gold, aside = _gold(run, study, data), _aside(run)
    schemes = _schemes(run, data, bundles, gold)
    marks = {(sitting.family, sitting.version): _marks(aside, gradings) for sitting, gradings in judged}
    tests = []
    for (kind, version), after in marks.items():
        if version == PLAIN:
            continue
        for (rater_id, item_id, response_id), mark in marks[kind, PLAIN].items():
            edited = schemes[item_id].edited[version]
            pair = mark, after[rater_id, item_id, response_id]
            marks_total: Totals = "summed" if study.judge.backend == _COUNTS else totals(edited.bundle)
            tests.append(edited.row(rater_id, response_id, item_id, gold[response_id], pair, marks_total))
    summary_rows = faithfulness(tests, study.evaluation.draws, study.evaluation.seed)
    run.commit(STAGE, "all", {RuleTests: tests, RuleFaithfulness: summary_rows})
    leave_table(run.run_id, "rule-faithfulness", [{name: row[name] for name in SHOWN} for row in summary_rows])
    return run.ref(RuleTests, STAGE), run.ref(RuleFaithfulness, STAGE)


def _aside(run: Run) -> Run:
    """Where the judge's work under edited schemes is kept: its scores are on other scales than the study's."""
    return run.warehouse.run(f"{run.run_id}-rules")


def _gold(run: Run, study: Study, data: Ingested) -> dict[str, int]:
    """Test response → its human score, to the nearest mark, halves up. InputError where there is none."""
    columns = ["response_id", "rater_id", "rater_kind", "score"]
    targets = target_scores(run.read(data.gradings, columns), study.evaluation.target)
    tested = run.read(data.responses, ["response_id"], ds.field("split") == "test")["response_id"]
    targets = targets.filter(pc.is_in(targets["response_id"], value_set=tested.combine_chunks()))
    if not targets.num_rows:
        rule = f"no test response has a score of '{study.evaluation.target}', which an edit could change"
        raise InputError(rule, field="evaluation.target")
    pairs = zip(targets["response_id"].to_pylist(), targets["score"].to_pylist(), strict=True)
    return {name: math.floor(score + 0.5) for name, score in pairs}


def _schemes(run: Run, data: Ingested, bundles: TableRef, gold: Collection[str]) -> dict[str, Scheme]:
    """Item → its scheme, for the items of these responses. InputError names a rubric that cannot be edited."""
    answered = run.read(data.responses, ["item_id"], ds.field("response_id").isin(list(gold)))["item_id"]
    items = run.read(data.items, ["item_id", "rubric_id"], ds.field("item_id").isin(answered.unique().to_pylist()))
    locked, edited = unlocked(run.read(bundles).to_pylist()), dict[str, Scheme]()
    for name in items["rubric_id"].unique().to_pylist():
        try:
            edited[name] = Scheme(
                name, locked[name], {edited_scheme.edit: edited_scheme for edited_scheme in edits(locked[name])}
            )
        except InputError as error:
            rule = f"rubric '{name}' cannot be edited: {error.rule}"
            raise InputError(rule, field=error.field, hint=error.hint) from error
    return {row["item_id"]: edited[row["rubric_id"]] for row in items.to_pylist()}


def _marks(aside: Run, gradings: TableRef) -> dict[tuple[str, str, str], float | None]:
    """(rater, item, response) → the judge's score, the mean of its samples; None where there is none."""
    key = ["rater_id", "item_id", "response_id"]
    samples = aside.read(gradings, [*key, "score"])
    means = samples.group_by(key).aggregate([("score", "mean")])
    rows = means.sort_by([(column, "ascending") for column in key])
    return {(row["rater_id"], row["item_id"], row["response_id"]): row["score_mean"] for row in rows.to_pylist()}


def _refuse_deaf(judge: Judge, file: str) -> None:
    """InputError for a judge to whom an edit of the scheme cannot get through."""
    if judge.foreign:
        rule = "recorded replies of a foreign judge were given under the scheme as it is"
        raise InputError(
            rule, file=file, field="judge.foreign", hint=f"use the judge itself: {backends_serving('schemes')}"
        )
    if judge.examples:
        rule = "people graded the examples under the scheme as it is: they would speak against every edit"
        raise InputError(rule, file=file, field="judge.examples", hint="leave them out")
    if "schemes" not in BACKENDS[judge.backend].serves:
        rule = f"a judge with backend '{judge.backend}' reads no mark scheme"
        raise InputError(rule, file=file, field="judge.backend", hint=f"use {backends_serving('schemes')}")


if __name__ == "__main__":
    faithful("data/demo/baseline.yaml")
