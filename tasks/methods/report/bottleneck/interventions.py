"""What becomes of the grade when concepts are set, by kind and by order of asking; and how concepts hang together."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from rubricflow.tasks.core.contracts.tables.bottleneck import GRADE_METRICS, INTERVENTIONS, ORDERS
from rubricflow.tasks.core.display import draw, say
from rubricflow.tasks.core.display.charts import HEAD, ChartLine, ChartPoint
from rubricflow.tasks.core.display.table import Cell, Cells, Table, count
from rubricflow.tasks.methods.report.bottleneck.figures import grader_name

WEAK = 0.3
"""REC-CBM, appendix E.6: a partial correlation below counts as weak."""
_RECT = Markup('<rect class="{}" x="{}%" y="{}" width="{}%" height="{}" style="--v:{}%"/>')
START, CELL = 36.0, 34
"""Of the square: per cent of the width before it, and px of a cell's height."""


def curves(interventions: pa.Table) -> tuple[str, pd.DataFrame]:
    """The metric that is shown, the first of `GRADE_METRICS` that was measured, and its rows pooled over seeds: method,
    kind, order, asked; means of value, change and of the ends of its interval, deviation of the change over seeds, n.
    """
    rows = interventions.to_pandas().dropna(subset=["value", "change"])
    metric = next((name for name in GRADE_METRICS if name in set(rows["metric"])), "")
    groups = rows[rows["metric"] == metric].groupby(["method", "kind", "order", "asked"])
    pooled = groups[["value", "change"]].mean()
    pooled[["low", "high"]] = groups[["low", "high"]].agg(lambda ends: ends.mean(skipna=False))
    pooled["sd"], pooled["n"] = groups["change"].std(), groups["n"].min()
    pooled = pooled.astype(object).where(pooled.notna(), None)
    return metric, pooled.reset_index()


def kind_lines(points: pd.DataFrame, method: str) -> list[ChartLine]:
    """One line for each kind, in the paper's order of asking, with the interval of its change."""
    lines = []
    for kind, words in INTERVENTIONS.items():
        curve = _curve(points, method, kind, "confidence")
        # The interval is of the change: it lies around the figure before any concept is set.
        unset = curve["value"] - curve["change"]
        ends = zip(curve["asked"], curve["value"], curve["low"], curve["high"], unset, strict=True)
        placed = []
        for asked, value, low, high, before in ends:
            known = asked and low is not None and high is not None
            interval = (before + low, min(1.0, before + high)) if known else ()
            placed.append(ChartPoint(float(asked), value, *interval))
        if placed:
            lines.append(ChartLine(words, tuple(placed)))
    return lines


def order_lines(points: pd.DataFrame, method: str) -> list[ChartLine]:
    """One line for each order of asking, of right answers."""
    lines = []
    for order, words in ORDERS.items():
        curve = _curve(points, method, "oracle", order)
        if len(curve):
            pairs = zip(curve["asked"], curve["value"], strict=True)
            lines.append(ChartLine(words, tuple(ChartPoint(float(asked), value) for asked, value in pairs)))
    return lines


def _curve(points: pd.DataFrame, method: str, kind: str, order: str) -> pd.DataFrame:
    of_curve = (points["method"] == method) & (points["kind"] == kind) & (points["order"] == order)
    return points[of_curve]


def kind_table(points: pd.DataFrame, metric: str) -> Table:
    """The change once every concept is set, of each method and kind."""
    last = points[points["order"] == "confidence"].groupby(["method", "kind"], as_index=False, sort=False).last()
    rows = list[Cells]()
    for row in last.to_dict("records"):
        change = Cell(row["change"], row["low"], row["high"], ends="interval", clusters=row["n"])
        words = grader_name(row["method"]), INTERVENTIONS[row["kind"]]
        rows.append((*words, count(row["asked"]), Cell(row["value"]), change, Cell(row["sd"]), count(row["n"])))
    header = ("Grader", "concepts", "set", GRADE_METRICS[metric], "change [95%]", "sd over seeds", "n")
    return Table("interventions", "Once all concepts are set", header, rows)


def kind_takeaway(points: pd.DataFrame, method: str, metric: str) -> str:
    """What right answers gain and wrong ones cost, by the interval of the change."""
    clauses = []
    for kind, words in (("oracle", "right levels"), ("wrong", "the most damaging ones")):
        for last in _curve(points, method, kind, "confidence").to_dict("records")[-1:]:
            low, high = last["low"], last["high"]
            is_sure = low is not None and high is not None and not low <= 0 <= high
            clauses.append(f"{words} {say.signed(last['change'])}{'' if is_sure else ' (not told from 0)'}")
    return f"{grader_name(method)}, {GRADE_METRICS[metric]} once all are set: {', '.join(clauses)}"


# How concepts hang together: correlations of their labels, and what the grader's precision leaves of them.


def of_first_seed(links: pa.Table, method: str) -> pa.Table:
    """The rows of a method's first seed."""
    rows = links.filter(pc.field("method") == method)
    return rows.filter(pc.equal(rows["seed"], pc.min(rows["seed"])))


def link_takeaway(links: pa.Table) -> str:
    """How many links are left."""
    partial = links["partial_correlation"].to_pylist()
    weak = sum(abs(value) < WEAK for value in partial)
    pairs = say.plural(len(partial), "pair")
    return f"{say.count(weak)} of {pairs} of concepts are linked weakly or not at all (|r| < {WEAK}) given all others"


def square(links: pa.Table, names: Mapping[str, str]) -> Markup:
    """Above the diagonal how labels go together, below it what is left given all other concepts.

    links: of one grader; names: concept → what people read, in order. The tint says how strong, a dashed frame that it
    is negative; the number says both.
    """
    wide = (100 - START) / max(len(names), 1)
    shown = {name: (place, say.visible(words)) for place, (name, words) in enumerate(names.items())}
    marks, sentences = list[Markup](), list[str]()
    for place, words in shown.values():
        y = float(HEAD + CELL * place)
        marks.append(draw.text(START + wide * (place + 0.5), 12, str(place + 1), "it"))
        marks.append(draw.text(START - 1.5, y + CELL / 2 + 4, f"{say.cut(words, 20)} {place + 1}", "it", "end"))
        marks.append(draw.box(START + wide * place, y, wide, CELL, "band"))
    for row in links.to_pylist():
        (first, name), (second, other) = sorted((shown[row["a"]], shown[row["b"]]))
        labels, partial = row["label_correlation"], row["partial_correlation"]
        for down, right, value in ((first, second, labels), (second, first, partial)):
            x, y = START + wide * right, float(HEAD + CELL * down)
            if value is not None:
                sizes = map(draw.place, (x + 0.2, y + 1, wide - 0.4, CELL - 2.0, min(abs(value), 1.0) * 60))
                marks.append(_RECT.format("minus" if value < 0 else "plus", *sizes))
            figure = "–" if value is None else say.number(value)
            marks.append(draw.text(x + wide / 2, y + CELL / 2 + 4, figure, "it"))
        known = "undefined" if labels is None else say.number(labels)
        sentences.append(f"{name} and {other}: labels {known}, partial {say.number(partial)}")
    height = HEAD + CELL * len(names) + 22
    marks.append(draw.text(100, height - 4, "above: labels; below: given all other concepts", "", "end"))
    return draw.svg(height, marks, "Correlations of concepts. " + "; ".join(sentences))
