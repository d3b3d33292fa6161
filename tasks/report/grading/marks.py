"""Marks beside marks: how they are distributed, where machine and people part, and what calibration changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tasks.display import say
from tasks.report.grading.comparison import Bars, Confusion, Distribution
from tasks.report.grading.figures import Figures
from tasks.report.grading.parts import CalibrationSection, Curve, FittedMapping, NamedEstimate, Tried, listed
from tasks.stats.agreement import confusion, to_levels

ScaleBounds = tuple[float, float, float]
MOST_PANELS, MOST_LEVELS = 3, 12
NOTHING_SCORED = "no held-out response has both a human and a machine score"
POINT = 0.02
"""Difference in shares from which a level is worth a headline."""
EQUAL_GROUPS = 8


class ScorePanel(NamedTuple):
    """The held-out responses of the items on one scale that have both scores, and the bands that the
    `whole` number of its levels are shown in."""

    scale: ScaleBounds
    rows: pd.DataFrame
    whole: int
    names: tuple[str, ...]

    def levels(self, column: str) -> np.ndarray:
        """The band of every score, from 0."""
        level = to_levels(self.rows[column].to_numpy(float), *self.scale)
        found: np.ndarray = level * len(self.names) // self.whole
        return found

    @property
    def label(self) -> str:
        """The scale in words."""
        low, high, step = self.scale
        steps = "" if step == 1 else f" in steps of {say.level(step)}"
        return f"scale {say.level(low)} to {say.level(high)}{steps}"


def panels(scores: pd.DataFrame, scales: Mapping[str, ScaleBounds]) -> list[ScorePanel]:
    """One per scale, the one with most responses first."""
    both = scores[scores["target"].notna() & scores["calibrated"].notna()]
    found = []
    for scale in sorted({scales[item] for item in both["item_id"].unique()}):
        rows = both[both["item_id"].isin([item for item, bounds in scales.items() if bounds == scale])]
        low, high, step = scale
        count = round((high - low) / step) + 1
        bands = min(count, MOST_LEVELS)
        starts = [-(-at * count // bands) for at in range(bands + 1)]
        values = [(say.level(low + a * step), say.level(low + (b - 1) * step)) for a, b in pairwise(starts)]
        found.append(ScorePanel(scale, rows, count, tuple(a if a == b else f"{a}–{b}" for a, b in values)))
    return sorted(found, key=lambda panel: -len(panel.rows))[:MOST_PANELS]


def distribution(found: Sequence[ScorePanel], figures: Figures, raters: Sequence[str]) -> Distribution:
    """Shares of the responses at each level, machine beside people.

    raters: those whose own marks are counted where the target is their mean, which may lie between levels; else none.
    """
    if not found:
        return Distribution("Whether the same marks are awarded is not known", (), (), NOTHING_SCORED)
    bars = tuple(
        Bars(
            panel.label,
            len(panel.rows),
            panel.names,
            _shares(panel, ["calibrated"]),
            _shares(panel, [f"human:{name}" for name in raters] or ["target"]),
        )
        for panel in found
    )
    told = tuple(figures.figure(figures.metrics[name], figures.machine(name)) for name in ("bias", "smd", "sd_ratio"))
    return Distribution(_distribution_title(bars[0], len(bars)), bars, told)


def _shares(panel: ScorePanel, columns: Sequence[str]) -> tuple[float, ...]:
    """Share of the responses at each level; of several columns, a response counts with the share that say so."""
    counted = np.zeros(len(panel.names))
    given = panel.rows[list(columns)].notna().sum(axis=1)
    for column in columns:
        known = panel._replace(rows=panel.rows[panel.rows[column].notna()])
        weights = 1 / given[panel.rows[column].notna()].to_numpy(float)
        counted += np.bincount(known.levels(column), weights, minlength=len(panel.names))
    return tuple(float(n) / len(panel.rows) for n in counted)


def _distribution_title(bars: Bars, scales: int) -> str:
    gaps = [m - p for m, p in zip(bars.machine, bars.people, strict=True)]
    where = f" on the {bars.scale}" if scales > 1 else ""
    low, high = gaps[0], gaps[-1]
    first, last = bars.levels[0], bars.levels[-1]
    if len(gaps) > 2 and min(abs(low), abs(high)) > POINT and low * high > 0:
        return f"The machine gives {'fewer' if low < 0 else 'more'} scores of {first} and {last} than people do{where}"
    most = max(range(len(gaps)), key=lambda at: abs(gaps[at]))
    if abs(gaps[most]) <= POINT:
        return f"Machine and people award every level about equally often{where}"
    word = "more" if gaps[most] > 0 else "less"
    shares = f"{say.share(bars.machine[most])} against {say.share(bars.people[most])}"
    return f"The machine gives {bars.levels[most]} {word} often than people do{where}: {shares}"


def confusions(found: Sequence[ScorePanel]) -> tuple[Confusion, ...]:
    """Counts per scale: rows are people's levels, columns the machine's."""
    return tuple(
        Confusion(
            panel.label,
            panel.names,
            tuple(
                tuple(int(n) for n in row)
                for row in confusion(panel.levels("target"), panel.levels("calibrated"), 0, len(panel.names) - 1, 1)
            ),
        )
        for panel in found
    )


def errors_title(found: Sequence[ScorePanel]) -> str:
    """How many scores are off, and which way."""
    if not found:
        return "Where machine and people part is not known"
    target = np.concatenate(
        [(p.rows["target"].to_numpy(float) - p.scale[0]) / (p.scale[1] - p.scale[0]) for p in found]
    )
    machine = np.concatenate(
        [(p.rows["calibrated"].to_numpy(float) - p.scale[0]) / (p.scale[1] - p.scale[0]) for p in found]
    )
    steps = np.concatenate([np.full(len(p.rows), p.scale[2] / (p.scale[1] - p.scale[0])) for p in found])
    off = np.abs(machine - target) / steps
    start = f"{say.share(float((off <= 1 + 1e-9).mean()))} of scores are within one level of people's"
    missed = off > 0.5
    if missed.sum() < 5:
        return start
    if float((np.abs(machine - 0.5) < np.abs(target - 0.5))[missed].mean()) >= 0.6:
        return f"{start}; misses lean to the middle of the scale"
    high = float((machine > target)[missed].mean())
    way = "are mostly too high" if high >= 0.6 else "are mostly too low" if high <= 0.4 else "go both ways"
    return f"{start}; misses {way}"


def calibration(
    scores: pd.DataFrame,
    found: Sequence[ScorePanel],
    figures: Figures,
    candidates: Sequence[Mapping[str, Any]],
    calibrations: Sequence[Mapping[str, Any]],
    clipped: int,
    scored: int,
) -> CalibrationSection:
    """What was tried, what was chosen and why, and what it changed."""
    tried = [
        Tried(
            _scope(row["scope"]),
            row["method"],
            row["chosen"],
            row["n"],
            row["folds"],
            row["qwk"],
            row["qwk_within"],
            row["rmse"],
            row["behind"],
            row["behind_se"],
            row["sd_ratio"],
            row["distinct"],
            row["note"] or "",
        )
        for row in sorted(
            candidates, key=lambda row: (row["scope"] != "pooled", row["scope"], not row["chosen"], row["method"])
        )
    ]
    fitted = [
        FittedMapping(
            _scope(row["scope"]),
            row["method"],
            row["n"],
            row["reason"],
            _names(row["features"]),
            _names(row["left_out"]),
        )
        for row in calibrations
    ]
    told = tuple(
        NamedEstimate(f"{figures.metrics[name].title}, {when}", figures.machine(name, stage), figures.unit(name))
        for name in ("qwk", "qwk_item_mean", "rmse", "bias")
        for stage, when in (("raw", "before"), ("calibrated", "after"))
    )
    values = scores["calibrated"].dropna()
    before = scores["raw"].dropna()
    distinct = (
        f"{say.plural(before.nunique(), 'distinct value')} before, {say.count(values.nunique())} after"
        if len(values)
        else ""
    )
    share = f" ({say.share(clipped / scored)})" if scored else ""
    beyond = f"{say.plural(clipped, 'score')}{share} beyond the range of the marked answers"
    outside = f"{beyond}: held at its end, and sent to people"
    if not calibrations:
        missing = "no mapping was fitted: raw scores are kept"
        return CalibrationSection("Scores are not calibrated", listed(tried), listed([]), None, (), "", "", missing)
    curve = _curve(found[0]) if found else None
    title = _calibration_title(figures, [row["method"] for row in calibrations])
    return CalibrationSection(
        title, listed(tried), listed(fitted), curve, told, outside, distinct, "" if found else NOTHING_SCORED
    )


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
    said = f"{name} {word} agreement from {say.number(before)}{within[0]} to {say.number(after)} QWK{within[1]}"
    if say.number(before) == say.number(after):
        said = f"{name} leaves agreement at {say.number(after)} QWK{within[1]}"
    if shifts[0] is None or shifts[1] is None:
        return said
    return f"{said} and takes the mean shift from {say.signed(shifts[0])} to {say.signed(shifts[1])} points"


def _curve(panel: ScorePanel) -> Curve:
    return Curve(
        panel.label, panel.scale[0], panel.scale[1], _grouped(panel.rows, "raw"), _grouped(panel.rows, "calibrated")
    )


def _grouped(rows: pd.DataFrame, column: str) -> tuple[tuple[float, float], ...]:
    """(mean score, people's mean) in groups of about equal size; equal scores are never parted."""
    known = rows[rows[column].notna()]
    scores = known[column].astype(float)
    if scores.nunique() <= EQUAL_GROUPS + 2:
        parts = scores
    else:
        parts = pd.qcut(scores, EQUAL_GROUPS, labels=False, duplicates="drop")
    means = known.assign(x=scores).groupby(parts)[["x", "target"]].mean()
    return tuple((float(x), float(y)) for x, y in means.itertuples(index=False))


def _scope(scope: str) -> str:
    return "all items together" if scope == "pooled" else say.name(scope)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(say.visible(one) for one in names[:8])
    return say.cut(f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown, 200)
