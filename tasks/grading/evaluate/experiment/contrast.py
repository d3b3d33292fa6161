"""The main contrast of an experiment in one sentence: what it was run to find out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from rubricflow.tasks.core.contracts.settings.experiment import Experiment, backed
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import SIMULATED
from rubricflow.tasks.core.stats.bootstrap import is_few
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.evaluate.compare import compare, in_common
from rubricflow.tasks.grading.evaluate.experiment.arm import BootstrapPlan, ExperimentArm, agreement, on_same_answers
from rubricflow.tasks.grading.evaluate.slices import ScaleBounds


class Contrast(NamedTuple):
    """Arms that an experiment sets against each other, by their score frames; `calibrated` is what is compared."""

    studied: str
    """The arm that the experiment is about."""
    frames: Mapping[str, pd.DataFrame]
    """Arm → its scores, the studied one among them."""
    scale: ScaleBounds


class Beside(NamedTuple):
    """The studied arm beside one other, on the responses that both score."""

    studied: float | None
    """QWK of the studied arm."""
    other: float | None
    gap: Estimate
    """By how much the studied arm's QWK is higher."""
    n: int
    resampled: str


def main_contrast(arms: Mapping[str, ExperimentArm], experiment: Experiment, plan: BootstrapPlan) -> str:
    """One sentence about the studied arm beside the best other one: QWK of both on the same responses, the difference
    with its 95% interval, and n; '' for an experiment that sets no arm against another.

    The studied arm: the full configuration of GradeAgentOps (raw scores), the last method of Rulers on its first
    backbone or the full arm of an ablation (calibrated scores of held-out responses).
    """
    contrast = _contrast(arms, experiment)
    if contrast is None:
        return ""
    simulated = SIMULATED if any(arms[name].simulated for name in contrast.frames) else ""
    studied = contrast.studied
    names = sorted(contrast.frames, key=lambda name: name != studied)
    shared = on_same_answers([contrast.frames[name] for name in names], "calibrated")
    contrast = contrast._replace(frames=dict(zip(names, shared, strict=True)))
    others = {name: _beside(contrast, name, plan) for name in names[1:]}
    comparable = {name: beside for name, beside in others.items() if beside is not None and beside.other is not None}
    if not comparable:
        return f"{contrast.studied} shares no scored responses with another arm: there is nothing to compare."
    best = max(comparable, key=lambda name: comparable[name].other or 0.0)
    called = best if len(others) == 1 else f"{best}, the best of {len(others)} others"
    return _sentence(contrast.studied, called, comparable[best]) + simulated


def _contrast(arms: Mapping[str, ExperimentArm], experiment: Experiment) -> Contrast | None:
    tables = experiment.tables
    if tables.gradeagentops:
        studied, names = tables.gradeagentops.full, [tables.gradeagentops.baseline]
        frames = {name: arms[name].scores.assign(calibrated=arms[name].scores["raw"]) for name in (studied, *names)}
        return Contrast(studied, frames, arms[studied].scale)
    if tables.rulers and len(tables.rulers.methods) > 1:
        backbone = next(iter(tables.rulers.backbones), None)
        methods = [backed(name, backbone) if backbone else name for name in tables.rulers.methods]
        return _held_out(arms, methods[-1], methods)
    if tables.ablation:
        return _held_out(arms, tables.ablation.full, [tables.ablation.full, *tables.ablation.others.values()])
    return None


def _held_out(arms: Mapping[str, ExperimentArm], studied: str, names: list[str]) -> Contrast:
    return Contrast(studied, {name: arms[name].held_out for name in names}, arms[studied].scale)


def _beside(contrast: Contrast, other: str, plan: BootstrapPlan) -> Beside | None:
    """None where the two score no response in common."""
    frame, studied = contrast.frames[other], contrast.frames[contrast.studied]
    both = in_common(frame, studied)["response_id"]
    if both.empty:
        return None
    gaps, n, resampled = compare(frame, studied, contrast.scale, plan.draws, plan.seed)
    gap = gaps["qwk"]
    return Beside(
        studied=_qwk(studied[studied["response_id"].isin(both)], contrast.scale, plan),
        other=_qwk(frame[frame["response_id"].isin(both)], contrast.scale, plan),
        gap=Estimate(gap.estimate, gap.low, gap.high, clusters=gap.clusters),
        n=n,
        resampled=resampled,
    )


def _qwk(frame: pd.DataFrame, scale: ScaleBounds, plan: BootstrapPlan) -> float | None:
    return agreement(frame, "target", "calibrated", scale, plan)["qwk"].value


def _sentence(studied: str, other: str, beside: Beside) -> str:
    counted = say.plural(beside.n, "response")
    if beside.resampled != "response":
        counted += f" of {say.plural(beside.gap.clusters or 0, beside.resampled)}"
    gap, low, high = beside.gap.value, beside.gap.low, beside.gap.high
    if beside.studied is None or gap is None or low is None or high is None:
        return f"The agreement of {studied} with people cannot be computed: {counted}."
    figures = f"QWK {say.number(beside.studied)} beside {say.number(beside.other or 0.0)}"
    sure = f"{say.signed(gap)}, 95% interval {say.signed(low)} to {say.signed(high)}"
    caution = ", too few to be sure of the interval" if is_few(beside.gap.clusters) else ""
    return f"{_verdict(studied, other, low, high)}: {figures}, a difference of {sure} ({counted}{caution})."


def _verdict(studied: str, other: str, low: float, high: float) -> str:
    if low > 0:
        return f"{studied} agrees better with people than {other}"
    if high < 0:
        return f"{studied} agrees less with people than {other}"
    return f"{studied} is not shown to agree better or worse with people than {other}"
