"""A rubric's graph as HTML: who licenses stands left of whom; what one response earned may be laid over it.

The browser sets the text of the boxes; only the lines between them, whose heights are therefore fixed, are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from tasks.display import say
from tasks.display.page import filled, rendered
from tasks.display.section import Drawing, Page, Section
from tasks.report.reward.boxes import EarnedCredit, Row, box
from tasks.report.reward.layout import layout
from tasks.report.reward.lines import GUTTER, SAMPLE, WIDTH, dotted, ends, in_words, left_edge, legend, lines

HERE = Path(__file__).parent
LOOK = "Who licenses stands left of whom. Point at a box or a line for all that is known of it."
HIGH, BAR = 104.0, 18.0
"""Px: the height of a box, and of the bar in it."""
DRAWN = ("cycle", "voted_out")
"""Dropped for a reason that a person may want to look at: the others break a rule."""


def rows_of(table: pa.Table, rubric_id: str) -> list[Row]:
    """A rubric's rows."""
    rows: list[Row] = table.filter(pc.field("rubric_id") == rubric_id).to_pylist()
    return rows


def picture(nodes: Sequence[Row], edges: Sequence[Row], earned: EarnedCredit | None = None) -> Markup:
    """One rubric's graph, for a page with `graph.css`.

    nodes, edges: its rows of `graph_nodes` and `graph_edges`; of the edges that were dropped those that closed a circle
    or were voted out are drawn as well. earned: by a response.
    """
    rows = {row["criterion_id"]: row for row in sorted(nodes, key=lambda row: row["position"])}
    kept_edges = [row for row in edges if row["kept"]]
    dropped = [row for row in edges if row["dropped"] in DRAWN and set(ends(row)) <= rows.keys()]
    linked = set(chain.from_iterable(ends(row) for row in (*kept_edges, *dropped)))
    box_height = HIGH + (BAR if earned else 0)
    placed = layout([name for name in rows if name in linked], map(ends, kept_edges), box_height)
    places = {stop[0]: place for stop, place in placed.places.items() if len(stop) == 1}
    boxes = [box(rows[name], earned, left_edge(layer), y - box_height / 2) for name, (layer, y) in places.items()]
    dotted_lines = [dotted(row, places[row["parent"]], places[row["child"]]) for row in dropped]
    last_layer = max((layer for layer, _ in places.values()), default=0)
    words = [f"Graph of {say.plural(len(rows), 'criterion', 'criteria')}", *map(in_words, kept_edges)]
    return filled(
        HERE / "graph.html.j2",
        boxes=boxes,
        aside=[box(row, earned) for name, row in rows.items() if name not in linked],
        lines=dotted_lines + lines(kept_edges, placed, box_height, earned),
        legend=legend(kept_edges, bool(dropped), earned),
        earned=earned is not None,
        width=WIDTH,
        high=box_height,
        length=SAMPLE,
        across=left_edge(last_layer + 1) - GUTTER,
        down=placed.height,
        label="; ".join(words),
    )


def graph_page(rubric_id: str, nodes: Sequence[Row], edges: Sequence[Row]) -> str:
    """One rubric's graph as a document of its own. nodes, edges: its rows of `graph_nodes` and `graph_edges`."""
    criteria, dependencies = say.plural(len(nodes), "criterion", "criteria"), sum(row["kept"] for row in edges)
    title = f"{criteria}, {say.plural(dependencies, 'dependency', 'dependencies')}"
    drawn = (Drawing("", picture(nodes, edges)),)
    section = Section("graph", "Graph: which criterion licenses which?", title, LOOK, pictures=drawn)
    name = say.name(rubric_id)
    return rendered(Page(kind="Rubric graph", study=name, title=name, sections=(section,)), style())


@cache
def style() -> Markup:
    """The rules that a picture needs, once per page."""
    return Markup((HERE / "graph.css").read_text(encoding="utf-8"))
