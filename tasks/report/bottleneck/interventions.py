"""What becomes of the grade when concepts are set: by kind and by order of asking, as lines, tables and takeaways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tasks.contracts.tables.bottleneck import GRADE_METRICS, INTERVENTIONS, ORDERS
from tasks.display import say
from tasks.display.lines import ChartLine, ChartPoint
from tasks.display.table import Cell, Cells, Table, count
from tasks.report.bottleneck.figures import named

ENOUGH = 0.9
"""Share of all that answers can gain, by which orders are compared."""


class FigureKey(NamedTuple):
    """What a line of figures is of."""

    method: str
    metric: str
    kind: str
    order: str


class Set(NamedTuple):
    """The figures after so many concepts of each response were set: means over seeds, of the intervals' ends too."""

    asked: int
    value: float
    change: float
    low: float | None
    high: float | None
    spread: float | None
    """Standard deviation of the change over seeds."""
    n: int


Curves = Mapping[FigureKey, tuple[Set, ...]]


def curves(interventions: pa.Table) -> dict[FigureKey, tuple[Set, ...]]:
    """The rows of `interventions`, pooled over seeds, by how many concepts are set."""
    frame = interventions.to_pandas().dropna(subset=["value", "change"])
    found: dict[FigureKey, list[Set]] = {}
    for (method, metric, kind, order, asked), rows in frame.groupby(["method", "metric", "kind", "order", "asked"]):
        low, high = (None if rows[end].isna().any() else float(rows[end].mean()) for end in ("low", "high"))
        spread = float(rows["change"].std()) if len(rows) > 1 else None
        means = float(rows["value"].mean()), float(rows["change"].mean())
        one = Set(int(asked), *means, low, high, spread, int(rows["n"].min()))
        found.setdefault(FigureKey(method, metric, kind, order), []).append(one)
    return {key: tuple(sorted(sets)) for key, sets in found.items()}


def metric_of(found: Curves, methods: Iterable[str]) -> str | None:
    """The figure that is shown: the first of `GRADE_METRICS` that any of the methods has."""
    given = {key.metric for key in found if key.method in set(methods)}
    return next((name for name in GRADE_METRICS if name in given), None)


def kind_lines(found: Curves, method: str, metric: str, order: str = "confidence") -> list[ChartLine]:
    """One line for each kind, in the paper's order of asking, with the interval of its change."""
    return list(_lines(found, {FigureKey(method, metric, kind, order): words for kind, words in INTERVENTIONS.items()}))


def order_lines(found: Curves, method: str, metric: str) -> list[ChartLine]:
    """One line for each order of asking, of right answers."""
    keys = {FigureKey(method, metric, "oracle", order): words for order, words in ORDERS.items()}
    return [
        ChartLine(line.label, tuple(point._replace(low=None, high=None) for point in line.points))
        for line in _lines(found, keys)
    ]


def _lines(found: Curves, keys: Mapping[FigureKey, str]) -> Iterator[ChartLine]:
    for key, words in keys.items():
        if key in found:
            none = found[key][0].value - found[key][0].change
            least = (
                -1.0 if key.metric == "task_qwk" else 0.0
            )  # the interval is of the change, and could leave the scale
            yield ChartLine(
                words,
                tuple(
                    ChartPoint(
                        one.asked,
                        one.value,
                        max(least, none + one.low) if one.low is not None and one.asked else None,
                        min(1.0, none + one.high) if one.high is not None and one.asked else None,
                    )
                    for one in found[key]
                ),
            )


def kind_table(found: Curves, metric: str) -> Table:
    """The change once every concept is set, of each method and kind."""
    rows: list[Cells] = []
    for key, sets in found.items():
        if key.order == "confidence" and key.metric == metric:
            last = sets[-1]
            change = Cell(last.change, last.low, last.high, ends="interval", clusters=last.n)
            words = named(key.method), INTERVENTIONS[key.kind], count(last.asked)
            rows.append((*words, Cell(last.value), change, Cell(last.spread), count(last.n)))
    header = ("Grader", "concepts", "set", GRADE_METRICS[metric], "change [95%]", "sd over seeds", "n")
    return Table("interventions", "Once all concepts are set", header, tuple(rows))


def order_table(found: Curves, method: str, metric: str) -> Table:
    """What each order of asking gains, and how soon."""
    rows: list[Cells] = []
    for order, words in ORDERS.items():
        sets = found.get(FigureKey(method, metric, "oracle", order), ())
        if sets:
            rows.append((words, Cell(_mean_gain(sets)), Cell(_enough(sets), digits=0), Cell(sets[-1].change)))
    header = ("Order", "mean gain over the questions", f"questions for {say.rate(ENOUGH)} of it", "gain at the end")
    return Table("orders", f"{GRADE_METRICS[metric]}: which concepts are asked about first", header, tuple(rows))


def _mean_gain(sets: tuple[Set, ...]) -> float | None:
    """Area under the change over the questions, as a share of their number."""
    asked, change = np.array([one.asked for one in sets]), np.array([one.change for one in sets])
    return float(np.trapezoid(change, asked) / (asked[-1] - asked[0])) if asked[-1] > asked[0] else None


def _enough(sets: tuple[Set, ...]) -> float | None:
    """Fewest questions with `ENOUGH` of the gain that all answers bring; None where they bring none."""
    goal = ENOUGH * sets[-1].change - 1e-9
    return next((float(one.asked) for one in sets if one.change >= goal), None) if sets[-1].change > 0 else None


def kind_takeaway(found: Curves, method: str, metric: str) -> str:
    """What right answers gain and wrong ones cost, by the interval of the change."""
    told = []
    for kind, words in (("oracle", "right levels"), ("wrong", "the most damaging ones")):
        sets = found.get(FigureKey(method, metric, kind, "confidence"))
        if sets:
            told.append(f"{words} {_change(sets[-1])}")
    return f"{named(method)}, {GRADE_METRICS[metric]} once all are set: {', '.join(told)}"


def _change(one: Set) -> str:
    sure = one.low is not None and one.high is not None and not one.low <= 0 <= one.high
    return f"{say.signed(one.change)}{'' if sure else ' (not told from 0)'}"


def order_takeaway(found: Curves, method: str, metric: str) -> str:
    """Which order of asking gains most, and by how much more than a random one."""
    sets = {words: found.get(FigureKey(method, metric, "oracle", order)) for order, words in ORDERS.items()}
    gains = {words: gain for words, of in sets.items() if of and (gain := _mean_gain(of)) is not None}
    if len(gains) < 2:
        return "One order of asking was tried"
    best = max(gains, key=lambda words: gains[words])
    plain = gains.get(ORDERS["random"])
    most = f"{say.signed(gains[best])} {GRADE_METRICS[metric]}"
    told = f"Of the orders, {best} gains most: {most} on average over the questions"
    return told + (
        f"; {ORDERS['random']} {say.signed(plain)}" if plain is not None and best != ORDERS["random"] else ""
    )
