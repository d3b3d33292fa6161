"""The stage entry point of the annotation report."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.schema import Row, schema
from rubricflow.tasks.core.contracts.tables.people import Agreements, Constructions, Labels, Queue, Votes
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Table
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.publish import publish, write_page
from rubricflow.tasks.core.store.manifest import study_of
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.people.report.view import HEADER, AgreementFigures, AnnotationView, summary_rows
from rubricflow.tasks.people.report.view import page as annotation_page


@task(task_run_name="report")
def report_annotation(run: Run, manifest: Path) -> str:
    """Write the report of annotation; print the agreement and where everything is, and leave the same as artifacts in
    the Prefect UI."""
    page, view = write_annotation(run), _annotation(run)
    rows = summary_rows(view.agreements, view.names)
    notes = tuple(AgreementFigures(view.agreements, view.names).cautions())
    table = Table("agreement", "Agreement on concepts", HEADER, rows, notes)
    waiting = say.plural(len(view.queue), "response waits", "responses wait")
    return publish(run, "annotation", f"{waiting} for people", table, {"manifest": manifest}, page)


def write_annotation(run: Run) -> Path:
    """Write `<run>/annotation.html` from the tables of an annotated run; StoreError where it is none."""
    return write_page(run, "annotation.html", annotation_page(_annotation(run)))


def _annotation(run: Run) -> AnnotationView:
    """What annotators and people said; empty tables for what has not come yet."""
    study = study_of(run)

    def rows_of(row: type[Row], *stages: str) -> pa.Table:
        done = [stage for stage in stages if run.done(stage, "all")]
        return pa.concat_tables([schema(row).empty_table(), *(run.table(row, stage) for stage in done)])

    settled = "compare-settled" if run.done("compare-settled", "all") else "compare"
    names: dict[str, str] = {}
    for bundle in unlocked(run.table(Bundles, "lock").to_pylist()).values():
        names |= bundle.names
    return AnnotationView(
        study=study.name,
        run_id=run.run_id,
        names=names,
        agreements=rows_of(Agreements, "compare", "compare-settled"),
        labels=rows_of(Labels, "adjudicate"),
        queue=rows_of(Queue, "queue"),
        votes=rows_of(Votes, "adjudicate"),
        constructions=rows_of(Constructions, settled),
    )
