"""The door of the grading report: a finished run's scores, looked at."""

from __future__ import annotations

import shlex
from pathlib import Path

import pyarrow as pa

from tasks.contracts.bundle import unlocked
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.calibration import Calibrations, Predictions, ReleaseRules
from tasks.contracts.tables.data import Items, Responses
from tasks.contracts.tables.evaluation import Metrics, Verdicts
from tasks.contracts.tables.judging import Gradings
from tasks.display import say
from tasks.display.printed import show_ending
from tasks.monitor.artifacts import announce, leave_table, leave_text
from tasks.monitor.runs import task
from tasks.report.grading.answers import FIRST_ANSWERS
from tasks.report.grading.counts import counts
from tasks.report.grading.ending import TABLE, ending, with_table
from tasks.report.grading.figures import Figures
from tasks.report.grading.page import page
from tasks.report.grading.promises import above_said
from tasks.report.grading.summary import HEADER, choices, gate_rows, markdown, opening, show, summary
from tasks.report.grading.view import Tables, View, needs_texts, view
from tasks.stats.bootstrap import cautions
from tasks.stats.scores import score_frame
from tasks.store.catalogue import catalogue
from tasks.store.handed_out import feedback_pages
from tasks.store.recorded import read_manifest
from tasks.store.scores import read_scores
from tasks.store.warehouse import Run


@task(task_run_name="report")
def report(run: Run, study: Study, manifest: Path, command: str, verbose: bool = False) -> str:
    """Write the HTML report, print what came of the run, and leave the same in Prefect's UI; returns it in a few words.

    command: what to type behind a command about this study. verbose: print all tables of the summary, too.
    """
    metrics, verdicts = (run.read(run.ref(row, "evaluate")).to_pandas() for row in (Metrics, Verdicts))
    rows, flags = summary(metrics), gate_rows(verdicts)
    facts = choices(run.read(run.ref(Calibrations, "calibrate")).to_pandas())
    cluster = next((by for by in metrics["resampled"] if by in ("author", "response")), None)
    intervals = f"95%, {study.evaluation.draws} draws, resampled by {cluster}" if cluster else "none"
    facts["intervals"] = "; ".join([intervals, *cautions(metrics["clusters"])])
    if above := above_said(verdicts.to_dict("records")):
        facts["released scores that are wrong, of items"] = say.plain(above)
    facts["target"] = study.evaluation.target
    facts |= {"run": run.run_id, "grade_digest": read_manifest(run)["grade_digest"]}
    shown = viewed(run)
    place = _written(run, shown)
    facts |= {"manifest": run.warehouse.shown(manifest), "tables": run.place, "report": run.warehouse.shown(place)}
    gates = verdicts.to_dict("records")
    rules = run.read(run.ref(ReleaseRules, "calibrate")).to_pylist()
    told = ending(shown.head.title, shown.outcome, rules, gates, command)
    told = with_table(told, Figures(run.read(run.ref(Metrics, "evaluate")).to_pylist()), study.evaluation.target)
    leave_table(run.run_id, "metrics", [dict(zip(HEADER, row, strict=True)) for row in rows])
    leave_text(
        run.run_id,
        "summary",
        opening(run.run_id, shlex.quote(run.warehouse.place), told) + markdown("All figures", rows, flags, facts),
    )
    if missed := [gate["gate"] for gate in gates if gate["outcome"] == "fail"]:
        announce("rubricflow.gate.missed", run.run_id, missed=len(missed), gates=list(dict.fromkeys(missed)))
    if verbose:
        show(rows, flags, facts)
    sources = (f"The judge's {shown.sources}.",) if shown.sources else ()
    show_ending((*sources, *told.sentences), told.title, TABLE, told.rows)
    print(f"report: {run.warehouse.shown(place)}")
    return told.state


def write_page(run: Run) -> Path:
    """Write `<run>/report.html` from the tables of a finished run; StoreError if it did not finish."""
    return _written(run, viewed(run))


def _written(run: Run, shown: View) -> Path:
    path = run.folder / "report.html"
    run.warehouse.write(path, page(shown).encode())
    return path


def viewed(run: Run) -> View:
    """What the report shows of a finished run; StoreError if it did not finish."""
    manifest = read_manifest(run)
    study = Study.model_validate(manifest["identity"]["study"])
    stages = ((Items, "ingest"), (Responses, "ingest"), (Gradings, "ingest"), (Gradings, "judge"))
    refs = (*(run.ref(row, stage) for row, stage in stages), run.ref(Predictions, "calibrate"))
    scores = score_frame(read_scores(run, *refs), study.evaluation.target).frame
    with catalogue(run) as tables:

        def whole(name: str) -> pa.Table:
            return tables.sql(f"SELECT * FROM {name}").to_arrow_table()

        items, bundles = whole("items"), unlocked(whole("bundles").to_pylist())
        scales = {row["item_id"]: bundles[row["rubric_id"]].scale.bounds for row in items.to_pylist()}
        shown = needs_texts(scores, scales)

        def of_shown(columns: str, name: str) -> pa.Table:
            query = f"SELECT {columns} FROM {name} WHERE list_contains($shown::VARCHAR[], response_id)"
            return tables.sql(query, params={"shown": shown}).to_arrow_table()

        texts = of_shown("response_id, text", "responses")
        content = Tables(
            scores=scores,
            items=items,
            bundles=bundles,
            metrics=whole("metrics"),
            verdicts=whole("verdicts"),
            rater_effects=whole("rater_effects"),
            release_rules=whole("release_rules"),
            candidates=whole("candidates"),
            calibrations=whole("calibrations"),
            checks=whole("checks"),
            judgments=of_shown("*", "judgments"),
            texts=dict(zip(texts["response_id"].to_pylist(), texts["text"].to_pylist(), strict=True)),
            counts=counts(tables, study.evaluation.target),
            answers=tables.sql(FIRST_ANSWERS).to_arrow_table(),
            links=feedback_pages(run),
        )
    return view(content, study.model_dump(mode="json"), manifest)
