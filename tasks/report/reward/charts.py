"""Rewards as SVG: how they are distributed under each aggregation, and what each response loses to its dependencies."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from markupsafe import Markup

from tasks.display import draw, say
from tasks.display.axis import Axis, axis
from tasks.display.plot import square
from tasks.stats.arrays import Floats

BINS, ROW = 48, 58
"""Columns of a histogram and cells along a side of the scatter; px of a histogram."""


def histograms(rewards: Mapping[str, Floats]) -> Markup:
    """One histogram for each name, on one axis; an upright marks the mean. At least one reward of each."""
    on = _axis(np.concatenate(list(rewards.values())))
    height = ROW * len(rewards)
    marks = [draw.line(on.x(tick), 0, on.x(tick), height, "grid zero" if tick == 0 else "grid") for tick in on.ticks]
    labels = []
    for index, (name, values) in enumerate(rewards.items()):
        base = ROW * (index + 1)
        mean = float(values.mean())
        labels.append(f"{name}: mean {say.number(mean)}, n = {say.count(len(values))}")
        marks.append(draw.text(0, base - ROW + 14, labels[-1], "it halo", "start"))
        marks += [*_columns(values, on, base), draw.line(on.x(mean), base - ROW + 20, on.x(mean), base, "cl")]
    marks += [draw.text(on.x(tick), height + 16, say.level(tick), "") for tick in on.ticks]
    return draw.svg(height + 24, marks, "Distribution of rewards; " + "; ".join(labels))


def _columns(values: Floats, on: Axis, base: float) -> list[Markup]:
    shares, edges = np.histogram(values, BINS, (on.low, on.high))
    marks = []
    for n, start, end in zip(shares.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if n:
            high = max(n / shares.max() * (ROW - 22), 0.6)
            x, wide = on.x(start), on.x(end) - on.x(start)
            marks.append(draw.box(x, base - high, wide, high, "bf"))
    return marks


def scatter(flat: Floats, gear: Floats) -> Markup:
    """Flat rewards across, GEAR's upwards, at least one; the size of a dot says how many responses it stands for."""
    on = _axis(np.concatenate([flat, gear]))
    plot = square(on)
    marks = [*plot.frame("flat reward; upwards: GEAR"), plot.diagonal()]
    counts, xs, ys = np.histogram2d(flat, gear, BINS, ((on.low, on.high), (on.low, on.high)))
    for i, j in np.argwhere(counts):
        radius = max(1.2, 5.5 * float(np.sqrt(counts[i, j] / counts.max())))
        (place,) = plot.places([((xs[i] + xs[i + 1]) / 2, (ys[j] + ys[j + 1]) / 2)])
        marks.append(draw.circle(*place, radius, "mf"))
    label = f"GEAR's reward by the flat one, n = {say.count(len(flat))}; {losses(flat, gear)}"
    return plot.svg(marks, label)


def losses(flat: Floats, gear: Floats) -> str:
    """How many responses GEAR rewards otherwise. More where a penalty is not licensed."""
    less, more = float(np.mean(gear < flat - 1e-9)), float(np.mean(gear > flat + 1e-9))
    sentence = f"GEAR rewards {say.share(less)} of the responses less than flat aggregation does"
    return f"{sentence} and {say.share(more)} more" if more else sentence


def _axis(values: Floats) -> Axis:
    return axis(values.tolist(), left=7, right=98)
