"""The stage of the grading report: a finished run's scores, looked at."""

from __future__ import annotations

import shlex
from pathlib import Path

import duckdb
import pyarrow as pa

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.calibration import Predictions, ReleaseRules
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics, Verdicts
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.quotes import NO_JUROR
from rubricflow.tasks.core.display.table import as_records, markdown, show, show_sentences
from rubricflow.tasks.core.display.verdict import needs_of
from rubricflow.tasks.core.display.worth import QUERIES as WORTH_QUERIES
from rubricflow.tasks.core.monitor.artifacts import announce, leave_table, leave_text
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.stats.scores import score_frame
from rubricflow.tasks.core.store.catalogue import catalogue, feedback_pages, read_manifest
from rubricflow.tasks.core.store.ordered import read_marked, read_scores
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.report.answers import FIRST_ANSWERS
from rubricflow.tasks.grading.report.figures import QUERIES, counts
from rubricflow.tasks.grading.report.view import (
    Tables,
    View,
    figure_tables,
    needs_texts,
    next_step,
    nothing_scored,
    state,
    view,
)

_SHOWN = (
    "low",
    "high",
    "risk",
    "route",
    "route_reason",
    "unscored_reason",
    "points_judge",
    "points_text",
    "points_item",
)
"""What the report shows of a prediction with its score."""
_WHOLE = ("items", "metrics", "verdicts", "rater_effects", "release_rules", "candidates", "calibrations", "checks")
"""Tables that the report takes whole."""


@task(task_run_name="report")
def report(run: Run, study: Study, manifest: Path, command: str | None, verbose: bool = False) -> str:
    """Write the HTML report, print what came of the run, and leave the same in Prefect's UI; returns it in a few words.

    UserError, when all that is done, where the judge scored nothing.

    command: what to type behind a command about this study; None where its commands would not find
    this run. verbose: print all tables of the summary, too.
    """
    metrics, gates = (run.read(run.ref(row, "evaluate")).to_pylist() for row in (Metrics, Verdicts))
    rules = run.read(run.ref(ReleaseRules, "calibrate")).to_pylist()
    shown = viewed(run)
    path = run.warehouse.shown(_written(run, shown))
    found = state(shown.verdict, gates)
    sentences = [
        say.plain(shown.verdict.words),
        *([say.plain(shown.why_nothing)] if shown.why_nothing else []),
        *shown.preferences,
    ]
    if study.log is None:  # `calibrate` knows where the log lies, and says what to do with it next
        sentences.append(
            next_step(shown.verdict, rules if shown.verdict.answers else (), command, not run.warehouse.mirrored)
        )
    tables = figure_tables(metrics, gates)
    facts = {"run": run.run_id, "grade_digest": read_manifest(run)["grade_digest"], "target": study.evaluation.target}
    facts |= {"manifest": run.warehouse.shown(manifest), "tables": run.place, "report": path}
    leave_table(run.run_id, "metrics", as_records(tables[0]))
    aside = [f"The judge's {shown.sources}."] if shown.sources else []
    if shown.told:
        aside.append(say.plain(shown.told))
    elif shown.ranking.sentence:
        aside += [shown.ranking.sentence, shown.ranking.doubles]
    if study.log:  # what its owner asks first
        sentences[:0], aside = filter(None, aside), []
    told = [*sentences, *filter(None, aside)]
    command_line = f"rubricflow report {run.run_id} --warehouse {shlex.quote(run.warehouse.place)} --serve"
    listed = [f"The whole report: `{command_line}`", "", *(f"- {name}: `{value}`" for name, value in facts.items())]
    leave_text(run.run_id, "summary", markdown(found, told, tables, listed))
    if missed := [gate["gate"] for gate in gates if gate["outcome"] == "fail"]:
        announce("rubricflow.gate.missed", run.run_id, missed=len(missed), gates=list(dict.fromkeys(missed)))
    if verbose:
        show(tables)
        show_sentences([*filter(None, aside), *(f"{name}: {value}" for name, value in facts.items())])
    show_sentences(sentences)
    print(f"report: {path}")
    if shown.nothing:
        raise UserError(f"{shown.nothing} To ask again, {run.mend()}")
    return found


def refuse_unscored(run: Run) -> None:
    """UserError where the judge scored nothing in a run."""
    with catalogue(run) as tables:
        nothing = nothing_scored(tables.sql(QUERIES["nothing"]).to_arrow_table().to_pylist())
    if nothing:
        raise UserError(f"{run.run_id}: {nothing} To ask again, {run.mend()}")


def write_page(run: Run) -> Path:
    """Write `<run>/report.html` from the tables of a finished run; StoreError if it did not finish."""
    return _written(run, viewed(run))


def _written(run: Run, shown: View) -> Path:
    path = run.folder / "report.html"
    run.warehouse.write(path, rendered(shown.page).encode())
    return path


def viewed(run: Run) -> View:
    """What the report shows of a finished run; StoreError if it did not finish."""
    manifest = read_manifest(run)
    # A manifest of an earlier version says nothing of marks: they decided nothing then.
    study = Study.model_validate({"marks": "calibrate"} | manifest["identity"]["study"])
    stages = ((Items, "ingest"), (Responses, "ingest"), (Gradings, "ingest"), (Gradings, "judge"))
    refs = (*(run.ref(row, stage) for row, stage in stages), run.ref(Predictions, "calibrate"))
    tables_of_scores = read_scores(run, *refs, predicted=_SHOWN, signals=False)
    scores = score_frame(tables_of_scores, study.evaluation.target).frame
    several = bool(study.judge.escalate or study.judge.jury)
    with catalogue(run) as tables:
        whole = {name: tables.sql(f"SELECT * FROM {name}").to_arrow_table() for name in _WHOLE}
        bundles = unlocked(tables.sql("SELECT * FROM bundles").to_arrow_table().to_pylist())
        scales = {row["item_id"]: bundles[row["rubric_id"]].scale.bounds for row in whole["items"].to_pylist()}
        shown = needs_texts(scores, scales)
        texts = _of_responses(tables, "responses", "response_id, text", shown).to_pylist()
        content = Tables(
            **whole,
            scores=scores,
            bundles=bundles,
            judgments=_of_responses(tables, "judgments", "*", shown),
            texts={row["response_id"]: row["text"] for row in texts},
            counts=counts(tables, study.evaluation.target),
            answers=tables.sql(FIRST_ANSWERS).to_arrow_table(),
            needs=needs_of(study.release, read_marked(run, refs[1], refs[2], study.evaluation.target)),
            worth={name: tables.sql(query).df() for name, query in WORTH_QUERIES.items()} if several else {},
            links=feedback_pages(run),
        )
    return view(content, study.model_dump(mode="json"), manifest, has_review=not run.warehouse.mirrored)


def _of_responses(tables: duckdb.DuckDBPyConnection, name: str, columns: str, responses: list[str]) -> pa.Table:
    """Columns of a table's rows about these responses."""
    query = f"SELECT {columns} FROM {name} WHERE list_contains($shown::VARCHAR[], response_id)"
    query += f" AND {NO_JUROR}" if name == "judgments" else ""
    return tables.sql(query, params={"shown": responses}).to_arrow_table()
