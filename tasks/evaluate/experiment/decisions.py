"""How good the probabilities of single decisions are, arm by arm, as each run's evaluation found."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from tasks.display.table import Cell, Cells, Table, count, number
from tasks.evaluate.experiment.arm import ExperimentArm
from tasks.stats.estimate import Estimate

FIGURES = {
    "decision_accuracy": "accuracy",
    "decision_confidence": "confidence",
    "decision_ece": "ECE",
    "decision_ece_by_chance": "ECE by chance",
    "decision_brier": "Brier",
    "decision_rps": "RPS",
}
"""Metric of a run and its heading."""


def table(arms: Sequence[ExperimentArm]) -> Table:
    """Accuracy, confidence and calibration error of the likeliest level against people's marks."""
    return Table(
        "decisions",
        "Probabilities of single decisions against people's marks",
        ("configuration", "decisions", *FIGURES.values()),
        tuple(_row(arm) for arm in arms),
        (
            "held-out responses; ECE by chance: what a perfectly calibrated judge would show with as many decisions",
            "a dash: the judge gives no probabilities, or decides on other levels than people marked",
        ),
    )


def _row(arm: ExperimentArm) -> Cells:
    metrics = arm.metrics[arm.metrics["metric"].isin(FIGURES)].set_index("metric")
    n = int(metrics["n"].max()) if len(metrics) else 0
    return (arm.name, count(n), *(_cell(metrics, metric) for metric in FIGURES))


def _cell(metrics: pd.DataFrame, metric: str) -> Cell:
    if metric not in metrics.index:
        return Cell(None)
    ends = metrics.loc[[metric], _ENDS].to_numpy(dtype=float)[0].tolist()
    value, low, high, clusters = (None if math.isnan(end) else end for end in ends)
    return number(Estimate(value, low, high, clusters=None if clusters is None else int(clusters)), ends="interval")


_ENDS = ["value", "low", "high", "clusters"]
