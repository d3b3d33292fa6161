"""All the tables that an experiment asks for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from rubricflow.tasks.core.contracts.settings.experiment import Experiment
from rubricflow.tasks.core.display.table import Cell, Cells, Table, count, labelled, number
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.evaluate.experiment import cases, gradeagentops, rulers
from rubricflow.tasks.grading.evaluate.experiment.arm import BootstrapPlan, ExperimentArm

FIGURES = {
    "decision_accuracy": "accuracy",
    "decision_confidence": "confidence",
    "decision_ece": "ECE",
    "decision_ece_by_chance": "ECE by chance",
    "decision_brier": "Brier",
    "decision_rps": "RPS",
}
"""Metric of a run and its heading."""


_ENDS = ["value", "low", "high", "clusters"]


def tables(arms: Mapping[str, ExperimentArm], experiment: Experiment, reference: str) -> list[Table]:
    """The tables in the order of the papers; they say so where any rater is simulated.

    arms: those of the file and those that tables add; reference: the human score compared with, as a rater id.
    """
    plain = list(_tables(arms, experiment, reference))
    if any(arm.simulated for arm in arms.values()):
        return [labelled(table) for table in plain]
    return plain


def _tables(arms: Mapping[str, ExperimentArm], experiment: Experiment, reference: str) -> Iterator[Table]:
    setting = experiment.tables
    plan = BootstrapPlan(experiment.draws, experiment.seed)
    if setting.gradeagentops:
        yield from gradeagentops.tables(arms, setting.gradeagentops, reference, plan)
    if setting.orders:
        yield from cases.tables(arms, setting.orders, plan)
    if setting.rulers:
        yield from rulers.tables(arms, setting.rulers, plan)
    if setting.calibration_size:
        yield rulers.calibration_size(arms, setting.calibration_size, plan)
    if setting.perturbation:
        yield rulers.perturbation(arms, setting.perturbation, plan)
    if setting.ablation:
        yield rulers.ablation(arms, setting.ablation, plan)
    if setting.stability:
        yield rulers.stability(arms, setting.stability, plan)
    if setting.decisions:
        yield table([arms[name] for name in setting.decisions.arms])


# How good the probabilities of single decisions are, arm by arm, as each run's evaluation found.


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
