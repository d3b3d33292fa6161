"""Learning curves: what RL was paid, and QWK on the test split as it went on; means over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean

from tasks.contracts.settings.edit import ARMS, STARTS, Arm
from tasks.contracts.tables.edit import TESTED
from tasks.display import say
from tasks.display.lines import ChartLine, ChartPoint, line_chart
from tasks.display.section import Drawing
from tasks.report.edit.inputs import EditView

POINTS = 12
"""Points of a line at most: what training logs more often is averaged over that share of the updates."""
CURVES: Mapping[tuple[str, str], str] = {
    **{(part, "qwk"): f"QWK, {words}" for part, words in TESTED.items()},
    ("train", "reward"): "Reward r (Eq. 7)",
    ("train", "outcome"): "Outcome reward (Eq. 5)",
    ("train", "shaping"): "Shaping (Eq. 6)",
    ("train", "kl"): "KL from the start",
}
"""(part, metric) of `learning` → what is drawn."""
GROUPS: Mapping[str, tuple[Arm, ...]] = {
    "the grid": ("grpo", "edit_rl_on_base", "grpo_on_edit_sft", "edit_rl"),
    "other methods": ("dgpo", "int_rl"),
}
"""Arms of RL that share a chart: those of Figure 3, and the rest."""
Seeds = dict[int, list[float]]
"""Update → the seeds' values."""


def drawings(view: EditView) -> Iterator[Drawing]:
    """A chart for each of `CURVES` and of `GROUPS` that has points."""
    series = _series(view)
    for key, words in CURVES.items():
        for group, arms in GROUPS.items():
            lines = [_line(arm, series[key, arm]) for arm in arms if (key, arm) in series]
            if lines:
                title = f"{words}: {group}"
                yield Drawing(title, line_chart(title, lines, "updates", words.split(",")[0]))


def takeaway(view: EditView) -> str:
    """How far RL moved QWK from that of its start."""
    series = _series(view)
    for part in ("unseen", "seen"):
        lines = {arm: _means(series[(part, "qwk"), arm]) for arm in STARTS if ((part, "qwk"), arm) in series}
        changes = [
            f"{ARMS[arm]} {say.number(points[0].y)} to {say.number(points[-1].y)}" for arm, points in lines.items()
        ]
        if changes:
            return f"QWK on {TESTED[part]} from the start to the last update: {', '.join(changes)}"
    return "What training logged"


def _series(view: EditView) -> dict[tuple[tuple[str, str], Arm], Seeds]:
    """(part, metric) and arm → its points. QWK before the first update is that of the arm's start, after the last one
    that of the arm itself."""
    series: dict[tuple[tuple[str, str], Arm], Seeds] = {}
    updates = {row["arm"]: row["updates"] for row in view.policies.to_pylist() if row["updates"]}
    rows = view.learning.to_pylist()
    for row in view.metrics.to_pylist():
        if row["metric"] == "qwk":
            trained_from_it = [arm for arm, start in STARTS.items() if start == row["arm"] and arm in updates]
            rows += [row | {"arm": arm, "step": 0} for arm in trained_from_it]
            if row["arm"] in STARTS and row["arm"] in updates:
                rows.append(row | {"step": updates[row["arm"]]})
    for row in rows:
        if row["value"] is not None:
            points = series.setdefault(((row["part"], row["metric"]), row["arm"]), {})
            points.setdefault(row["step"], []).append(row["value"])
    return series


def _line(arm: Arm, values: Seeds) -> ChartLine:
    points = _means(values)
    size = -(-len(points) // POINTS)
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return ChartLine(ARMS[arm], tuple(_mean_point(group) for group in groups))


def _mean_point(points: list[ChartPoint]) -> ChartPoint:
    return ChartPoint(fmean(point.x for point in points), fmean(point.y for point in points))


def _means(values: Seeds) -> list[ChartPoint]:
    return [ChartPoint(float(step), fmean(seed_values)) for step, seed_values in sorted(values.items())]
