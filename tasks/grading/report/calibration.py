"""What calibration changed: mappings tried and chosen, people's mean by score, agreement before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rubricflow.tasks.core.display import say
from rubricflow.tasks.grading.report.distribution import NOTHING_SCORED, ScorePanel
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.sections import (
    CalibrationSection,
    Curve,
    FittedMapping,
    NamedEstimate,
    Tried,
    listed,
)

Row = Mapping[str, Any]
EQUAL_GROUPS = 8
STATISTICS = ("qwk", "qwk_item_mean", "rmse", "bias")
"""What is told of the scores before and after."""


def calibration(
    scores: pd.DataFrame,
    score_panels: Sequence[ScorePanel],
    figures: Figures,
    candidates: Sequence[Row],
    calibrations: Sequence[Row],
    clipped: int,
    scored: int,
) -> CalibrationSection:
    """What was tried, what was chosen and why, and what it changed.

    candidates, calibrations: rows of these tables; clipped: scores beyond the range of the marked answers, of so many
    scored.
    """
    tried = listed([_tried(row) for row in sorted(candidates, key=_pooled_and_chosen_first)])
    if not calibrations:
        missing = "no mapping was fitted: raw scores are kept"
        return CalibrationSection("Scores are not calibrated", tried, listed([]), None, (), "", "", missing)
    return CalibrationSection(
        title=_calibration_title(figures, [row["method"] for row in calibrations]),
        tried=tried,
        fitted=listed([_fitted(row) for row in calibrations]),
        curve=_curve(score_panels[0]) if score_panels else None,
        figures=tuple(_before_and_after(figures)),
        clipped=_clipped(clipped, scored),
        distinct=_distinct(scores),
        missing="" if score_panels else NOTHING_SCORED,
    )


def _pooled_and_chosen_first(candidate: Row) -> tuple[bool, str, bool, str]:
    return candidate["scope"] != "pooled", candidate["scope"], not candidate["chosen"], candidate["method"]


def _tried(row: Row) -> Tried:
    """A row of `candidates`."""
    return Tried(
        scope=_scope(row["scope"]),
        method=row["method"],
        chosen=row["chosen"],
        n=row["n"],
        folds=row["folds"],
        qwk=row["qwk"],
        within=row["qwk_within"],
        rmse=row["rmse"],
        behind=row["behind"],
        behind_se=row["behind_se"],
        sd_ratio=row["sd_ratio"],
        distinct=row["distinct"],
        note=row["note"] or "",
    )


def _fitted(row: Row) -> FittedMapping:
    """A row of `calibrations`."""
    features, left_out = _names(row["features"]), _names(row["left_out"])
    return FittedMapping(_scope(row["scope"]), row["method"], row["n"], row["reason"], features, left_out)


def _before_and_after(figures: Figures) -> list[NamedEstimate]:
    estimates = []
    for name in STATISTICS:
        title, unit = figures.metrics[name].title, figures.unit(name)
        estimates.append(NamedEstimate(f"{title}, before", figures.machine(name, "raw"), unit))
        estimates.append(NamedEstimate(f"{title}, after", figures.machine(name, "calibrated"), unit))
    return estimates


def _clipped(clipped: int, scored: int) -> str:
    share = f" ({say.share(clipped / scored)})" if scored else ""
    beyond = f"{say.plural(clipped, 'score')}{share} beyond the range of the marked answers"
    return f"{beyond}: held at its end, and sent to people"


def _distinct(scores: pd.DataFrame) -> str:
    before, after = scores["raw"].dropna(), scores["calibrated"].dropna()
    if not len(after):
        return ""
    return f"{say.plural(before.nunique(), 'distinct value')} before, {say.count(after.nunique())} after"


def _calibration_title(figures: Figures, methods: Sequence[str]) -> str:
    used = sorted(set(methods))
    name = f"Calibration ({', '.join(used)})"
    if used == ["identity"]:
        return "Calibration kept the raw scores"
    metric = "qwk" if figures.machine("qwk").value is not None else "qwk_item_mean"
    before, after = figures.machine(metric, "raw").value, figures.machine(metric).value
    if before is None or after is None:
        return f"{name} was fitted; whether it helps is not known"
    shifts = figures.machine("bias", "raw").value, figures.machine("bias").value
    word = "raises" if after > before else "lowers"
    within = [figures.over_items(stage) if metric == "qwk" else "" for stage in ("raw", "calibrated")]
    sentence = f"{name} {word} agreement from {say.number(before)}{within[0]} to {say.number(after)} QWK{within[1]}"
    if say.number(before) == say.number(after):
        sentence = f"{name} leaves agreement at {say.number(after)} QWK{within[1]}"
    if shifts[0] is None or shifts[1] is None:
        return sentence
    return f"{sentence} and takes the mean shift from {say.signed(shifts[0])} to {say.signed(shifts[1])} points"


def _curve(panel: ScorePanel) -> Curve:
    low, high, _ = panel.scale
    before, after = _grouped(panel.rows, "raw"), _grouped(panel.rows, "calibrated")
    return Curve(panel.label, low, high, before, after)


def _grouped(rows: pd.DataFrame, column: str) -> tuple[tuple[float, float], ...]:
    """(mean score, people's mean) in groups of about equal size; equal scores are never parted."""
    scored = rows[rows[column].notna()]
    scores = scored[column].astype(float)
    if scores.nunique() <= EQUAL_GROUPS + 2:
        parts = scores
    else:
        parts = pd.qcut(scores, EQUAL_GROUPS, labels=False, duplicates="drop")
    means = scored.assign(x=scores).groupby(parts)[["x", "target"]].mean()
    return tuple((float(x), float(y)) for x, y in means.itertuples(index=False))


def _scope(scope: str) -> str:
    return "all items together" if scope == "pooled" else say.name(scope)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(say.visible(name) for name in names[:8])
    return say.cut(f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown, 200)
