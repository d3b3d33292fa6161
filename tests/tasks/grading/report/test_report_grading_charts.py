"""Plots put values where their axis says: places and sides, read back from the SVG."""

from __future__ import annotations

import re

import pytest

from rubricflow.tasks.core.display.charts import Axis
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.charts import LEAST_SPAN, Dot, ForestRow, forest_axis, forest_row

UNIT = Axis(0.0, 1.0, (0.0, 0.5, 1.0), 2, 98)


def marks(svg: str, tag: str, shape: str, *names: str) -> list[tuple[float, ...]]:
    """Numbers of these attributes of every mark of a class."""
    rows = []
    for attributes in re.findall(rf"<{tag} ([^>]*)", svg):
        told = dict(re.findall(r'([\w-]+)="(.*?)"', attributes))
        if told.get("class") == shape:
            rows.append(tuple(float(told[name].removesuffix("%")) for name in names))
    return rows


def axis_of(*estimates: Estimate, band: float | None = None) -> Axis:
    return forest_axis([ForestRow("", 0, (Dot(estimate, "m"),), ()) for estimate in estimates], band)


def test_a_forest_axis_does_not_blow_up_a_difference_of_nothing() -> None:
    near = axis_of(Estimate(0.80), Estimate(0.81))
    assert near.high - near.low >= LEAST_SPAN
    wide = axis_of(Estimate(0.5, 0.1, 0.9))
    assert (wide.low, wide.high) == (0, 1)
    assert axis_of(Estimate(0.0), band=0.1).low <= -0.1


def test_a_row_has_the_machine_above_people_each_with_its_interval() -> None:
    dots = [Dot(Estimate(0.5, 0.25, 0.75), "m"), Dot(Estimate(0.6, 0.5, 1.0), "h")]
    svg = str(forest_row(dots, UNIT))
    ((machine, upper),), ((people, lower),) = (marks(svg, "circle", shape, "cx", "cy") for shape in ("mf", "hf"))
    assert (machine, people) == pytest.approx((50, 59.6))
    assert upper < lower
    assert marks(svg, "line", "ml", "x1", "y1", "x2", "y2") == [(26, upper, 74, upper)]
    assert marks(svg, "line", "hl", "x1", "y1", "x2", "y2") == [(50, lower, 98, lower)]


def test_an_undefined_figure_has_no_mark() -> None:
    assert "circle" not in str(forest_row([Dot(Estimate(None), "m")], UNIT))
