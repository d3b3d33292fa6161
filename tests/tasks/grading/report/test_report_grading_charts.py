"""Charts put values where their axis says: heights, places and sides, read back from the SVG."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.display.axis import Axis
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report import charts
from rubricflow.tasks.grading.report.charts import Bars, Curve, Dot, Risk

FLOOR, TALLEST = 186, 160
"""Where bars stand, and how high the highest is, px."""
UNIT = Axis(0.0, 1.0, (0.0, 0.5, 1.0), 2, 98)


class Box(NamedTuple):
    x: float
    y: float
    width: float
    height: float


def boxes(svg: str, shape: str) -> list[Box]:
    """Rectangles of a class, from left to right as they were drawn."""
    found = re.findall(rf'<rect class="{shape}" x="(.*?)%" y="(.*?)" width="(.*?)%" height="(.*?)"/>', svg)
    return [Box(*map(float, one)) for one in found]


def marks(svg: str, tag: str, shape: str, *names: str) -> list[tuple[float, ...]]:
    """Numbers of these attributes of every mark of a class."""
    rows = []
    for attributes in re.findall(rf"<{tag} ([^>]*)", svg):
        told = dict(re.findall(r'([\w-]+)="(.*?)"', attributes))
        if told.get("class") == shape:
            rows.append(tuple(float(told[name].removesuffix("%")) for name in names))
    return rows


def drawn(machine: tuple[float, ...], people: tuple[float, ...]) -> str:
    levels = tuple(map(str, range(len(machine))))
    return str(charts.bars(Bars("scale", levels, machine, people)))


# bars

SHARES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=12)


@settings(max_examples=100)
@given(SHARES)
def test_bars_are_as_high_as_their_share_and_stand_on_the_floor(shares: list[tuple[float, float]]) -> None:
    machine, people = zip(*shares, strict=True)
    svg, most = drawn(machine, people), max(*machine, *people, 0.01)
    for shape, values in (("mf", machine), ("hf", people)):
        found = boxes(svg, shape)
        assert [box.height for box in found] == pytest.approx([TALLEST * value / most for value in values], abs=0.06)
        assert [box.y + box.height for box in found] == pytest.approx([FLOOR] * len(values), abs=0.06)


def test_the_machine_stands_left_of_people_in_the_place_of_its_level() -> None:
    svg = drawn((0.2, 0.3, 0.5), (0.1, 0.8, 0.1))
    for at, (left, right) in enumerate(zip(boxes(svg, "mf"), boxes(svg, "hf"), strict=True)):
        assert at * 100 / 3 < left.x < left.x + left.width <= right.x
        assert right.x + right.width < (at + 1) * 100 / 3
        assert left.width == right.width > 10


def test_people_s_highest_bar_sets_the_scale_as_the_machine_s_does() -> None:
    assert max(box.height for box in boxes(drawn((0.5, 0.5), (0.1, 0.9)), "hf")) == pytest.approx(TALLEST, abs=0.06)
    assert max(box.height for box in boxes(drawn((0.1, 0.9), (0.5, 0.5)), "mf")) == pytest.approx(TALLEST, abs=0.06)


def test_nothing_at_all_has_bars_of_no_height() -> None:
    assert [box.height for box in boxes(drawn((0.0, 0.0), (0.0, 0.0)), "mf")] == [0, 0]


@pytest.mark.parametrize(("levels", "numbers"), [(7, 7), (8, 0)])
def test_numbers_stand_over_the_bars_where_there_is_room(levels: int, numbers: int) -> None:
    svg = drawn(tuple([1 / levels] * levels), tuple([0.0] * (levels - 1) + [1.0]))
    for shape in ("mt", "ht"):
        assert len(marks(svg, "text", shape, "x", "y")) == numbers
    if numbers:
        tops = [box.y for box in boxes(svg, "mf")]
        assert [y for _, y in marks(svg, "text", "mt", "x", "y")] == pytest.approx([top - 6 for top in tops], abs=0.1)


# axes


def test_a_forest_axis_does_not_blow_up_a_difference_of_nothing() -> None:
    near = charts.forest_axis([Estimate(0.80), Estimate(0.81)])
    assert near.high - near.low >= charts.LEAST_SPAN
    wide = charts.forest_axis([Estimate(0.5, 0.1, 0.9)])
    assert (wide.low, wide.high) == (0, 1)
    assert charts.forest_axis([Estimate(0.0)], band=0.1).low <= -0.1


# rows and curves


def test_a_row_has_the_machine_above_people_each_with_its_interval() -> None:
    dots = [Dot(Estimate(0.5, 0.25, 0.75), "m"), Dot(Estimate(0.6, 0.5, 1.0), "h"), Dot(Estimate(0.9, 0.1, 1.0), "c")]
    svg = str(charts.forest_row(dots, UNIT))
    ((machine, upper),), ((people, lower),) = (marks(svg, "circle", shape, "cx", "cy") for shape in ("mf", "hf"))
    assert (machine, people) == pytest.approx((50, 59.6))
    assert upper < lower
    assert marks(svg, "line", "ml", "x1", "y1", "x2", "y2") == [(26, upper, 74, upper)]
    assert marks(svg, "line", "hl", "x1", "y1", "x2", "y2") == [(50, lower, 98, lower)]
    assert marks(svg, "line", "cl", "x1", "x2") == [(88.4, 88.4)]


def test_an_undefined_figure_has_no_mark() -> None:
    assert "circle" not in str(charts.forest_row([Dot(Estimate(None), "m")], UNIT))


def test_the_curve_lies_on_the_diagonal_where_scores_are_people_s() -> None:
    exact = ((0.0, 0.0), (2.0, 2.0), (4.0, 4.0))
    svg = str(charts.curve(Curve(0.0, 4.0, ((0.0, 1.0),), exact)))
    ((x1, y1, x2, y2),) = marks(svg, "line", "gl dots", "x1", "y1", "x2", "y2")
    for x, y in marks(svg, "circle", "mf", "cx", "cy"):
        assert (y - y1) / (y2 - y1) == pytest.approx((x - x1) / (x2 - x1), abs=0.01)


def test_more_wrong_scores_stand_higher_in_the_curve_of_risk() -> None:
    points = tuple((share / 4, 0.1 * share) for share in range(1, 5))
    found = Risk(points, points, 0.3, 1.0, (0.5, 0.2), 0.05, "wrong")
    svg = str(charts.risk(found))
    floor, ceiling = 242, 14
    ((_, chosen),) = marks(svg, "circle", "mf", "cx", "cy")
    assert chosen == pytest.approx(floor - 0.2 / 0.4 * (floor - ceiling), abs=0.1)
    (promised,) = marks(svg, "line", "al dash", "y1", "y2")
    assert promised == pytest.approx([floor - 0.05 / 0.4 * (floor - ceiling)] * 2, abs=0.1)
