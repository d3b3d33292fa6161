"""What Edit does to rollouts, as SVG: the belief at every step, how many rollouts each phase lets through, and what
steps rest on.

Learning curves: what RL was paid, and QWK on the test split as it went on; means over seeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from statistics import fmean
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from rubricflow.tasks.core.contracts.settings.edit import STARTS
from rubricflow.tasks.core.contracts.tables.edit import ARMS, TESTED, Arm
from rubricflow.tasks.core.display import draw, say
from rubricflow.tasks.core.display.axis import LEFT, RIGHT, Axis, Plot, axis
from rubricflow.tasks.core.display.charts import HEAD, LABELS, VALUES, ChartLine, ChartPoint, line_chart, middle, rows
from rubricflow.tasks.core.display.section import Drawing
from rubricflow.tasks.methods.report.edit.figures import EditView

BASE = 190
"""Px of the lower edge of a belief chart."""
MOST_TICKS = 12


class Belief(NamedTuple):
    """The expected mark at boundaries 0…T of a rollout."""

    label: str
    expected: tuple[float, ...]


class Quantiles(NamedTuple):
    """Where the middle of a set of values lies: its quantiles at 10, 25, 50, 75 and 90 per cent."""

    label: str
    quantiles: tuple[float, float, float, float, float]


def beliefs(title: str, written: Belief, mended: Belief | None, gold: int, top: int, chosen: Sequence[int]) -> Markup:
    """Expected mark by boundary, of a rollout as it was written and of what it was mended to, with the gold mark as a
    dashed line.

    chosen: boundaries after the steps chosen for revision, which are ringed.
    """
    both = [belief for belief in (written, mended) if belief is not None]
    steps = max(len(belief.expected) for belief in both) - 1
    shown = tuple(range(0, steps + 1, -(-(steps + 1) // MOST_TICKS)))
    plot = Plot(Axis(0, max(steps, 1), shown, LEFT, RIGHT), axis([0.0, float(top)], most=5), BASE)
    marks = [*plot.frame("steps read; upwards: expected mark; ringed: chosen"), plot.level(gold, "hl")]
    points = [plot.places(enumerate(belief.expected)) for belief in both]
    for after in points[1:]:
        marks += draw.polyline(after, "al dash")
    marks += draw.polyline(points[0], "ml") + [draw.circle(*points[0][boundary], 7, "sq") for boundary in chosen]
    marks += [draw.circle(*point, 3.5, "mf") for point in points[0]]
    under = ((LEFT + 1, plot.y(gold) - 6, "start"), (LEFT + 1, plot.y(gold) + 16, "start"))
    styles = zip(both, points, ("mt", "at"), strict=False)
    labels = [draw.Label(say.cut(belief.label, 40), style, _ends(line)) for belief, line, style in styles]
    marks += draw.place_labels([*labels, draw.Label(f"gold {gold}", "ht", under)], [*chain(*points)])
    labels_in_words = (f"{belief.label}: {', '.join(map(say.number, belief.expected))}" for belief in both)
    return plot.svg(marks, f"{title}, gold mark {gold}. Expected mark by step: {'; '.join(labels_in_words)}")


def funnel(title: str, counts: Mapping[str, float]) -> Markup:
    """What is left after each phase, in order. counts: phase → how many."""
    shown = {label: say.count(round(value)) for label, value in counts.items()}
    on = Axis(0, max([*counts.values(), 1.0]), (), LABELS, VALUES)
    height, marks = rows(on, [*shown.items()], 0)
    for index, value in enumerate(counts.values()):
        marks.append(draw.box(LABELS, middle(index, 0) - 6, on.x(value) - LABELS, 12, "bf"))
    words = "; ".join(f"{label} {figure}" for label, figure in shown.items())
    return draw.svg(height, marks, f"{title}: {words}")


def boxes(title: str, sets: Sequence[Quantiles], limit: float | None) -> Markup:
    """The middle half of each set as a bar with its median, the middle four fifths as a line; a limit as a dashed
    upright. At least one set."""
    limits = [] if limit is None else [limit]
    on = axis([0.0, *limits, *chain(*(box.quantiles for box in sets))], most=4, left=LABELS, right=VALUES)
    height, marks = rows(on, [(box.label, say.number(box.quantiles[2], 3)) for box in sets])
    for index, box in enumerate(sets):
        y = middle(index)
        least, low, half, high, most = map(on.x, box.quantiles)
        marks.append(draw.line(least, y, most, y, "cl thin"))
        marks.append(draw.box(low, y - 5, high - low, 10, "bf"))
        marks.append(draw.line(half, y - 7, half, y + 7, "cl"))
    marks += [on.upright(end, HEAD - 4, height, "al dash") for end in limits]
    words = "; ".join(f"{box.label}: {', '.join(map(say.number, box.quantiles))}" for box in sets)
    return draw.svg(height, marks, f"{title}, quantiles at 10, 25, 50, 75 and 90 per cent. {words}")


def _ends(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float, str], ...]:
    """Places for a label: next to the last points."""
    return tuple((x, y + dy, "end") for (x, y), dy in product(reversed(points[-4:]), (-10, 18, -24, 32)))


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
    series = defaultdict[tuple[tuple[str, str], Arm], Seeds](lambda: defaultdict(list))
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
            series[(row["part"], row["metric"]), row["arm"]][row["step"]].append(row["value"])
    return series


def _line(arm: Arm, values: Seeds) -> ChartLine:
    points = np.array([point[:2] for point in _means(values)])
    size = -(-len(points) // POINTS)
    groups = (points[start : start + size].mean(axis=0).tolist() for start in range(0, len(points), size))
    return ChartLine(ARMS[arm], tuple(ChartPoint(*group) for group in groups))


def _means(values: Seeds) -> list[ChartPoint]:
    return [ChartPoint(float(step), fmean(seed_values)) for step, seed_values in sorted(values.items())]
