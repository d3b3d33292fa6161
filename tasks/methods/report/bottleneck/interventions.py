"""What becomes of the grade when concepts are set: by kind and by order of asking, as lines, tables and takeaways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from rubricflow.tasks.core.contracts.tables.bottleneck import GRADE_METRICS, INTERVENTIONS, ORDERS
from rubricflow.tasks.core.display import draw, say
from rubricflow.tasks.core.display.charts import HEAD, ChartLine, ChartPoint
from rubricflow.tasks.core.display.table import Cell, Cells, Table, count
from rubricflow.tasks.methods.report.bottleneck.figures import grader_name

NEAR_ZERO, WEAK = 0.1, 0.3
"""REC-CBM, appendix E.6: a partial correlation below the first counts as none, below the second as weak."""
SHOWN = 12
"""Pairs in the table."""


_RECT = Markup('<rect class="{}" x="{}%" y="{}" width="{}%" height="{}" style="--v:{}%"/>')
CELL = 34
"""Px: height of a cell."""


class Half(NamedTuple):
    """A correlation of two concepts: among labels, and given all others; None where it is undefined."""

    labels: float | None
    partial: float


ENOUGH = 0.9
"""Share of all that answers can gain, by which orders are compared."""


class FigureKey(NamedTuple):
    """What a line of figures is of."""

    method: str
    metric: str
    kind: str
    order: str


class InterventionPoint(NamedTuple):
    """The figures after so many concepts of each response were set: means over seeds, of the intervals' ends too."""

    concepts_set: int
    value: float
    change: float
    low: float | None
    high: float | None
    spread: float | None
    """Standard deviation of the change over seeds."""
    n: int


Curves = Mapping[FigureKey, tuple[InterventionPoint, ...]]


def curves(interventions: pa.Table) -> dict[FigureKey, tuple[InterventionPoint, ...]]:
    """The rows of `interventions`, pooled over seeds, by how many concepts are set."""
    frame = interventions.to_pandas().dropna(subset=["value", "change"])
    of_key = frame.groupby([*FigureKey._fields, "asked"])
    pooled = of_key[["value", "change"]].mean()
    pooled[["low", "high"]] = of_key[["low", "high"]].agg(lambda ends: ends.mean(skipna=False))
    pooled["spread"], pooled["n"] = of_key["change"].std(), of_key["n"].min()
    found: dict[FigureKey, tuple[InterventionPoint, ...]] = {}
    for (*key, asked), *figures in pooled.astype(object).where(pooled.notna(), None).itertuples():
        of_curve = FigureKey(*key)
        found[of_curve] = (*found.get(of_curve, ()), InterventionPoint(asked, *figures))
    return found


def metric_of(curves_by_key: Curves, methods: Iterable[str]) -> str | None:
    """The figure that is shown: the first of `GRADE_METRICS` that any of the methods has."""
    metrics = {key.metric for key in curves_by_key if key.method in set(methods)}
    return next((name for name in GRADE_METRICS if name in metrics), None)


def kind_lines(curves_by_key: Curves, method: str, metric: str) -> list[ChartLine]:
    """One line for each kind, in the paper's order of asking, with the interval of its change."""
    keys = {FigureKey(method, metric, kind, "confidence"): words for kind, words in INTERVENTIONS.items()}
    return list(_lines(curves_by_key, keys))


def order_lines(curves_by_key: Curves, method: str, metric: str) -> list[ChartLine]:
    """One line for each order of asking, of right answers."""
    keys = {FigureKey(method, metric, "oracle", order): words for order, words in ORDERS.items()}
    return [
        line._replace(points=tuple(point._replace(low=None, high=None) for point in line.points))
        for line in _lines(curves_by_key, keys)
    ]


def _lines(curves_by_key: Curves, keys: Mapping[FigureKey, str]) -> Iterator[ChartLine]:
    for key, words in keys.items():
        if key in curves_by_key:
            curve = curves_by_key[key]
            unset = curve[0].value - curve[0].change  # the figure before any concept is set
            # The interval is of the change, and could leave the scale.
            least = -1.0 if key.metric == "task_qwk" else 0.0
            points = []
            for point in curve:
                ends: tuple[float, ...] = ()
                if point.concepts_set and point.low is not None and point.high is not None:
                    ends = max(least, unset + point.low), min(1.0, unset + point.high)
                points.append(ChartPoint(point.concepts_set, point.value, *ends))
            yield ChartLine(words, tuple(points))


def kind_table(curves_by_key: Curves, metric: str) -> Table:
    """The change once every concept is set, of each method and kind."""
    rows = []
    for key, points in curves_by_key.items():
        if key.order == "confidence" and key.metric == metric:
            last = points[-1]
            change = Cell(last.change, last.low, last.high, ends="interval", clusters=last.n)
            words = grader_name(key.method), INTERVENTIONS[key.kind], count(last.concepts_set)
            rows.append((*words, Cell(last.value), change, Cell(last.spread), count(last.n)))
    header = ("Grader", "concepts", "set", GRADE_METRICS[metric], "change [95%]", "sd over seeds", "n")
    return Table("interventions", "Once all concepts are set", header, rows)


def order_table(curves_by_key: Curves, method: str, metric: str) -> Table:
    """What each order of asking gains, and how soon."""
    rows = []
    for order, words in ORDERS.items():
        points = curves_by_key.get(FigureKey(method, metric, "oracle", order), ())
        if points:
            # Fewest questions with `ENOUGH` of the gain that all answers bring; none where they bring none
            gain = points[-1].change
            enough = (float(point.concepts_set) for point in points if point.change >= ENOUGH * gain - 1e-9)
            fewest = next(enough, None) if gain > 0 else None
            rows.append((words, Cell(_mean_gain(points)), Cell(fewest, digits=0), Cell(gain)))
    header = ("Order", "mean gain over the questions", f"questions for {say.rate(ENOUGH)} of it", "gain at the end")
    return Table("orders", f"{GRADE_METRICS[metric]}: which concepts are asked about first", header, rows)


def _mean_gain(points: tuple[InterventionPoint, ...]) -> float | None:
    """Area under the change over the questions, as a share of their number."""
    concepts_set, change = ([getattr(point, name) for point in points] for name in ("concepts_set", "change"))
    span = concepts_set[-1] - concepts_set[0]
    return float(np.trapezoid(change, concepts_set) / span) if span > 0 else None


def kind_takeaway(curves_by_key: Curves, method: str, metric: str) -> str:
    """What right answers gain and wrong ones cost, by the interval of the change."""
    clauses = []
    for kind, words in (("oracle", "right levels"), ("wrong", "the most damaging ones")):
        points = curves_by_key.get(FigureKey(method, metric, kind, "confidence"))
        if points:
            last = points[-1]
            sure = last.low is not None and last.high is not None and not last.low <= 0 <= last.high
            clauses.append(f"{words} {say.signed(last.change)}{'' if sure else ' (not told from 0)'}")
    return f"{grader_name(method)}, {GRADE_METRICS[metric]} once all are set: {', '.join(clauses)}"


def order_takeaway(curves_by_key: Curves, method: str, metric: str) -> str:
    """Which order of asking gains most, and by how much more than a random one."""
    gains: dict[str, float] = {}
    for order, words in ORDERS.items():
        points = curves_by_key.get(FigureKey(method, metric, "oracle", order))
        if points and (gain := _mean_gain(points)) is not None:
            gains[words] = gain
    if len(gains) < 2:
        return "One order of asking was tried"
    best, random = max(gains, key=lambda words: gains[words]), ORDERS["random"]
    most = f"{say.signed(gains[best])} {GRADE_METRICS[metric]}"
    plain = f"; {random} {say.signed(gains[random])}" if random in gains and best != random else ""
    return f"Of the orders, {best} gains most: {most} on average over the questions{plain}"


# How concepts hang together: correlations of their labels, and what the grader's precision leaves of them.


def of_first_seed(links: pa.Table, method: str) -> pa.Table:
    """The rows of a method's first seed."""
    rows = links.filter(pc.field("method") == method)
    return rows.filter(pc.equal(rows["seed"], pc.min(rows["seed"])))


def correlation_square(links: pa.Table, names: Mapping[str, str]) -> Markup:
    """The square of both correlations. links: of one grader; names: concept → what people read, in order."""
    places = {name: index for index, name in enumerate(names)}
    halves = {}
    for row in links.to_pylist():
        first, second = sorted((places[row["a"]], places[row["b"]]))
        halves[first, second] = Half(row["label_correlation"], row["partial_correlation"])
    return square([say.visible(name) for name in names.values()], halves)


def takeaway(links: pa.Table) -> str:
    """How many links are left."""
    partial = [abs(value) for value in links["partial_correlation"].to_pylist()]
    labels = [abs(value) for value in links["label_correlation"].drop_null().to_pylist()]
    if not partial:
        return "This grader corrects nothing: it has no latent structure"
    weak, weak_labels = (sum(value < WEAK for value in values) for values in (partial, labels))
    return (
        f"{say.count(weak)} of {say.plural(len(partial), 'pair')} of concepts are linked weakly or not at all (|r| < "
        f"{WEAK}) given all others; {say.count(weak_labels)} of {say.count(len(labels))} by their labels"
    )


def table(links: pa.Table, names: Mapping[str, str]) -> Table:
    """The strongest links given all other concepts."""
    strongest = sorted(links.to_pylist(), key=lambda row: -abs(row["partial_correlation"]))
    rows = list[Cells]()
    for row in strongest[:SHOWN]:
        pair = f"{say.name(names[row['a']])} and {say.name(names[row['b']])}"
        both = (Cell(row[name], digits=2) for name in ("label_correlation", "partial_correlation"))
        rows.append((pair, *both, count(row["n"])))
    none = sum(abs(row["partial_correlation"]) < NEAR_ZERO for row in strongest)
    notes = (f"{say.plural(none, 'pair')} with |r| < {NEAR_ZERO} given all others",)
    header = ("Concepts", "labels", "given all others", "n")
    return Table("links", "The strongest links", header, rows, notes)


def square(names: Sequence[str], halves: Mapping[tuple[int, int], Half]) -> Markup:
    """Above the diagonal how labels go together, below it what is left given all other concepts.

    names: the concepts in order. found: (row, column) with row < column → both. The tint says how strong, a dashed
    frame that it is negative; the number says both.
    """
    start = 36.0
    wide = (100 - start) / max(len(names), 1)
    marks, sentences = list[Markup](), list[str]()
    for index, name in enumerate(names):
        y = float(HEAD + CELL * index)
        marks.append(draw.text(start + wide * (index + 0.5), 12, str(index + 1), "it"))
        marks.append(draw.text(start - 1.5, y + CELL / 2 + 4, f"{say.cut(name, 20)} {index + 1}", "it", "end"))
        marks.append(draw.box(start + wide * index, y, wide, CELL, "band"))
    for (row, column), half in halves.items():
        for down, right, value in ((row, column, half.labels), (column, row, half.partial)):
            x, y = start + wide * right, float(HEAD + CELL * down)
            middle = x + wide / 2, y + CELL / 2 + 4
            if value is None:
                marks.append(draw.text(*middle, "–", ""))
                continue
            kind = "minus" if value < 0 else "plus"
            sizes = map(draw.place, (x + 0.2, y + 1, wide - 0.4, CELL - 2.0, min(abs(value), 1.0) * 60))
            marks += [_RECT.format(kind, *sizes), draw.text(*middle, say.number(value), "it")]
        labels = "undefined" if half.labels is None else say.number(half.labels)
        sentences.append(f"{names[row]} and {names[column]}: labels {labels}, partial {say.number(half.partial)}")
    height = HEAD + CELL * len(names) + 22
    marks.append(draw.text(100, height - 4, "above: labels; below: given all other concepts", "", "end"))
    return draw.svg(height, marks, "Correlations of concepts. " + "; ".join(sentences))
