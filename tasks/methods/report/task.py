"""The stage entry points of the reports of trained graders and trained arms."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.schema import Row
from rubricflow.tasks.core.contracts.tables.bottleneck import ConceptLinks, Interventions, Models, Traces, Trials
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.edit import (
    ArmDifferences,
    ArmMetrics,
    Demonstrations,
    Learning,
    Policies,
    Revisions,
    Rollouts,
    RuleFaithfulness,
    Separations,
    Steps,
)
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Table
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.publish import publish, write_page
from rubricflow.tasks.core.stats.bootstrap import cautions
from rubricflow.tasks.core.store.files import file_name
from rubricflow.tasks.core.store.manifest import study_of
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.methods.report.arm_figures import HEADER as ARMS
from rubricflow.tasks.methods.report.arm_figures import EditView
from rubricflow.tasks.methods.report.arm_figures import summary_rows as arm_rows
from rubricflow.tasks.methods.report.arms import page as policy_page
from rubricflow.tasks.methods.report.cases import needs_texts as shown_rollouts
from rubricflow.tasks.methods.report.grader_figures import HEADER as GRADERS
from rubricflow.tasks.methods.report.grader_figures import summary_rows as grader_rows
from rubricflow.tasks.methods.report.graders import BottleneckView, trace_pages
from rubricflow.tasks.methods.report.graders import needs_texts as traced_responses
from rubricflow.tasks.methods.report.graders import page as grader_page


@task(task_run_name="report")
def report_graders(run: Run, manifest: Path) -> str:
    """Write the report of graders and the pictures of its traces; print the summary and where everything is, and leave
    the same as artifacts in the Prefect UI."""
    page = write_graders(run)
    trials = run.table(Trials, "bottleneck")
    rows = grader_rows(trials)
    methods = len(trials["method"].unique())
    table = Table("trials", "Graders on the test split: mean ± standard deviation over seeds", GRADERS, rows)
    sentence = f"{say.plural(methods, 'grader')} trained and compared on the test split"
    return publish(run, "grader", sentence, table, {"manifest": manifest, "tables": run.folder}, page)


def write_graders(run: Run) -> Path:
    """Write `<run>/bottleneck.html` and a picture of each response traced in it; StoreError where nobody trained."""
    study = study_of(run)
    assert study.bottleneck is not None  # nothing was trained without
    models = run.table(Models, "bottleneck")
    traces = run.table(Traces, "bottleneck")
    bundle = next(iter(unlocked(run.table(Bundles, "lock").to_pylist()).values()))
    is_traced = pc.field("response_id").isin(pa.array([*traced_responses(traces, models)], pa.string()))
    texts = run.table(Responses, "ingest", ["response_id", "text"], is_traced).to_pylist()
    view = BottleneckView(
        study=study.name,
        run_id=run.run_id,
        settings=study.bottleneck,
        names=bundle.names,
        trials=run.table(Trials, "bottleneck"),
        models=models,
        interventions=run.table(Interventions, "bottleneck"),
        links=run.table(ConceptLinks, "bottleneck"),
        traces=traces,
        texts={row["response_id"]: row["text"] for row in texts},
    )
    for response, trace in trace_pages(view).items():
        write_page(run, f"pictures/{file_name(response)}.html", trace)
    return write_page(run, "bottleneck.html", grader_page(view))


@task(task_run_name="report")
def report_policies(run: Run, manifest: Path) -> str:
    """Write the report of trained arms; print the summary and where everything is, and leave the same as artifacts in
    the Prefect UI."""
    page = write_policies(run)
    metrics = run.table(ArmMetrics, "edit")
    title = "Arms on the test split: mean over seeds [95% interval] ± standard deviation over seeds"
    notes = tuple(cautions(metrics.filter(pc.is_valid(metrics["low"]))["n"].to_pylist()))
    table = Table("arms", title, ARMS, tuple(arm_rows(metrics)), notes)
    arms = len(metrics["arm"].unique())
    sentence = f"{say.plural(arms, 'arm')} trained and compared on the test split"
    return publish(run, "edit", sentence, table, {"manifest": manifest, "tables": run.folder}, page)


def write_policies(run: Run) -> Path:
    """Write `<run>/edit.html` from the tables of trained arms; StoreError where none was trained."""
    study = study_of(run)
    assert study.edit is not None  # nothing was trained without

    def table(row: type[Row], columns: list[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        return run.table(row, "edit", columns, where)

    revisions = table(Revisions)
    ids = pa.array([response for _, response, _ in shown_rollouts(revisions)], pa.string())
    sampled = (pc.field("arm") == "base") & (pc.field("part") == "train") & pc.field("response_id").isin(ids)
    texts = table(Rollouts, ["seed", "response_id", "sample", "text"], sampled).to_pylist()
    view = EditView(
        study=study.name,
        run_id=run.run_id,
        settings=study.edit,
        metrics=table(ArmMetrics),
        differences=table(ArmDifferences),
        learning=table(Learning),
        policies=table(Policies),
        rollouts=table(Rollouts, [name for name in Rollouts.model_fields if name != "text"]),
        steps=table(Steps, [name for name in Steps.model_fields if name != "belief"]),
        separations=table(Separations),
        revisions=revisions,
        demonstrations=table(Demonstrations, ["arm", "seed", "origin"]),
        faithfulness=table(RuleFaithfulness),
        texts={(row["seed"], row["response_id"], row["sample"]): row["text"] for row in texts},
    )
    return write_page(run, "edit.html", policy_page(view))
