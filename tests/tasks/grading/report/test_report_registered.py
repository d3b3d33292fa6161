"""A metric with a gate is one record: from outside, with no file of tasks edited, it is computed, asked and shown."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from builders.grading_scene import MANIFEST, SCALE, STUDY, made_run

from rubricflow.tasks.core.contracts import ScaleBounds
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Evaluation, Release
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics, Verdicts
from rubricflow.tasks.core.display.page import Fold, Grid, Named, rendered
from rubricflow.tasks.core.stats.agreement import Stat
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import TERMS
from rubricflow.tasks.core.stats.metrics import METRICS, Gate, Metric
from rubricflow.tasks.core.stats.scores import ScoreFrame
from rubricflow.tasks.grading.evaluate.figures import figures
from rubricflow.tasks.grading.report.view import view


def mse(human: Floats, machine: Floats, scale: ScaleBounds) -> Stat:
    return Stat(float(np.mean((machine - human) ** 2)))


def mse_of_totals(totals: Floats) -> Floats:
    return totals[:, TERMS.index("dd")] / totals[:, TERMS.index("n")]


SMALL = Gate("small_mse", "this test", "look again", most=9.0, question="Is the squared error small?")
TOY = Metric("mse", "Mean squared error", section="agreement", of=mse, of_totals=mse_of_totals).gated(SMALL)
WITH_TOY = (*METRICS, TOY)


def test_a_record_alone_brings_metric_gate_and_words() -> None:
    run = made_run(items=2, each=60)
    frame = run.scores.assign(cluster=np.arange(len(run.scores)), row=np.arange(len(run.scores)))
    scores = ScoreFrame(frame, [], ["anna", "ben"], pa.chunked_array([[[0.2] * 5] * len(frame)]))
    scales = dict.fromkeys(frame["item_id"].unique(), SCALE.bounds)
    plan = Evaluation(target="mean", draws=50), Release()
    metrics, verdicts = figures(scores, scales, "judge", *plan, metrics=WITH_TOY)
    whole = [r for r in metrics if (r["metric"], r["stage"], r["slice"]) == ("mse", "calibrated", "all")]
    (row,) = [r for r in whole if r["rater_a"] == "target"]
    both = frame.dropna(subset=["target", "calibrated"])
    assert row["value"] == np.mean((both["calibrated"] - both["target"]) ** 2)
    assert row["low"] < row["value"] < row["high"]
    (verdict,) = [r for r in verdicts if r["gate"] == "small_mse"]
    assert (verdict["metric"], verdict["most"], verdict["outcome"]) == ("mse", 9.0, "pass")
    tables = replace(run, metrics=conform(Metrics, metrics), verdicts=conform(Verdicts, verdicts))
    shown = view(tables, STUDY, MANIFEST, WITH_TOY).page
    html = rendered(shown)
    section = {section.id: section for section in shown.sections}
    folded = [part for fold in section["agreement"].parts if isinstance(fold, Fold) for part in fold.parts]
    names = [row[0] for grid in folded if isinstance(grid, Grid) for row in grid.rows]
    assert "Mean squared error" in names
    met = next(fold for fold in section["use"].parts if isinstance(fold, Fold) and "met" in fold.summary)
    rows = [row for grid in met.parts if isinstance(grid, Grid) for row in grid.rows]
    (gate,) = [row for row in rows if isinstance(row[0], Named) and row[0].text == SMALL.question]
    assert gate[3] == verdict["n"]
    assert str(gate[4]).startswith("Named(text=Markup('at most 9.00")
    assert gate[-1] == ""
    assert SMALL.question in html
    assert TOY.title in html
