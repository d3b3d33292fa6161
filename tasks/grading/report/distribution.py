"""Marks of machine and people beside each other: how they are distributed, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.stats.agreement import confusion, to_levels
from rubricflow.tasks.grading.report.comparison import Bars, Confusion, Distribution
from rubricflow.tasks.grading.report.figures import Figures

ScaleBounds = tuple[float, float, float]
MOST_PANELS, MOST_LEVELS = 3, 12
SHAPE = ("bias", "smd", "sd_ratio")
"""What is told of how two distributions differ."""
NOTHING_SCORED = "no held-out response has both a human and a machine score"
POINT = 0.02
"""Difference in shares from which a level is worth a headline."""


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

    @property
    def label(self) -> str:
        """The scale in words."""
        low, high, step = self.scale
        steps = "" if step == 1 else f" in steps of {say.level(step)}"
        return f"scale {say.level(low)} to {say.level(high)}{steps}"


def panels(scores: pd.DataFrame, scales: Mapping[str, ScaleBounds]) -> list[ScorePanel]:
    """One per scale, the one with most responses first."""
    both = scores[scores["target"].notna() & scores["calibrated"].notna()]
    score_panels = []
    for scale in sorted({scales[item] for item in both["item_id"].unique()}):
        items = [item for item, bounds in scales.items() if bounds == scale]
        level_count, names = _bands(scale)
        score_panels.append(ScorePanel(scale, both[both["item_id"].isin(items)], level_count, names))
    return sorted(score_panels, key=lambda panel: -len(panel.rows))[:MOST_PANELS]


def _bands(scale: ScaleBounds) -> tuple[int, tuple[str, ...]]:
    """How many levels a scale has, and the names of the bands of neighbours that they are shown in."""
    low, high, step = scale
    level_count = round((high - low) / step) + 1
    band_count = min(level_count, MOST_LEVELS)
    starts = [-(-band * level_count // band_count) for band in range(band_count + 1)]
    names = []
    for start, end in pairwise(starts):
        first, last = say.level(low + start * step), say.level(low + (end - 1) * step)
        names.append(first if first == last else f"{first}–{last}")
    return level_count, tuple(names)


def distribution(score_panels: Sequence[ScorePanel], figures: Figures, raters: Sequence[str]) -> Distribution:
    """Shares of the responses at each level, machine beside people.

    raters: those whose own marks are counted where the target is their mean, which may lie between levels; else none.
    """
    if not score_panels:
        return Distribution("Whether the same marks are awarded is not known", (), (), NOTHING_SCORED)
    columns = [f"human:{name}" for name in raters] or ["target"]
    bars = tuple(_bars(panel, columns) for panel in score_panels)
    statistics = [figures.figure(figures.metrics[name], figures.machine(name)) for name in SHAPE]
    return Distribution(_distribution_title(bars[0], len(bars)), bars, tuple(statistics))


def _bars(panel: ScorePanel, people: Sequence[str]) -> Bars:
    machine, human = _shares(panel, ["calibrated"]), _shares(panel, people)
    return Bars(panel.label, len(panel.rows), panel.names, machine, human)


def _shares(panel: ScorePanel, columns: Sequence[str]) -> tuple[float, ...]:
    """Share of the responses at each level; of several columns, a response counts with the share that say so."""
    counted = np.zeros(len(panel.names))
    marks_per_response = panel.rows[list(columns)].notna().sum(axis=1)
    for column in columns:
        marked = panel._replace(rows=panel.rows[panel.rows[column].notna()])
        weights = 1 / marks_per_response[panel.rows[column].notna()].to_numpy(float)
        counted += np.bincount(marked.levels(column), weights, minlength=len(panel.names))
    return tuple(float(n) / len(panel.rows) for n in counted)


def _distribution_title(bars: Bars, scales: int) -> str:
    gaps = [m - p for m, p in zip(bars.machine, bars.people, strict=True)]
    where = f" on the {bars.scale}" if scales > 1 else ""
    low, high = gaps[0], gaps[-1]
    first, last = bars.levels[0], bars.levels[-1]
    if len(gaps) > 2 and min(abs(low), abs(high)) > POINT and low * high > 0:
        return f"The machine gives {'fewer' if low < 0 else 'more'} scores of {first} and {last} than people do{where}"
    most = max(range(len(gaps)), key=lambda index: abs(gaps[index]))
    if abs(gaps[most]) <= POINT:
        return f"Machine and people award every level about equally often{where}"
    word = "more" if gaps[most] > 0 else "less"
    shares = f"{say.share(bars.machine[most])} against {say.share(bars.people[most])}"
    return f"The machine gives {bars.levels[most]} {word} often than people do{where}: {shares}"


def confusions(score_panels: Sequence[ScorePanel]) -> tuple[Confusion, ...]:
    """Counts per scale: rows are people's levels, columns the machine's."""
    return tuple(_confusion(panel) for panel in score_panels)


def _confusion(panel: ScorePanel) -> Confusion:
    people, machine = panel.levels("target"), panel.levels("calibrated")
    counts = confusion(people, machine, 0, len(panel.names) - 1, 1)
    return Confusion(panel.label, panel.names, tuple(tuple(map(int, row)) for row in counts))


def errors_title(score_panels: Sequence[ScorePanel]) -> str:
    """How many scores are off, and which way."""
    if not score_panels:
        return "Where machine and people part is not known"
    target = np.concatenate([_on_unit_scale(panel, "target") for panel in score_panels])
    machine = np.concatenate([_on_unit_scale(panel, "calibrated") for panel in score_panels])
    steps = np.concatenate([_unit_steps(panel) for panel in score_panels])
    off = np.abs(machine - target) / steps
    start = f"{say.share(float((off <= 1 + 1e-9).mean()))} of scores are within one level of people's"
    missed = off > 0.5
    if missed.sum() < 5:
        return start
    nearer_to_middle = np.abs(machine - 0.5) < np.abs(target - 0.5)
    if float(nearer_to_middle[missed].mean()) >= 0.6:
        return f"{start}; misses lean to the middle of the scale"
    return f"{start}; misses {_direction(float((machine > target)[missed].mean()))}"


def _on_unit_scale(panel: ScorePanel, column: str) -> np.ndarray:
    """Scores from 0, the bottom of the scale, to 1, its top."""
    low, high, _ = panel.scale
    shares: np.ndarray = (panel.rows[column].to_numpy(float) - low) / (high - low)
    return shares


def _unit_steps(panel: ScorePanel) -> np.ndarray:
    """The scale's step for each response, on the same scale from 0 to 1."""
    low, high, step = panel.scale
    return np.full(len(panel.rows), step / (high - low))


def _direction(too_high: float) -> str:
    """Which way misses go, by the share of them that are too high."""
    if too_high >= 0.6:
        return "are mostly too high"
    return "are mostly too low" if too_high <= 0.4 else "go both ways"
