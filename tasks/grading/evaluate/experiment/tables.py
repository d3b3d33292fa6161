"""All the tables that an experiment asks for, and its main contrast in one sentence: what it was run to find out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from rubricflow.tasks.core.contracts.settings.experiment import Experiment, backed
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import SIMULATED, Cell, Cells, Table, count, labelled, number
from rubricflow.tasks.core.stats.bootstrap import is_few
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.evaluate.compare import compare
from rubricflow.tasks.grading.evaluate.experiment import cases, gradeagentops, rulers
from rubricflow.tasks.grading.evaluate.experiment.arm import BootstrapPlan, ExperimentArm, agreement, on_same_answers

FIGURES = {
    "decision_accuracy": "accuracy",
    "decision_confidence": "confidence",
    "decision_ece": "ECE",
    "decision_ece_by_chance": "ECE by chance",
    "decision_brier": "Brier",
    "decision_rps": "RPS",
}
"""Metric of a run and its heading."""


def tables(arms: Mapping[str, ExperimentArm], experiment: Experiment, reference: str) -> list[Table]:
    """The tables in the order of the papers; they say so where any rater is simulated.

    arms: those of the file and those that tables add; reference: the human score compared with, as a rater id.
    """
    setting, found = experiment.tables, list[Table]()
    plan = BootstrapPlan(experiment.draws, experiment.seed)
    if setting.gradeagentops:
        found += gradeagentops.tables(arms, setting.gradeagentops, reference, plan)
    if setting.orders:
        found += cases.tables(arms, setting.orders, plan)
    if setting.rulers:
        found += rulers.tables(arms, setting.rulers, plan)
    if setting.calibration_size:
        found.append(rulers.calibration_size(arms, setting.calibration_size, plan))
    if setting.perturbation:
        found.append(rulers.perturbation(arms, setting.perturbation, plan))
    if setting.ablation:
        found.append(rulers.ablation(arms, setting.ablation, plan))
    if setting.stability:
        found.append(rulers.stability(arms, setting.stability, plan))
    if setting.decisions:
        found.append(decisions([arms[name] for name in setting.decisions.arms]))
    return [labelled(table) for table in found] if any(arm.simulated for arm in arms.values()) else found


def decisions(arms: Sequence[ExperimentArm]) -> Table:
    """Accuracy, confidence and calibration error of the likeliest level against people's marks."""
    rows = list[Cells]()
    for arm in arms:
        metrics = arm.metrics[arm.metrics["metric"].isin(FIGURES)].set_index("metric")
        n = int(metrics["n"].max()) if len(metrics) else 0
        cells = list[Cell]()
        for metric in FIGURES:
            ends = metrics.reindex([metric])[["value", "low", "high", "clusters"]].astype(float).iloc[0]
            value, low, high, clusters = (None if math.isnan(end) else end for end in ends)
            estimate = Estimate(value, low, high, clusters=None if clusters is None else int(clusters))
            cells.append(number(estimate, ends="interval") if metric in metrics.index else Cell(None))
        rows.append((arm.name, count(n), *cells))
    return Table(
        "decisions",
        "Probabilities of single decisions against people's marks",
        ("configuration", "decisions", *FIGURES.values()),
        tuple(rows),
        (
            "held-out responses; ECE by chance: what a perfectly calibrated judge would show with as many decisions",
            "a dash: the judge gives no probabilities, or decides on other levels than people marked",
        ),
    )


def main_contrast(arms: Mapping[str, ExperimentArm], experiment: Experiment, plan: BootstrapPlan) -> str:
    """One sentence about the studied arm and the best other one: QWK of both on the same responses, the difference
    with its 95% interval, and n; '' for an experiment that sets no arm against another.

    The studied arm: the full configuration of GradeAgentOps (raw scores), the last method of Rulers on its first
    backbone or the full arm of an ablation (calibrated scores of held-out responses).
    """
    every = _contrasted(arms, experiment)
    if not every:
        return ""
    frames = dict(zip(every, on_same_answers([*every.values()], "calibrated"), strict=True))
    studied, *others = frames
    scale = arms[studied].scale
    kappas = {
        name: agreement(frame, "target", "calibrated", scale, plan)["qwk"].value for name, frame in frames.items()
    }
    comparable = {name: kappas[name] or 0.0 for name in others if kappas[name] is not None and len(frames[studied])}
    if not comparable:
        return f"{studied} shares no scored responses with another arm: there is nothing to compare."
    best = max(comparable, key=comparable.__getitem__)
    gaps, n, resampled = compare(frames[best], frames[studied], scale, plan.draws, plan.seed)
    gap, low, high, own = gaps["qwk"].estimate, gaps["qwk"].low, gaps["qwk"].high, kappas[studied]
    clusters = gaps["qwk"].clusters
    counted = say.plural(n, "response")
    if resampled != "response":
        counted += f" of {say.plural(clusters or 0, resampled)}"
    simulated = SIMULATED if any(arms[name].simulated for name in frames) else ""
    if own is None or gap is None or low is None or high is None:
        return f"The agreement of {studied} with people cannot be computed: {counted}.{simulated}"
    other = best if len(others) == 1 else f"{best}, the best of {len(others)} others"
    verdict = f"{studied} is not shown to agree better or worse with people than {other}"
    if low > 0 or high < 0:
        verdict = f"{studied} agrees {'better' if low > 0 else 'less'} with people than {other}"
    figures = f"QWK {say.number(own)} beside {say.number(comparable[best])}"
    sure = f"{say.signed(gap)}, 95% interval {say.signed(low)} to {say.signed(high)}"
    caution = ", too few to be sure of the interval" if is_few(clusters) else ""
    return f"{verdict}: {figures}, a difference of {sure} ({counted}{caution}).{simulated}"


def _contrasted(arms: Mapping[str, ExperimentArm], experiment: Experiment) -> dict[str, pd.DataFrame]:
    """The score frames that the experiment sets against each other, the studied arm's first; `calibrated` is what is
    compared."""
    tables = experiment.tables
    if tables.gradeagentops:
        names = [tables.gradeagentops.full, tables.gradeagentops.baseline]
        return {name: arms[name].scores.assign(calibrated=arms[name].scores["raw"]) for name in names}
    if tables.rulers and len(tables.rulers.methods) > 1:
        backbone = next(iter(tables.rulers.backbones), None)
        *others, studied = (backed(name, backbone) if backbone else name for name in tables.rulers.methods)
        return {name: arms[name].held_out for name in (studied, *others)}
    if tables.ablation:
        return {name: arms[name].held_out for name in (tables.ablation.full, *tables.ablation.others.values())}
    return {}
