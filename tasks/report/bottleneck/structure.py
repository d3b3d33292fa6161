"""How concepts hang together: correlations of their labels, and what the grader's precision leaves of them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from tasks.display import say
from tasks.display.table import Cell, Cells, Table, count
from tasks.report.bottleneck.charts import Half, square

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
