"""Krippendorff's alpha for ordered levels: worked examples, the textbook sums, and its edges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.stats.agreement import krippendorff_ordinal

NAN = np.nan
A = np.array([[0, 1, 2, 2, 3, 3, 4, 4], [0, 2, 2, 1, 3, 4, 4, 3]], dtype=float).T
B = np.array([[1, 2, 3, 3, 4, 5, 6, 2, 4, 5], [2, NAN, 3, 4, NAN, 5, 5, NAN, 4, NAN]]).T


def textbook(table):
    """1 - observed over expected disagreement, from pairs of ratings one by one; None for 0/0."""
    rows = [[x for x in row if not np.isnan(x)] for row in table]
    rows = [row for row in rows if len(row) > 1]
    flat = [x for row in rows for x in row]
    levels = sorted(set(flat))
    count = {level: flat.count(level) for level in levels}

    def distance(one, two):
        low, high = min(one, two), max(one, two)
        between = sum(count[level] for level in levels if low <= level <= high)
        return 0.0 if one == two else (between - (count[one] + count[two]) / 2) ** 2

    observed = sum(sum(distance(a, b) for a in row for b in row) / (len(row) - 1) for row in rows) / max(len(flat), 1)
    expected = sum(distance(a, b) for a in flat for b in flat) / max(len(flat) * (len(flat) - 1), 1)
    return None if expected == 0 else 1 - observed / expected


@pytest.mark.parametrize(("table", "published"), [(A, 0.855324), (B, 0.906326)])
def test_worked_example(table, published):
    assert krippendorff_ordinal(table).value == pytest.approx(published, abs=5.1e-7)


@given(st.lists(st.lists(st.sampled_from([NAN, 1.0, 1.5, 2.0, 6.0]), min_size=3, max_size=3), min_size=1, max_size=12))
@settings(max_examples=20)
def test_equals_the_textbook_sums(rows):
    ours, theirs = krippendorff_ordinal(rows).value, textbook(rows)
    assert (ours is None) == (theirs is None)
    assert ours is None or ours == pytest.approx(theirs, abs=1e-9)


def test_only_the_order_of_levels_counts():
    assert krippendorff_ordinal(A**3 / 10).value == pytest.approx(krippendorff_ordinal(A).value)


@pytest.mark.parametrize(
    ("table", "note"),
    [
        (np.empty((0, 2)), "undefined: no response has two ratings"),
        ([[1, NAN], [NAN, 2]], "undefined: no response has two ratings"),
        ([[0.1, 0.1], [0.1, 0.1], [NAN, 5]], "undefined: all ratings are one"),
    ],
)
def test_undefined_with_a_reason(table, note):
    assert krippendorff_ordinal(table) == (None, note)


@pytest.mark.parametrize("table", [[1, 2], [[1, np.inf]]])
def test_bad_input_is_refused(table):
    with pytest.raises(ValueError, match="ratings must be"):
        krippendorff_ordinal(table)


@pytest.mark.parametrize("seed", range(5))
def test_equals_the_krippendorff_package(seed):
    library = pytest.importorskip("krippendorff")
    rng = np.random.default_rng(seed)
    table = np.round(rng.normal(3, 1, (80, 1)) + rng.normal(0, 0.8, (80, 4)))
    table[rng.random((80, 4)) < 0.3] = NAN
    # There a row is a rater, and the default takes levels as interval scaled.
    theirs = library.alpha(table.T, level_of_measurement="ordinal")
    assert krippendorff_ordinal(table).value == pytest.approx(theirs, abs=1e-12)
