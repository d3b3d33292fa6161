"""What the graphs are like: the statistics of GEAR's Tables 3 and 14, who made them, and what was left out of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean, median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from rubricflow.tasks.core.contracts.graph import RELATIONS
from rubricflow.tasks.core.contracts.tables.rubrics import DROPPED
from rubricflow.tasks.core.display import draw, say
from rubricflow.tasks.core.display.axis import Axis, axis, square
from rubricflow.tasks.core.display.table import Cell, Row, Table, count
from rubricflow.tasks.core.stats.arrays import Floats

BINS, ROW = 48, 58
"""Columns of a histogram and cells along a side of the scatter; px of a histogram."""


PUBLISHED: Mapping[str, float] = {
    "rubrics": 5000,
    "criteria per rubric": 11.48,
    "dependencies per rubric": 10.92,
    "criteria and dependencies per rubric": 22.40,
    "rubrics with a dependency, %": 91.84,
    "invalid proposals per rubric": 0.42,
}
"""GEAR, Tables 3 and 14: HealthBench."""
COLUMNS = ("criteria", "kept", "depth", "invalid", "candidates", "failed", "roles_missing")
"""Of `graphs`: what the statistics are of."""


def statistics(graphs: list[Row]) -> Table:
    """The statistics of these rows of `graphs`, next to the published ones."""
    if not graphs:
        return Table("statistics", "The graphs", ("Statistic", "here", "published"), ())
    columns = {name: [row[name] for row in graphs] for name in COLUMNS}
    criteria, dependencies, depths = columns["criteria"], columns["kept"], columns["depth"]
    sizes = [sum(pair) for pair in zip(criteria, dependencies, strict=True)]
    figures = {
        "rubrics": float(len(graphs)),
        "criteria per rubric": fmean(criteria),
        "dependencies per rubric": fmean(dependencies),
        "criteria and dependencies per rubric": fmean(sizes),
        "rubrics with a dependency, %": 100 * fmean(number > 0 for number in dependencies),
        "invalid proposals per rubric": fmean(columns["invalid"]),
        "pairs that the roles allow, per rubric": fmean(columns["candidates"]),
        "pairs without an answer, per rubric": fmean(columns["failed"]),
        "criteria without a given role, per rubric": fmean(columns["roles_missing"]),
        "longest path, mean": fmean(depths),
        "longest path, median": median(depths),
        "longest path, longest": float(max(depths)),
    }
    rows = tuple((name, _cell(name, value), _cell(name, PUBLISHED.get(name))) for name, value in figures.items())
    note = "published: HealthBench, by its authors' annotator; paths count dependencies"
    return Table("statistics", "The graphs", ("Statistic", "here", "published"), rows, (note,))


def _cell(name: str, value: float | None) -> Cell:
    is_count = name == "rubrics" or name.endswith("longest")
    return Cell(value, digits=0 if is_count else 2)


def kinds(nodes: pa.Table, edges: pa.Table) -> tuple[Table, Table]:
    """How many criteria have each role, and how many dependencies are of each kind."""
    kept_edges = edges.filter(edges["kept"])
    return (
        _shares("roles", "Roles", "Role", nodes["role"], "criteria", {}),
        _shares("relations", "Dependencies", "Kind", kept_edges["relation"], "dependencies", dict(RELATIONS.items())),
    )


def dropped(edges: pa.Table) -> Table:
    """Why proposed edges are not in the graphs."""
    return _shares("dropped", "Proposed and not kept", "Why", edges["dropped"].drop_null(), "edges", DROPPED)


def makers(graphs: list[Row]) -> Table:
    """Who made how many graphs."""
    counted = Counter((row["annotator"], row["profile"]) for row in graphs)
    rows = tuple(
        (say.name(annotator), say.name(profile), count(n)) for (annotator, profile), n in counted.most_common()
    )
    return Table("makers", "Who made them", ("Annotator", "profile", "graphs"), rows)


def notable(graphs: list[Row], leaked: Mapping[str, float]) -> dict[str, str]:
    """Rubrics worth looking at, with why. leaked: rubric → what flat aggregation paid for unlicensed criteria."""
    by_size = sorted((row for row in graphs if row["kept"]), key=lambda row: (-row["kept"], row["rubric_id"]))
    if not by_size:
        return {}
    chosen = {by_size[0]["rubric_id"]: "the most dependencies"}
    middle = by_size[len(by_size) // 2]["rubric_id"]
    chosen.setdefault(middle, "the median number of dependencies")
    worst = min(leaked, key=lambda rubric: (-leaked[rubric], rubric), default=None)
    if worst is not None:
        chosen[worst] = f"{chosen[worst]}, and the most false credit" if worst in chosen else "the most false credit"
    return chosen


def _shares(id_: str, title: str, head: str, values: pa.ChunkedArray, noun: str, words: Mapping[str, str]) -> Table:
    """A closed set of values with their counts and shares, the most frequent first."""
    counts = sorted(((row["counts"], row["values"]) for row in pc.value_counts(values).to_pylist()), reverse=True)
    total = sum(n for n, _ in counts)
    rows = tuple((words.get(value, value), count(n), Cell(100 * n / total, digits=1)) for n, value in counts)
    return Table(id_, title, (head, noun, "%"), rows)


# Rewards as SVG: how they are distributed under each aggregation, and what each response loses to its dependencies.


def histograms(rewards: Mapping[str, Floats]) -> Markup:
    """One histogram for each name, on one axis; an upright marks the mean. At least one reward of each."""
    on = _axis(np.concatenate(list(rewards.values())))
    height = ROW * len(rewards)
    marks = on.grid(0, height)
    labels = []
    for index, (name, values) in enumerate(rewards.items()):
        base = ROW * (index + 1)
        mean = float(values.mean())
        labels.append(f"{name}: mean {say.number(mean)}, n = {say.count(len(values))}")
        marks.append(draw.text(0, base - ROW + 14, labels[-1], "it halo", "start"))
        marks += [*_columns(values, on, base), on.upright(mean, base - ROW + 20, base, "cl")]
    marks += [draw.text(on.x(tick), height + 16, say.level(tick), "") for tick in on.ticks]
    return draw.svg(height + 24, marks, "Distribution of rewards; " + "; ".join(labels))


def _columns(values: Floats, on: Axis, base: float) -> list[Markup]:
    shares, edges = np.histogram(values, BINS, (on.low, on.high))
    marks = []
    for n, (start, end) in zip(shares.tolist(), pairwise(edges.tolist()), strict=True):
        if n:
            high = max(n / shares.max() * (ROW - 22), 0.6)
            marks.append(draw.box(on.x(start), base - high, on.x(end) - on.x(start), high, "bf"))
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
