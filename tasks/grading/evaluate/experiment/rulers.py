"""The tables of Rulers: calibrated scores of the held-out responses, by method and backbone, calibration size,
presentation of the rubric, ablation and induction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from rubricflow.tasks.core.contracts.settings.experiment import (
    Ablation,
    CalibrationSize,
    Perturbation,
    Rulers,
    Stability,
    backed,
    induced,
    presented,
)
from rubricflow.tasks.core.display.table import Bar, Cell, Cells, LevelShares, Panel, Table, bar, count, number
from rubricflow.tasks.core.stats.agreement import level_count, to_levels
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.evaluate.compare import compare, in_common
from rubricflow.tasks.grading.evaluate.experiment.arm import (
    ArmAgreement,
    BootstrapPlan,
    ExperimentArm,
    agreement,
    on_same_answers,
    per_response,
)

SE_ALONE = "QWK ± bootstrap standard error, whole authors resampled; held-out responses that all arms score"
SE_NOTE = f"{SE_ALONE}, mapped as each study says"
STANDARD = "standard"


def tables(arms: Mapping[str, ExperimentArm], setting: Rulers, plan: BootstrapPlan) -> Iterator[Table]:
    """Table 2 with Figure 2, and Table 8."""
    labels = list(setting.backbones) or [""]
    grid = {label: _of_backbone(arms, setting.methods, label) for label in labels}
    yield _methods(grid, setting.methods, plan)
    yield _tokens(grid, setting.methods)


def _of_backbone(arms: Mapping[str, ExperimentArm], methods: Sequence[str], label: str) -> list[ExperimentArm]:
    """The arms of all methods on one backbone; those of the file where it names no backbones."""
    names = [backed(name, label) for name in methods] if label else methods
    return [arms[name] for name in names]


def _alike(arms: Sequence[ExperimentArm]) -> list[ExperimentArm]:
    """The arms of a table with the held-out responses that all of them score."""
    shared = on_same_answers([arm.held_out for arm in arms], "calibrated")
    return [arm._replace(scores=rows) for arm, rows in zip(arms, shared, strict=True)]


def calibration_size(arms: Mapping[str, ExperimentArm], setting: CalibrationSize, plan: BootstrapPlan) -> Table:
    """Tables 3 and 11: the same held-out responses, phase III fitted to more and more labels."""
    rows, missing, frames = list[Cells](), list[str](), dict[tuple[str, int], pd.DataFrame]()
    for name in setting.arms:
        uncalibrated = arms[name].held_out
        frames[name, 0] = uncalibrated.assign(calibrated=uncalibrated["raw"])
        for size in setting.sizes:
            frame = arms[name].resized[size]
            if frame is None:
                missing.append(f"{name} has no {size} labelled responses in its calibration split")
            else:
                frames[name, size] = frame[frame["split"] == "test"]
    shared = dict(zip(frames, on_same_answers([*frames.values()], "calibrated"), strict=True))
    for name in setting.arms:
        of_arm = {size: frame for (arm, size), frame in shared.items() if arm == name}
        agreed = {
            size: agreement(frame, "target", "calibrated", arms[name].scale, plan) for size, frame in of_arm.items()
        }
        kappas = (_kappa(agreed[size]) if size in agreed else Cell(None) for size in setting.sizes)
        rows.append((name, count(agreed[0].n), _kappa(agreed[0]), *kappas))
    return Table(
        "rulers_11",
        "Table 11: calibration control, QWK by number of labels",
        ("method", "n", "no calibration", *(f"N = {size}" for size in setting.sizes)),
        tuple(rows),
        (
            SE_ALONE,
            "every method is mapped by phase III (ridge and map of distributions), whatever its study says",
            *missing,
        ),
    )


def perturbation(arms: Mapping[str, ExperimentArm], setting: Perturbation, plan: BootstrapPlan) -> Table:
    """Figure 3: QWK under each presentation, and the largest shift from the standard one."""
    variants = [STANDARD, *(variant for variant in setting.variants if variant != STANDARD)]
    rows, panels = list[Cells](), list[Panel]()
    every = _alike([arms[presented(name, variant)] for name in setting.arms for variant in variants])
    for place, name in enumerate(setting.arms):
        agreements = [_held_out(arm, plan) for arm in every[place * len(variants) :][: len(variants)]]
        rows.append((name, *map(_kappa, agreements), number(_largest_shift(agreements))))
        bars = _bars(map(_in_words, variants), agreements)
        panels.append(Panel(f"QWK of {name} by presentation", bars))
    return Table(
        "rulers_figure_3",
        "Figure 3: QWK by presentation of the rubric",
        ("method", *map(_in_words, variants), "largest shift"),
        tuple(rows),
        (SE_NOTE, "largest shift: largest absolute difference from the standard presentation"),
        tuple(panels),
    )


def _largest_shift(agreements: Sequence[ArmAgreement]) -> float | None:
    """Largest absolute difference in QWK from the first; None where that or all others have none."""
    standard, *others = [agreed["qwk"].value for agreed in agreements]
    if standard is None:
        return None
    return max((abs(value - standard) for value in others if value is not None), default=None)


def _bars(labels: Iterable[str], agreements: Sequence[ArmAgreement]) -> tuple[Bar, ...]:
    bars = list[Bar]()
    for label, agreed in zip(labels, agreements, strict=True):
        bars += bar(label, agreed["qwk"])
    return tuple(bars)


def ablation(arms: Mapping[str, ExperimentArm], setting: Ablation, plan: BootstrapPlan) -> Table:
    """Table 4: the full arm, and what changes without a part of it, paired over the same responses."""
    full, *others = _alike([arms[name] for name in (setting.full, *setting.others.values())])
    agreed = _held_out(full, plan)
    rows: list[Cells] = [(setting.full, count(agreed.n), _kappa(agreed), Cell(None), Cell(None))]
    bars = list(bar(setting.full, agreed["qwk"]))
    for label, other in zip(setting.others, others, strict=True):
        agreed, (gap, p) = _held_out(other, plan), _change(full, other, plan)
        rows.append((label, count(agreed.n), _kappa(agreed), number(gap, ends="interval"), number(p, 4)))
        bars += bar(label, agreed["qwk"])
    return Table(
        "rulers_4",
        f"Table 4: ablations of {setting.full}",
        ("setting", "n", "QWK", f"change from {setting.full}", "p"),
        tuple(rows),
        (SE_NOTE, "change: paired over the same responses, with its 95% interval"),
        (Panel("QWK by setting", tuple(bars)),),
    )


def stability(arms: Mapping[str, ExperimentArm], setting: Stability, plan: BootstrapPlan) -> Table:
    """Table 9: QWK of bundles induced independently, their mean and sample standard deviation."""
    bundles = _alike([arms[induced(setting.arm, seed)] for seed in setting.seeds])
    agreements = [_held_out(arm, plan) for arm in bundles]
    values = pd.Series([agreed["qwk"].value for agreed in agreements], dtype=float).dropna()
    mean = float(values.mean()) if len(values) else None
    sd = float(values.std(ddof=1)) if len(values) > 1 else None
    return Table(
        "rulers_9",
        f"Table 9: QWK of {setting.arm} over {len(agreements)} induced bundles",
        ("method", *(f"run {seed}" for seed in setting.seeds), "mean", "SD"),
        ((setting.arm, *map(_kappa, agreements), number(mean), number(sd)),),
        (SE_NOTE, "SD: sample standard deviation over the runs"),
    )


def _methods(grid: Mapping[str, Sequence[ExperimentArm]], methods: Sequence[str], plan: BootstrapPlan) -> Table:
    rows, figures = list[Cells](), list[Panel | LevelShares]()
    shared = iter(_alike([arm for arms in grid.values() for arm in arms]))
    for label, of_label in grid.items():
        arms = [next(shared) for _ in of_label]
        agreements = [_held_out(arm, plan) for arm in arms]
        rows.append((label or "as given", *map(_kappa, agreements)))
        place = f" on {label}" if label else ""
        figures.append(Panel(f"QWK{place}", _bars(methods, agreements)))
        figures.append(_shares(place, arms, methods))
    return Table(
        "rulers_2",
        "Table 2: QWK by method and backbone",
        ("backbone", *methods),
        tuple(rows),
        (SE_NOTE,),
        tuple(figures),
    )


def _tokens(grid: Mapping[str, Sequence[ExperimentArm]], methods: Sequence[str]) -> Table:
    rows, bars = list[Cells](), list[Bar]()
    for label, arms in grid.items():
        tokens = [_tokens_per_response(arm) for arm in arms]
        rows.append((label or "as given", *(number(value, 1) for value in tokens)))
        names = (f"{name} {label}".strip() for name in methods)
        bars += [Bar(name, value) for name, value in zip(names, tokens, strict=True) if value is not None]
    return Table(
        "rulers_8",
        "Table 8: tokens per response",
        ("backbone", *methods),
        tuple(rows),
        ("prompts and replies of all calls about a response; a dash: the backend does not tell",),
        (Panel("Tokens per response", tuple(bars)),),
    )


def _tokens_per_response(arm: ExperimentArm) -> float | None:
    calls = per_response(arm.attempts)
    tokens = (calls["prompt_tokens"] + calls["completion_tokens"]).dropna()
    return float(tokens.mean()) if len(tokens) else None


def _shares(place: str, arms: Sequence[ExperimentArm], methods: Sequence[str]) -> LevelShares:
    """Figure 2: share of the held-out responses at each level."""
    low, high, step = arms[0].scale
    return LevelShares(
        f"Figure 2: held-out scores{place}",
        levels=tuple(f"{low + step * level:g}" for level in range(level_count(low, high, step))),
        people=_levels(max(arms, key=lambda arm: len(arm.scores)), "target"),
        arms={name: _levels(arm, "calibrated") for name, arm in zip(methods, arms, strict=True)},
    )


def _levels(arm: ExperimentArm, column: str) -> tuple[float, ...]:
    low, high, step = arm.scale
    scores = arm.held_out[column].dropna().to_numpy(float)
    counts = np.bincount(to_levels(scores, low, high, step), minlength=round((high - low) / step) + 1)
    return tuple(float(share) for share in counts / max(len(scores), 1))


def _held_out(arm: ExperimentArm, plan: BootstrapPlan) -> ArmAgreement:
    return agreement(arm.held_out, "target", "calibrated", arm.scale, plan)


def _kappa(agreed: ArmAgreement) -> Cell:
    return number(agreed["qwk"], ends="se")


def _change(base: ExperimentArm, other: ExperimentArm, plan: BootstrapPlan) -> tuple[Estimate, float | None]:
    """QWK of the other less that of the base, and p."""
    if in_common(base.held_out, other.held_out).empty:
        return Estimate(None), None
    differences, *_ = compare(base.held_out, other.held_out, base.scale, plan.draws, plan.seed)
    gap = differences["qwk"]
    return Estimate(gap.estimate, gap.low, gap.high, clusters=gap.clusters), gap.p


def _in_words(variant: str) -> str:
    return variant.replace("_", " ")
