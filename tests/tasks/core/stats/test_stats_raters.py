"""Rater effects: hand-worked tables, resampled rows, and effects put in by simulation."""

import numpy as np
import pytest

from rubricflow.tasks.core.stats import bootstrap as bs
from rubricflow.tasks.core.stats import raters as rt

NAN = np.nan
HAND = np.array([[1, 2, 3], [4, 4, NAN], [NAN, 5, NAN], [2, NAN, 5]])


def crowd(seed, n=400, k=4, missing=0.3):
    rng = np.random.default_rng(seed)
    table = rng.normal(0, 1, (n, 1)) + rng.normal(0, 0.6, (n, k))
    table[rng.random((n, k)) < missing] = NAN
    return table


def test_severity_by_hand():
    found = rt.severity(HAND, range(4), 10, 0)
    assert [one.n for one in found] == [3, 2, 2]
    # First rater: 1 - 2.5, 4 - 4 and 2 - 5; second: 2 - 2 and 4 - 4; third: 3 - 1.5 and 5 - 2.
    assert [one.difference.value for one in found] == pytest.approx([-1.5, 0, 2.25])


def test_severity_put_in_is_found():
    table = crowd(0) + np.array([0, 0, 0, 0.5])
    found = rt.severity(table, np.arange(400), 200, 0)
    # The others' mean holds the lenient one too, in a third of the weight.
    assert found[3].difference.value == pytest.approx(0.5, abs=0.15)
    assert all(one.difference.value < 0 for one in found[:3])
    assert all(one.difference.note is None for one in found)
    assert found[3].interval.low > 0


def test_severity_intervals_equal_a_loop_over_resampled_rows():
    table, clusters = crowd(1, n=40, k=3), np.arange(40) // 2
    counts = bs.resample_counts(np.random.default_rng(5), 20, 50).astype(int)
    drawn = [
        [one.difference.value for one in rt.severity(np.repeat(table, row[clusters], axis=0), range(40), 1, 0)]
        for row in counts
    ]
    found = rt.severity(table, clusters, 50, 5)
    several = (~np.isnan(table)).sum(axis=1) > 1
    for one, values, rater in zip(found, np.transpose(drawn), table.T, strict=True):
        held = len(np.unique(clusters[several & ~np.isnan(rater)]))
        assert tuple(one.interval) == pytest.approx(tuple(bs.interval(values, held)))


def test_too_few_shared_responses_are_said():
    assert rt.severity(HAND, range(4), 1, 0)[0].difference.note == "fewer than 30 shared responses"
    notes = [rt.severity([[1, 2]] * n, range(n), 1, 0)[0].difference.note for n in (29, 30)]
    assert notes == ["fewer than 30 shared responses", None]
    alone = rt.severity([[1, NAN], [NAN, 2]], [1, 2], 5, 0)[0]
    assert (alone.n, alone.difference, alone.interval) == (0, (None, rt.NONE_SHARED), (None, None, 5, 0))


def test_tendency_by_hand():
    # First and second share 0 4 / 1 3 and 2 2; spread 8 against 2.
    found = rt.central_tendency([[0, 1], [4, 3], [2, 2], [4, NAN]], 0, 4)
    assert (found[0].n, found[0].sd_ratio.value, found[1].sd_ratio.value) == (3, pytest.approx(2), pytest.approx(0.5))
    assert (found[0].ends.value, found[0].others_ends.value) == (pytest.approx(2 / 3), 0)


def test_equal_raters_have_equal_spread_however_many():
    for k in (2, 6):
        found = rt.central_tendency(crowd(2, n=4000, k=k, missing=0.2), -9, 9)
        assert [one.sd_ratio.value for one in found] == pytest.approx([1] * k, abs=0.05)


def test_a_rater_who_keeps_to_the_middle():
    table = np.clip(np.round(2 * crowd(3)), -2, 2)
    table[:, 0] = np.round(table[:, 0] / 2)
    found = rt.central_tendency(table, -2, 2)
    assert found[0].sd_ratio.value < 0.7 < 1 < found[1].sd_ratio.value
    assert found[0].ends.value == 0 < found[0].others_ends.value


def test_pairs_are_compared_on_shared_responses_only():
    # The third rater had only extreme responses, on which the first agrees to the point.
    table = np.array([[1, 1, NAN], [2, 2, NAN], [0, NAN, 0], [9, NAN, 9]])
    assert [one.sd_ratio.value for one in rt.central_tendency(table, 0, 9)] == pytest.approx([1, 1, 1])


@pytest.mark.parametrize(
    ("table", "note"),
    [
        ([[1, 2]] * 49, "fewer than 50 shared responses"),
        ([[0, 1], [2, 2]] * 9 + [[1, 2]] * 50, "a level used fewer than 10 times"),
        ([[0, 1], [2, 2]] * 30, None),
        ([[0, 1], [2, 2]] * 30 + [[4, NAN]], None),
    ],
)
def test_tendency_of_thin_data_is_noted(table, note):
    assert rt.central_tendency(table, 0, 4)[0].ends.note == note


def test_tendency_without_others_or_their_spread():
    assert rt.central_tendency([[1, NAN], [NAN, 2]], 0, 4)[0] == (0, *[(None, rt.NONE_SHARED)] * 3)
    flat = rt.central_tendency([[1, 0.1], [2, 0.1], [3, 0.1]], 0, 4)
    assert (flat[0].sd_ratio.value, flat[1].sd_ratio.value) == (None, 0)
