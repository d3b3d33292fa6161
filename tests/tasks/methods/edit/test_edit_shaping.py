"""Rewards against a plain reading of Eqs. 5-7."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.methods.edit.rl import outcomes, shape

TOPS = st.integers(1, 12)


@st.composite
def marked(draw: st.DrawFn) -> tuple[int | None, int, int]:
    top = draw(TOPS)
    mark = st.integers(0, top)
    return draw(st.none() | mark), draw(mark), top


@st.composite
def believed(draw: st.DrawFn) -> tuple[list[float], int, int]:
    top = draw(TOPS)
    expected = st.lists(st.floats(0, top), min_size=1, max_size=12)
    return draw(expected), draw(st.integers(0, top)), top


def brute_force(expected: list[float], gold: int, top: int, tolerance: float) -> float:
    after_steps = expected[1:]
    if not after_steps:
        return 0.0
    excess = 0.0
    for one in after_steps:
        off = abs(one - gold)
        excess += off - tolerance if off > tolerance else 0.0
    return -excess / (top * len(after_steps))


@pytest.mark.parametrize(
    ("mark", "gold", "top", "reward"),
    [(3, 3, 4, 1.0), (2, 3, 4, 0.75), (0, 4, 4, 0.0), (None, 0, 4, 0.0), (1, 0, 1, 0.0), (10, 12, 12, 1 - 2 / 12)],
)
def test_the_outcome_falls_with_the_distance_from_the_gold_mark(
    mark: int | None, gold: int, top: int, reward: float
) -> None:
    assert outcomes([mark], [gold], [top]) == pytest.approx([reward], abs=1e-15)


@given(st.lists(marked(), min_size=1, max_size=20))
@settings(max_examples=15)
def test_many_outcomes_are_the_outcome_of_each(rows: list[tuple[int | None, int, int]]) -> None:
    together = outcomes(*zip(*rows, strict=True))
    alone = [outcomes([mark], [gold], [top])[0] for mark, gold, top in rows]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-15)
    assert together.min() >= 0
    assert together.max() <= 1


@given(believed(), st.floats(0, 3))
@settings(max_examples=15)
def test_shaping_is_the_mean_excess_and_keeps_its_bounds(case: tuple[list[float], int, int], tolerance: float) -> None:
    expected, gold, top = case
    found = shape(np.array(expected), gold, top, tolerance)
    assert found == pytest.approx(brute_force(expected, gold, top, tolerance), abs=1e-12)
    assert -1 <= found <= 0


@given(st.integers(0, 9), st.lists(st.floats(-0.5, 0.5), min_size=1, max_size=9), st.floats(0, 9))
@settings(max_examples=15)
def test_shaping_is_exactly_zero_inside_the_tolerance(gold: int, drifts: list[float], before: float) -> None:
    # What is believed before any step is the model's prior and does not count.
    expected = np.array([before, *(gold + drift for drift in drifts)])
    inside = np.maximum(np.abs(expected[1:] - gold), 0.5).max()
    assert shape(expected, gold, 9, float(inside)) == 0.0
    assert shape(np.array([before]), gold, 9, 0.0) == 0.0


def test_shaping_by_hand() -> None:
    # Boundaries 1-3 are 1.5, 0.2 and 2 marks off; over half a mark they are 1, 0 and 1.5: 2.5 / (3 steps × 4 marks).
    expected = np.array([0.0, 1.5, 2.8, 5.0])
    assert shape(expected, 3, 4, 0.5) == pytest.approx(-2.5 / 12, abs=1e-15)
