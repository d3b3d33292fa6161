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
    found = _found(view)
    for key, words in CURVES.items():
        for group, arms in GROUPS.items():
            lines = [_line(arm, found[key, arm]) for arm in arms if (key, arm) in found]
            if lines:
                title = f"{words}: {group}"
                yield Drawing(title, line_chart(title, lines, "updates", words.split(",")[0]))


def takeaway(view: EditView) -> str:
    """How far RL moved QWK from that of its start."""
    found = _found(view)
    for part in ("unseen", "seen"):
        lines = {arm: _means(found[(part, "qwk"), arm]) for arm in STARTS if ((part, "qwk"), arm) in found}
        told = [f"{ARMS[arm]} {say.number(of[0].y)} to {say.number(of[-1].y)}" for arm, of in lines.items()]
        if told:
            return f"QWK on {TESTED[part]} from the start to the last update: {', '.join(told)}"
    return "What training logged"


def _found(view: EditView) -> dict[tuple[tuple[str, str], Arm], Seeds]:
    """(part, metric) and arm → its points. QWK before the first update is that of the arm's start, after the last one
    that of the arm itself."""
    found: dict[tuple[tuple[str, str], Arm], Seeds] = {}
    updates = {row["arm"]: row["updates"] for row in view.policies.to_pylist() if row["updates"]}
    rows = view.learning.to_pylist()
    for row in view.metrics.to_pylist():
        if row["metric"] == "qwk":
            later = [arm for arm, start in STARTS.items() if start == row["arm"] and arm in updates]
            rows += [row | {"arm": arm, "step": 0} for arm in later]
            rows += [row | {"step": updates[row["arm"]]}] if row["arm"] in STARTS and row["arm"] in updates else []
    for row in rows:
        if row["value"] is not None:
            points = found.setdefault(((row["part"], row["metric"]), row["arm"]), {})
            points.setdefault(row["step"], []).append(row["value"])
    return found


def _line(arm: Arm, values: Seeds) -> ChartLine:
    points = _means(values)
    size = -(-len(points) // POINTS)
    thinned = [points[at : at + size] for at in range(0, len(points), size)]
    return ChartLine(ARMS[arm], tuple(ChartPoint(fmean(p.x for p in of), fmean(p.y for p in of)) for of in thinned))


def _means(values: Seeds) -> list[ChartPoint]:
    return [ChartPoint(float(step), fmean(of)) for step, of in sorted(values.items())]
