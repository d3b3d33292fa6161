"""How concepts hang together: correlations of their labels, and what the grader's precision leaves of them.

Two correlations of concepts in one square, as SVG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from tasks.display import draw, say
from tasks.display.bars import HEAD
from tasks.display.table import Cell, Cells, Table, count

NEAR_ZERO, WEAK = 0.1, 0.3
"""REC-CBM, appendix E.6: a partial correlation below the first counts as none, below the second as weak."""
SHOWN = 12
"""Pairs in the table."""


def of_first_seed(links: pa.Table, method: str) -> pa.Table:
    """The rows of a method's first seed."""
    rows = links.filter(pc.field("method") == method)
    return rows.filter(pc.field("seed") == pc.min(rows["seed"]).as_py()) if len(rows) else rows


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
    rows: list[Cells] = []
    for row in strongest[:SHOWN]:
        pair = f"{say.name(names[row['a']])} and {say.name(names[row['b']])}"
        labels, partial = (Cell(row[name], digits=2) for name in ("label_correlation", "partial_correlation"))
        rows.append((pair, labels, partial, count(row["n"])))
    none = sum(abs(row["partial_correlation"]) < NEAR_ZERO for row in strongest)
    notes = (f"{say.plural(none, 'pair')} with |r| < {NEAR_ZERO} given all others",)
    header = ("Concepts", "labels", "given all others", "n")
    return Table("links", "The strongest links", header, tuple(rows), notes)


CELL = 34
"""Px: height of a cell."""


class Half(NamedTuple):
    """A correlation of two concepts: among labels, and given all others; None where it is undefined."""

    labels: float | None
    partial: float


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
            marks += _cell(x, y, wide, value)
        labels = "undefined" if half.labels is None else say.number(half.labels)
        sentences.append(f"{names[row]} and {names[column]}: labels {labels}, partial {say.number(half.partial)}")
    height = HEAD + CELL * len(names) + 22
    marks.append(draw.text(100, height - 4, "above: labels; below: given all other concepts", "", "end"))
    return draw.svg(height, marks, "Correlations of concepts. " + "; ".join(sentences))


def _cell(x: float, y: float, wide: float, value: float | None) -> list[Markup]:
    middle = x + wide / 2, y + CELL / 2 + 4
    if value is None:
        return [draw.text(*middle, "–", "")]
    kind = "minus" if value < 0 else "plus"
    template = '<rect class="{}" x="{}%" y="{}" width="{}%" height="{}" style="--v:{}%"/>'
    sizes = map(draw.place, (x + 0.2, y + 1, wide - 0.4, CELL - 2.0, min(abs(value), 1.0) * 60))
    return [Markup(template).format(kind, *sizes), draw.text(*middle, say.number(value), "it")]
