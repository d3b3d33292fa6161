"""Marks of machine and people: how they are distributed, where they differ, and what calibration changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.section import MOST as MOST_ROWS
from rubricflow.tasks.core.display.section import (
    Columns,
    Figure,
    Fold,
    Grid,
    Named,
    Part,
    Section,
    Text,
    figure_table,
    left_out,
    long_list,
)
from rubricflow.tasks.core.display.table import Cell, Rows
from rubricflow.tasks.core.stats.agreement import confusion, to_levels
from rubricflow.tasks.grading.report import charts
from rubricflow.tasks.grading.report.charts import Bars, Curve, Shade
from rubricflow.tasks.grading.report.figures import NOTHING_SCORED, Figures

ScaleBounds = tuple[float, float, float]
MOST_PANELS, MOST_LEVELS, EQUAL_GROUPS = 3, 12, 8
POINT = 0.02
"""Difference in shares from which a level is worth a headline."""
MACHINE_AND_PEOPLE = Named("machine", "m key"), Named("people", "h key")


class ScorePanel(NamedTuple):
    """The held-out responses of the items on one scale that have both scores, and the names of the bands that its
    `level_count` levels are shown in."""

    scale: ScaleBounds
    rows: pd.DataFrame
    level_count: int
    names: tuple[str, ...]

    def levels(self, column: str) -> np.ndarray:
        """The band of every score, from 0."""
        level = to_levels(self.rows[column].to_numpy(float), *self.scale)
        bands: np.ndarray = level * len(self.names) // self.level_count
        return bands

    def scores(self, column: str) -> np.ndarray:
        """Every score from 0, the bottom of the scale, to 1, its top."""
        low, high, _ = self.scale
        shares: np.ndarray = (self.rows[column].to_numpy(float) - low) / (high - low)
        return shares

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
        items = [item for item, bounds in scales.items() if bounds == scale]
        low, high, step = scale
        level_count = round((high - low) / step) + 1
        band_count = min(level_count, MOST_LEVELS)
        starts = [-(-band * level_count // band_count) for band in range(band_count + 1)]
        names = []
        for start, end in pairwise(starts):
            first, last = say.level(low + start * step), say.level(low + (end - 1) * step)
            names.append(first if first == last else f"{first}–{last}")
        found.append(ScorePanel(scale, both[both["item_id"].isin(items)], level_count, tuple(names)))
    return sorted(found, key=lambda panel: -len(panel.rows))[:MOST_PANELS]


def distribution_section(score_panels: Sequence[ScorePanel], figures: Figures, raters: Sequence[str]) -> Section:
    """Shares of the responses at each level, the machine's and people's.

    raters: those whose own marks are counted where the target is their mean, which may lie between levels; else none.
    """
    question = "Distribution: are the same marks awarded?"
    if not score_panels:
        title = "Whether the same marks are awarded is not known"
        return Section("distribution", question, title, unknown=NOTHING_SCORED)
    columns: list[list[Part]] = []
    every = [level_bars(panel, [f"human:{name}" for name in raters] or ["target"]) for panel in score_panels]
    for panel, bars in zip(score_panels, every, strict=True):
        shares = zip(bars.levels, bars.machine, bars.people, strict=True)
        numbers = [(level, Named(say.share(own)), Named(say.share(theirs))) for level, own, theirs in shares]
        caption = Text(f"{panel.label}, {say.plural(len(panel.rows), 'response')}", "note")
        grid = Grid(("score", "machine", "people"), numbers, "tight narrow")
        columns.append([caption, charts.bars(bars), Fold("Numbers", [grid])])
    statistics = figure_table([figures.named(name, figures.machine(name)) for name in ("bias", "smd", "sd_ratio")])
    lead = Markup(
        'Share of held-out responses at each score, %: <span class="m key">machine</span>, '
        '<span class="h key">people</span>.'
    )
    title = _distribution_title(every[0], len(every))
    return Section("distribution", question, title, parts=[Text(lead), Columns([*columns, statistics])])


def level_bars(panel: ScorePanel, people: Sequence[str]) -> Bars:
    """Shares of the responses at each level of a scale. people: columns of their scores."""
    shares = (_shares(panel, columns) for columns in (["calibrated"], people))
    return Bars(panel.label, panel.names, *shares)


def _shares(panel: ScorePanel, columns: Sequence[str]) -> tuple[float, ...]:
    """Share of the responses at each level; of several columns, a response counts with the share that have it there."""
    counted = np.zeros(len(panel.names))
    weights = 1 / panel.rows[list(columns)].notna().sum(axis=1)
    for column in columns:
        is_marked = panel.rows[column].notna()
        levels = panel._replace(rows=panel.rows[is_marked]).levels(column)
        counted += np.bincount(levels, weights[is_marked], minlength=len(panel.names))
    return tuple((counted / len(panel.rows)).tolist())


def _distribution_title(bars: Bars, scales: int) -> str:
    gaps = [machine - people for machine, people in zip(bars.machine, bars.people, strict=True)]
    where = f" on the {bars.scale}" if scales > 1 else ""
    low, high = gaps[0], gaps[-1]
    if len(gaps) > 2 and min(abs(low), abs(high)) > POINT and low * high > 0:
        ends = f"{bars.levels[0]} and {bars.levels[-1]}"
        return f"The machine gives {'fewer' if low < 0 else 'more'} scores of {ends} than people do{where}"
    most = max(range(len(gaps)), key=lambda index: abs(gaps[index]))
    if abs(gaps[most]) <= POINT:
        return f"Machine and people award every level about equally often{where}"
    word = "more" if gaps[most] > 0 else "less"
    shares = f"{say.share(bars.machine[most])} against {say.share(bars.people[most])}"
    return f"The machine gives {bars.levels[most]} {word} often than people do{where}: {shares}"


def confusions(score_panels: Sequence[ScorePanel], rounded: bool) -> list[Part]:
    """Counts per scale: rows are people's levels, columns the machine's; nothing without scores. rounded: whether the
    target is a mean of several people."""
    maps = []
    for panel in score_panels:
        counts = confusion(panel.levels("target"), panel.levels("calibrated"), 0, len(panel.names) - 1, 1)
        rows = []
        for place, row in enumerate(counts.astype(int).tolist()):
            whole = max(sum(row), 1)
            rows.append([Shade(n / whole, say.count(n) if n else "·", "", at == place) for at, n in enumerate(row)])
        maps.append([charts.shades(panel.label, panel.names, rows)])
    means = " Means of several people are rounded, halves up." if rounded else ""
    lead = Markup(
        'Counts of held-out responses. Row: <span class="h key">people</span>; column: '
        f'<span class="m key">machine</span>; shade: share of the row; outlined: the same.{means}'
    )
    return [Text(lead), Columns(maps)] if maps else []


def errors_title(score_panels: Sequence[ScorePanel]) -> str:
    """How many scores are off, and which way."""
    if not score_panels:
        return "Where machine and people part is not known"
    target, machine = (np.concatenate([panel.scores(of) for panel in score_panels]) for of in ("target", "calibrated"))
    steps = [step / (high - low) for (low, high, step), *_ in score_panels]
    off = np.abs(machine - target) / np.repeat(steps, [len(panel.rows) for panel in score_panels])
    start = f"{say.share(float(np.mean(off <= 1 + 1e-9)))} of scores are within one level of people's"
    missed = off > 0.5
    if missed.sum() < 5:
        return start
    if float((np.abs(machine - 0.5) < np.abs(target - 0.5))[missed].mean()) >= 0.6:
        return f"{start}; misses lean to the middle of the scale"
    too_high = float((machine > target)[missed].mean())
    if too_high >= 0.6:
        return f"{start}; misses are mostly too high"
    return f"{start}; misses {'are mostly too low' if too_high <= 0.4 else 'go both ways'}"


def calibration_section(
    scores: pd.DataFrame,
    score_panels: Sequence[ScorePanel],
    figures: Figures,
    candidates: Rows,
    calibrations: Rows,
    clipped: int,
    scored: int,
) -> Section:
    """What was tried, what was chosen and why, and what it changed.

    candidates, calibrations: rows of these tables; clipped: scores beyond the range of the marked answers, of so many
    scored.
    """
    missing, title = "no mapping was fitted: raw scores are kept", "Scores are not calibrated"
    columns: list[list[Part]] = [[]]
    if calibrations:
        missing, title = "" if score_panels else NOTHING_SCORED, _calibration_title(figures, calibrations)
        columns = [_curve(score_panels[0])] if score_panels else []
        columns.append([Text("Held-out responses", "h3"), *figure_table(_before_and_after(figures))])
        share = f" ({say.share(clipped / scored)})" if scored else ""
        beyond = f"{say.plural(clipped, 'score')}{share} beyond the range of the marked answers"
        columns[-1].append(Text(f"{beyond}: held at its end, and sent to people.", "note"))
        before, after = (scores[name].nunique() for name in ("raw", "calibrated"))
        if after:
            values = f"{say.plural(before, 'distinct value')} before, {say.count(after)} after"
            columns[-1].append(Text(f"Held-out scores have {values}.", "note"))
    parts = [Columns(columns), *_tried(candidates), *_mappings(calibrations)]
    question = "Calibration: did adjustment help?"
    return Section("calibration", question, title, unknown=missing, parts=parts)


def _before_and_after(figures: Figures) -> list[tuple[str | Named, Figure]]:
    """Figures of the held-out scores before and after calibration."""
    stages = {"raw": "before", "calibrated": "after"}
    return [
        (f"{figures.metrics[name].title}, {stages[stage]}", Figure(figures.machine(name, stage), figures.unit(name)))
        for name, stage in product(("qwk", "qwk_item_mean", "rmse", "bias"), stages)
    ]


def _curve(panel: ScorePanel) -> list[Part]:
    """People's mean score by the machine's, before and after."""
    before, after = grouped(panel.rows, "raw"), grouped(panel.rows, "calibrated")
    points = [("before", *point) for point in before] + [("after", *point) for point in after]
    numbers = [(f"{when} {say.number(x)}", Named(say.number(y))) for when, x, y in points]
    caption = f"People's mean score in equal groups of the machine's score, {panel.label}; held-out responses."
    drawn = charts.curve(Curve(*panel.scale[:2], before, after))
    return [Text(caption, "note"), drawn, Fold("Numbers", [Grid(("machine", "people"), numbers, "tight narrow")])]


def grouped(rows: pd.DataFrame, column: str) -> charts.Points:
    """(mean score, people's mean) in groups of about equal size; equal scores are never parted."""
    scored = rows[rows[column].notna()]
    scores = parts = scored[column].astype(float)
    if scores.nunique() > EQUAL_GROUPS + 2:
        parts = pd.qcut(scores, EQUAL_GROUPS, labels=False, duplicates="drop")
    means = scored.assign(x=scores).groupby(parts)[["x", "target"]].mean()
    return tuple((float(x), float(y)) for x, y in means.itertuples(index=False))


def _tried(candidates: Rows) -> list[Part]:
    """The methods tried inside folds, the pooled and the chosen ones first; nothing where none was."""
    order = sorted(
        candidates, key=lambda row: (row["scope"] != "pooled", row["scope"], not row["chosen"], row["method"])
    )
    rows = []
    for row in order:
        *scores, spread = (Cell(row[name], digits=2) for name in ("qwk", "qwk_within", "rmse", "sd_ratio"))
        se = "" if row["behind_se"] is None else f"SE {say.number(row['behind_se'], 3)}"
        behind = Named("–") if row["behind"] is None else Named(say.number(row["behind"], 3), se)
        folds = Named(f"{say.count(row['n'])}, {row['folds']}")
        note = ": ".join(filter(None, ("chosen" if row["chosen"] else "", row["note"])))
        method = Named(row["method"], _scope(row["scope"]))
        rows.append((method, *scores, behind, spread, row["distinct"], folds, note))
    heads = ("QWK", "QWK within items", "RMSE", "behind the standard", "spread", "distinct scores", "n, folds")
    marks = ["chosen" if row["chosen"] else "" for row in order]
    shown = long_list(Grid(("Method", *heads, ""), rows, "stack", marks=marks), "trials", "candidates", "more")
    return [Text("Methods tried inside folds of the calibration split", "h3"), *shown] if shown else []


def _mappings(calibrations: Rows) -> list[Part]:
    """The mappings in use; nothing where none was fitted."""
    rows = []
    for row in calibrations:
        features, dropped = _names(row["features"]), _names(row["left_out"])
        with_dropped = f"{features}; left out: {dropped}" if dropped else features
        rows.append((_scope(row["scope"]), row["method"], row["n"], row["reason"], with_dropped))
    grid = Grid(("For", "method", "labels", "why", "features"), rows[:MOST_ROWS], "stack")
    shown = [grid, *left_out(rows, "mappings", "calibrations")]
    return [Fold(f"{say.plural(len(rows[:MOST_ROWS]), 'mapping')} in use", shown, len(rows) <= 3)] if rows else []


def _calibration_title(figures: Figures, calibrations: Rows) -> str:
    used = sorted({row["method"] for row in calibrations})
    name = f"Calibration ({', '.join(used)})"
    if used == ["identity"]:
        return "Calibration kept the raw scores"
    metric = "qwk" if figures.machine("qwk").value is not None else "qwk_item_mean"
    before, after = figures.machine(metric, "raw").value, figures.machine(metric).value
    if before is None or after is None:
        return f"{name} was fitted; whether it helps is not known"
    first, last = (figures.over_items(stage) if metric == "qwk" else "" for stage in ("raw", "calibrated"))
    change = f"{'raises' if after > before else 'lowers'} agreement from {say.number(before)}{first} to"
    if say.number(before) == say.number(after):
        change = "leaves agreement at"
    sentence = f"{name} {change} {say.number(after)} QWK{last}"
    shift, shift_after = figures.machine("bias", "raw").value, figures.machine("bias").value
    if shift is None or shift_after is None:
        return sentence
    return f"{sentence} and takes the mean shift from {say.signed(shift)} to {say.signed(shift_after)} points"


def _scope(scope: str) -> str:
    return "all items together" if scope == "pooled" else say.name(scope)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(say.visible(name) for name in names[:8])
    return say.cut(f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown, 200)
