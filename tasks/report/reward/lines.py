"""Dependencies as lines: one manner for each relation, and a mark where a response lacks the parent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from markupsafe import Markup

from tasks.contracts.graph import Relation
from tasks.display import say
from tasks.display.draw import place
from tasks.report.reward.boxes import WIDTH, Row, Shown, clean
from tasks.report.reward.layout import Layout, Pair

GUTTER, HEAD, SAMPLE = 92.0, 9.0, 34.0
"""Px between layers; length of an arrowhead; width of a sample in the legend."""
RELATIONS: Mapping[Relation, str] = {
    "weak_prerequisite": "weak prerequisite",
    "strong_prerequisite": "strong prerequisite",
    "activation": "activation",
}
DROPPED = {
    "unknown_criterion": "names a criterion that there is not",
    "itself": "a criterion cannot license itself",
    "roles": "the roles allow no such dependency",
    "duplicate": "proposed twice",
    "cycle": "it would close a circle",
    "voted_out": "people voted against it",
    "failed": "the annotator gave nothing usable",
}
"""Why a proposed edge is not in the graph."""


def ends(row: Row) -> Pair:
    """Parent and child of an edge."""
    return row["parent"], row["child"]


def left(layer: int) -> float:
    """Where a layer's boxes begin, in px."""
    return layer * (WIDTH + GUTTER)


def lines(kept: Sequence[Row], placed: Layout, heights: Mapping[str, float], shown: Shown | None) -> list[Markup]:
    """The dependencies, each from its parent's right side to its child's left, side by side where they meet. heights:
    of the boxes in px."""
    routes = {ends(row): placed.route(*ends(row)) for row in kept}
    leaving, arriving = (_ports(routes, heights, end) for end in (0, 1))
    marks = []
    for row in kept:
        stops = routes[ends(row)]
        stops[0] = (stops[0][0], leaving[ends(row)])
        stops[-1] = (stops[-1][0], arriving[ends(row)])
        marks.append(_line(row, stops, _is_lost(row, shown)))
    return marks


def _ports(
    routes: Mapping[Pair, Sequence[tuple[int, float]]], heights: Mapping[str, float], end: int
) -> dict[Pair, float]:
    """Edge → the height at which it leaves its parent (end 0) or reaches its child (end 1): spread over the box's side
    in the order of where the lines come from."""
    of: dict[str, list[Pair]] = {}
    for pair in routes:
        of.setdefault(pair[end], []).append(pair)
    found = {}
    for name, pairs in of.items():
        pairs.sort(key=lambda pair: routes[pair][1 if end == 0 else -2][1])
        step = min(12.0, (heights[name] - 24) / max(len(pairs) - 1, 1))
        middle = routes[pairs[0]][-end][1]
        for at, pair in enumerate(pairs):
            found[pair] = middle + step * (at - (len(pairs) - 1) / 2)
    return found


def dotted(row: Row, parent: tuple[float, float], child: tuple[float, float]) -> Markup:
    """The line of an edge that is not in the graph, from box to box; the reason is its tooltip.

    parent, child: left side and middle of their boxes, in px.
    """
    (x1, y1), (x2, y2) = parent, child
    leave = x1 + WIDTH if x2 >= x1 else x1
    reach = x2 if x2 > x1 else x2 + WIDTH
    bend = GUTTER / 2 if x2 >= x1 else -GUTTER / 2
    back = bend if x1 == x2 else -bend
    points = [(leave, y1), (leave + bend, y1), (reach + back, y2), (reach, y2)]
    path = "M{} {}C{} {} {} {} {} {}".format(*(place(value) for point in points for value in point))
    told = f"{clean(row['parent'])} → {clean(row['child'])} is not kept: {DROPPED[row['dropped']]}"
    if row["detail"]:
        told += f" ({clean(row['detail'])})"
    return _group("", [Markup("<title>{}</title>").format(told), _dots(path)])


def legend(kept: Sequence[Row], with_dropped: bool, shown: Shown | None) -> list[tuple[Markup, str]]:
    """A sample, SAMPLE px wide around height 0, and what it means, of all that the picture has."""
    found = [
        (_arrow(relation), words) for relation, words in RELATIONS.items() if relation in {r["relation"] for r in kept}
    ]
    if any(_is_lost(row, shown) for row in kept):
        lost = [_arrow("strong_prerequisite"), _cross(SAMPLE - HEAD - 12, 0)]
        found.append((_group("lost", lost), "parent missing here"))
    if with_dropped:
        found.append((_dots(f"M0 0H{place(SAMPLE)}"), "proposed and not kept"))
    if shown:
        bars = '<rect class="own" y="-4" width="34" height="8"/><rect class="left" y="-4" width="14" height="8"/>'
        found.append((Markup(bars), "own score, and filled what is left of it"))
    return found


def _arrow(relation: Relation) -> Markup:
    return _stroke(f"M0 0H{place(SAMPLE - HEAD)}", relation) + _tip(SAMPLE, 0, relation)


def _is_lost(row: Row, shown: Shown | None) -> bool:
    """Whether the response has the child without the parent."""
    if shown is None or not set(ends(row)) <= shown.local.keys():
        return False
    return shown.local[row["parent"]] < shown.threshold <= shown.local[row["child"]]


def _line(row: Row, stops: Sequence[tuple[int, float]], lost: bool) -> Markup:
    (first, start), (last, end) = stops[0], stops[-1]
    path = [f"M{place(left(first) + WIDTH)} {place(start)}"]
    for (_, before), (layer, y) in pairwise(stops):
        stop = left(layer) - (HEAD if layer == last else 0)
        middle = place(left(layer) - GUTTER / 2)
        path.append(f"C{middle} {place(before)} {middle} {place(y)} {place(stop)} {place(y)}")
        if layer != last:
            path.append(f"H{place(left(layer) + WIDTH)}")
    tip = _tip(left(last), end, row["relation"])
    marks = [_stroke("".join(path), row["relation"]), tip]
    if lost:
        marks.append(_cross(left(last) - HEAD - 12, end))  # near the head, where no other line is
    told = f"{clean(row['parent'])} → {clean(row['child'])}: {RELATIONS[row['relation']]}"
    if row["confidence"] is not None:
        told += f", confidence {say.number(row['confidence'])}"
    told += "; without the parent in this response" if lost else ""
    return _group("lost" if lost else "", [Markup("<title>{}</title>").format(told), *marks])


def _stroke(path: str, relation: Relation) -> Markup:
    """A line in the manner of its relation: dashed, solid or double."""
    made = Markup('<path class="{}" d="{}"/>')
    if relation == "activation":
        return made.format("line double", path) + made.format("between", path)
    return made.format("line weak" if relation == "weak_prerequisite" else "line", path)


def _tip(x: float, y: float, relation: Relation) -> Markup:
    """An arrowhead whose point is there: hollow for an activation."""
    made = '<path class="{}" d="M{} {}L{} {}V{}Z"/>'
    ends = place(x), place(y), place(x - HEAD), place(y - 5), place(y + 5)
    return Markup(made).format("hollow" if relation == "activation" else "head", *ends)


def _cross(x: float, y: float) -> Markup:
    return Markup('<path class="cross" d="M{} {}l8 8m0 -8l-8 8"/>').format(place(x - 4), place(y - 4))


def _dots(path: str) -> Markup:
    return Markup('<path class="line dropped" d="{}"/>').format(path)


def _group(kind: str, marks: Iterable[Markup]) -> Markup:
    opened = Markup('<g class="{}">').format(kind) if kind else Markup("<g>")
    return opened + Markup("").join(marks) + Markup("</g>")
