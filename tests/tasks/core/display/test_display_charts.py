"""Axes, bars and lines put values where their axis says, read back from the SVG."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.display.charts import (
    BASE,
    TOP,
    Axis,
    ChartLine,
    ChartPoint,
    axis,
    bar_chart,
    line_chart,
    share_chart,
)
from rubricflow.tasks.core.display.table import Bar, LevelShares, Panel

UNIT = Axis(0.0, 1.0, (0.0, 0.5, 1.0), 2, 98)


@settings(max_examples=100)
@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=6), st.integers(2, 8))
def test_an_axis_holds_its_values_between_round_ticks(values: list[float], most: int) -> None:
    on = axis(values, most)
    span = max(on.high - on.low, 1e-9)
    assert on.low - 1e-6 * span <= min(values) <= max(values) <= on.high + 1e-6 * span
    assert (on.ticks[0], on.ticks[-1]) == (on.low, on.high)
    assert 2 <= len(on.ticks) <= most + 2


def test_round_steps_are_not_passed_over() -> None:
    assert axis([0, 1], 5).ticks == (0, 0.2, 0.4, 0.6, 0.8, 1)
    assert axis([0, 10], 4).ticks == (0, 2.5, 5, 7.5, 10)
    assert axis([]).ticks[0] == 0


def test_values_off_an_axis_stand_at_its_edge() -> None:
    assert [UNIT.x(value) for value in (-1, 0, 0.25, 1, 7)] == [2, 2, 26, 98, 98]


def test_charts_say_what_they_show() -> None:
    assert "0.500" in bar_chart(Panel("Errors", (Bar("A", 0.5, 0.4, 0.7),)))
    assert "<img" not in bar_chart(Panel("Errors", (Bar("<img src=x>", -0.25),)))
    assert "25%" in share_chart(LevelShares("Scores", ("0", "1"), (0.25, 0.75), {"A": (0.5, 0.5)}))


def test_bars_stand_in_their_order_and_people_as_a_line() -> None:
    panel = Panel("QWK", (Bar("a", 0.5, 0.4, 0.6, "0.50 ± 0.10"), Bar("b", 0.25)), 0.8)
    drawn = bar_chart(panel)
    widths = [float(width) for width in re.findall(r'class="bf"[^>]* width="([\d.]+)%"', drawn)]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)
    assert 'aria-label="QWK: a 0.50 ± 0.10; b 0.250; people 0.80"' in drawn
    assert drawn.count('class="hl"') == 1
    assert 'class="hl"' not in bar_chart(panel._replace(people=None))


def test_ticks_are_written_with_the_digits_of_their_step() -> None:
    drawn = bar_chart(Panel("Errors", (Bar("A", 0.9),)))
    assert all(f">{tick}<" in drawn for tick in ("0.00", "0.25", "0.50", "0.75", "1.00"))
    assert ">20<" in bar_chart(Panel("Tokens", (Bar("A", 77.0),)))


def test_lines_go_through_their_points_within_what_is_to_be_compared() -> None:
    line = ChartLine("up", (ChartPoint(0, 0.2), ChartPoint(1, 0.4, 0.3, 0.5), ChartPoint(2, 0.6)))
    drawn = line_chart("title", [line], "asked", "QWK", within=(0.0, 1.0))
    points = [tuple(map(float, found)) for found in re.findall(r'class="mf" cx="([\d.]+)%" cy="([\d.]+)"', drawn)]
    assert len(points) == 3
    down = [y for _, y in points]
    assert down[0] - down[1] == pytest.approx(down[1] - down[2], abs=0.2)
    assert down[0] == pytest.approx(BASE - 0.2 * (BASE - TOP), abs=0.1)
    assert drawn.count('class="ml thin"') == 1
    assert "title. up: 0 0.200, 1 0.400, 2 0.600" in drawn
