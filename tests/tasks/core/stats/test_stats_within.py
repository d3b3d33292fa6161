"""Agreement inside items, against pandas; an item's mean alone is worth nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.stats.bootstrap import within_items


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(2, 30), st.floats(-5, 5))
def test_it_is_the_correlation_of_deviations_whatever_the_items_means(
    seed: int, items: int, each: int, shift: float
) -> None:
    rng = np.random.default_rng(seed)
    item = np.repeat(np.arange(items), each)
    human, machine = rng.normal(size=(2, len(item)))
    frame = pd.DataFrame({"h": human, "m": machine})
    apart = frame - frame.groupby(item).transform("mean")
    expected = apart["h"].corr(apart["m"])
    stat, ends = within_items(human + shift * item, machine - shift * item, item, np.arange(len(item)), draws=0)
    assert stat.value == pytest.approx(expected, abs=1e-6)
    assert ends is None


def test_scores_that_are_the_same_inside_every_item_are_undefined_with_the_reason() -> None:
    item, human = np.repeat([0, 1], 10), np.random.default_rng(0).random(20)
    for pair in ((human, item), (item, human)):
        stat, ends = within_items(*pair, item, np.arange(20))
        assert stat.value is None
        assert stat.note
        assert ends is None


def test_the_interval_holds_the_figure_and_authors_are_drawn_whole() -> None:
    rng = np.random.default_rng(1)
    item, author = np.repeat([0, 1, 2], 30), np.tile(np.arange(30), 3)
    able = rng.normal(size=30)[author]
    human, machine = (able + 0.3 * rng.normal(size=90) for _ in range(2))
    (stat, by_author), (_, by_answer) = (within_items(human, machine, item, who) for who in (author, np.arange(90)))
    assert by_author is not None
    assert by_answer is not None
    assert stat.value is not None
    assert by_author.low < stat.value < by_author.high
    assert (by_author.clusters, by_answer.clusters) == (30, 90)
    assert by_author.low > 0


@pytest.mark.parametrize("each", [2, 3, 5, 20])
def test_of_scores_that_know_nothing_few_intervals_lie_above_0_however_small_the_items(each: int) -> None:
    rng, item = np.random.default_rng(each), np.repeat(np.arange(120 // each), each)
    above = 0
    for _ in range(300):
        _, ends = within_items(*rng.normal(size=(2, 120)), item, np.arange(120), draws=400)
        assert ends is not None
        above += ends.low is not None and ends.low > 0
    assert above <= 0.05 * 300
