"""The tables of Rulers: calibrated scores of the held-out responses, by method and backbone, calibration size,
presentation of the rubric, ablation and induction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from tasks.contracts.settings.experiment import (
    Ablation,
    CalibrationSize,
    Perturbation,
    Rulers,
    Stability,
    backed,
    induced,
    presented,
)
from tasks.display.table import Bar, Cell, Cells, LevelShares, Panel, Table, bar, count, number
from tasks.evaluate.compare import compare, in_common
from tasks.evaluate.experiment.arm import ArmAgreement, BootstrapPlan, ExperimentArm, agreement
from tasks.evaluate.experiment.calls import per_response
from tasks.stats.agreement import to_levels
from tasks.stats.estimate import Estimate

SE_ALONE = "QWK ± bootstrap standard error, whole authors resampled; held-out responses"
SE_NOTE = f"{SE_ALONE}, mapped as each study says"
STANDARD = "standard"


def tables(arms: Mapping[str, ExperimentArm], wanted: Rulers, plan: BootstrapPlan) -> Iterator[Table]:
    """Table 2 with Figure 2, and Table 8."""
    labels = list(wanted.backbones) or [""]
    grid = {label: [arms[backed(name, label) if label else name] for name in wanted.methods] for label in labels}
    yield _methods(grid, wanted.methods, plan)
    yield _tokens(grid, wanted.methods)


def calibration_size(arms: Mapping[str, ExperimentArm], wanted: CalibrationSize, plan: BootstrapPlan) -> Table:
    """Tables 3 and 11: the same held-out responses, phase III fitted to more and more labels."""
    rows, missing = list[Cells](), list[str]()
    for name in wanted.arms:
        arm = arms[name]
        cells = list[Cell]()
        for size in wanted.sizes:
            frame = arm.resized[size]
            if frame is None:
                cells.append(Cell(None))
                missing.append(f"{name} has no {size} labelled responses in its calibration split")
            else:
                held_out = frame[frame["split"] == "test"]
                cells.append(_kappa(agreement(held_out, "target", "calibrated", arm.scale, plan)))
        raw = agreement(arm.held_out, "target", "raw", arm.scale, plan)
        rows.append((name, count(raw.n), _kappa(raw), *cells))
    return Table(
        "rulers_11",
        "Table 11: calibration control, QWK by number of labels",
        ("method", "n", "no calibration", *(f"N = {size}" for size in wanted.sizes)),
        tuple(rows),
        (
            SE_ALONE,
            "every method is mapped by phase III (ridge and map of distributions), whatever its study says",
            *missing,
        ),
    )


def perturbation(arms: Mapping[str, ExperimentArm], wanted: Perturbation, plan: BootstrapPlan) -> Table:
    """Figure 3: QWK under each presentation, and the largest shift from the standard one."""
    variants = [STANDARD, *(variant for variant in wanted.variants if variant != STANDARD)]
    rows, panels = list[Cells](), list[Panel]()
    for name in wanted.arms:
        found = [_held_out(arms[presented(name, variant)], plan) for variant in variants]
        values = [one["qwk"].value for one in found]
        known = [value for value in values[1:] if value is not None]
        shift = max((abs(value - values[0]) for value in known), default=None) if values[0] is not None else None
        rows.append((name, *map(_kappa, found), number(shift)))
        bars = [one for variant, told in zip(variants, found, strict=True) for one in bar(_said(variant), told["qwk"])]
        panels.append(Panel(f"QWK of {name} by presentation", tuple(bars)))
    return Table(
        "rulers_figure_3",
        "Figure 3: QWK by presentation of the rubric",
        ("method", *map(_said, variants), "largest shift"),
        tuple(rows),
        (SE_NOTE, "largest shift: largest absolute difference from the standard presentation"),
        tuple(panels),
    )


def ablation(arms: Mapping[str, ExperimentArm], wanted: Ablation, plan: BootstrapPlan) -> Table:
    """Table 4: the full arm, and what changes without a part of it, paired over the same responses."""
    full = arms[wanted.full]
    rows: list[Cells] = [(wanted.full, *_kappas(full, plan), Cell(None), Cell(None))]
    bars = list(bar(wanted.full, _held_out(full, plan)["qwk"]))
    for label, name in wanted.others.items():
        gap, p = _change(full, arms[name], plan)
        rows.append((label, *_kappas(arms[name], plan), number(gap, ends="interval"), number(p, 4)))
        bars += bar(label, _held_out(arms[name], plan)["qwk"])
    return Table(
        "rulers_4",
        f"Table 4: ablations of {wanted.full}",
        ("setting", "n", "QWK", f"change from {wanted.full}", "p"),
        tuple(rows),
        (SE_NOTE, "change: paired over the same responses, with its 95% interval"),
        (Panel("QWK by setting", tuple(bars)),),
    )


def stability(arms: Mapping[str, ExperimentArm], wanted: Stability, plan: BootstrapPlan) -> Table:
    """Table 9: QWK of bundles induced independently, their mean and sample standard deviation."""
    found = [_held_out(arms[induced(wanted.arm, seed)], plan) for seed in wanted.seeds]
    values = pd.Series([one["qwk"].value for one in found], dtype=float).dropna()
    mean = float(values.mean()) if len(values) else None
    sd = float(values.std(ddof=1)) if len(values) > 1 else None
    return Table(
        "rulers_9",
        f"Table 9: QWK of {wanted.arm} over {len(found)} induced bundles",
        ("method", *(f"run {seed}" for seed in wanted.seeds), "mean", "SD"),
        ((wanted.arm, *map(_kappa, found), number(mean), number(sd)),),
        (SE_NOTE, "SD: sample standard deviation over the runs"),
    )


def _methods(grid: Mapping[str, Sequence[ExperimentArm]], methods: Sequence[str], plan: BootstrapPlan) -> Table:
    rows, figures = list[Cells](), list[Panel | LevelShares]()
    for label, of in grid.items():
        found = [_held_out(arm, plan) for arm in of]
        rows.append((label or "as given", *map(_kappa, found)))
        bars = [one for name, told in zip(methods, found, strict=True) for one in bar(name, told["qwk"])]
        figures += [Panel(f"QWK{f' on {label}' if label else ''}", tuple(bars)), _shares(label, of, methods)]
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
    for label, of in grid.items():
        tokens = [_tokens_per_response(arm) for arm in of]
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


def _shares(label: str, arms: Sequence[ExperimentArm], methods: Sequence[str]) -> LevelShares:
    """Figure 2: share of the held-out responses at each level."""
    low, _, step = arms[0].scale
    people = _levels(arms[0], "target")
    return LevelShares(
        f"Figure 2: held-out scores{f' on {label}' if label else ''}",
        tuple(f"{low + step * at:g}" for at in range(len(people))),
        people,
        {name: _levels(arm, "calibrated") for name, arm in zip(methods, arms, strict=True)},
    )


def _levels(arm: ExperimentArm, column: str) -> tuple[float, ...]:
    low, high, step = arm.scale
    known = arm.held_out[column].dropna().to_numpy(float)
    counts = np.bincount(to_levels(known, low, high, step), minlength=round((high - low) / step) + 1)
    return tuple(float(one) for one in counts / max(len(known), 1))


def _held_out(arm: ExperimentArm, plan: BootstrapPlan) -> ArmAgreement:
    return agreement(arm.held_out, "target", "calibrated", arm.scale, plan)


def _kappas(arm: ExperimentArm, plan: BootstrapPlan) -> tuple[Cell, Cell]:
    found = _held_out(arm, plan)
    return count(found.n), _kappa(found)


def _kappa(found: ArmAgreement) -> Cell:
    return number(found["qwk"], ends="se")


def _change(base: ExperimentArm, other: ExperimentArm, plan: BootstrapPlan) -> tuple[Estimate, float | None]:
    """QWK of the other less that of the base, and p."""
    if in_common(base.held_out, other.held_out).empty:
        return Estimate(None), None
    found, *_ = compare(base.held_out, other.held_out, base.scale, plan.draws, plan.seed)
    gap = found["qwk"]
    return Estimate(gap.estimate, gap.low, gap.high, clusters=gap.clusters), gap.p


def _said(variant: str) -> str:
    return variant.replace("_", " ")
