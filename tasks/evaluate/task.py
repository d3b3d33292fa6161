"""The door of evaluate: people's and the machine's scores in, metrics out; and what a person reads at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from prefect import task
from prefect.artifacts import create_markdown_artifact

from tasks.contracts.bundle import unlocked
from tasks.contracts.study import Evaluation
from tasks.contracts.table import Row
from tasks.contracts.tables import Metrics, TableRef
from tasks.evaluate.agree import agree, pairs
from tasks.evaluate.scores import ScoreTables, score_frame
from tasks.evaluate.summary import markdown, show, summary
from tasks.store.warehouse import Rows, Run


class Evaluated(NamedTuple):
    """What evaluate writes."""

    metrics: TableRef


@task
def evaluate(
    run: Run,
    plan: Evaluation,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    gradings: TableRef,
    predictions: TableRef,
    bundles: TableRef,
) -> Evaluated:
    """Compare every rater with the human scores on the test split; without any there is nothing to compare."""

    def make() -> dict[type[Row], Rows]:
        refs = (items, responses, people, gradings, predictions)
        tables = ScoreTables(*(run.read(ref) for ref in refs))
        scores, groups, raters = score_frame(tables, plan.target)
        locked = unlocked(run.read(bundles).to_pylist())
        scales = {row["item_id"]: locked[row["rubric_id"]].scale.bounds for row in tables.items.to_pylist()}
        machine = next(iter(tables.gradings["rater_id"].unique().to_pylist()), "machine")
        return {Metrics: agree(scores, groups, scales, pairs(raters, machine), plan.draws, plan.seed) if raters else []}

    run.once("evaluate", make)
    return Evaluated(run.ref(Metrics, "evaluate"))


@task
def report(run: Run, plan: Evaluation, manifest: Path) -> None:
    """Print the summary table and where everything is, and leave the same as an artifact in the Prefect UI."""
    metrics = run.read(run.ref(Metrics, "evaluate")).to_pandas()
    facts = {"run": run.run_id, "target": plan.target, "manifest": manifest, "tables": run.folder}
    facts["grade_digest"] = json.loads(manifest.read_bytes())["grade_digest"]
    resampled = "".join(dict.fromkeys(metrics["resampled"]))
    facts["intervals"] = f"95%, {plan.draws} bootstrap draws, resampled by {resampled}" if resampled else "none"
    rows = summary(metrics)
    create_markdown_artifact(markdown(f"Run {run.run_id}", rows, facts), key="grade-summary")
    show(rows, facts)
