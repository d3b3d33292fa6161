"""How alike the answers of a cluster are: brute force, worked examples and simulation."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.stats.promise import effective, likeness, squared_sizes


def moment(flag, cluster):
    """Mean product of the deviations of two rows of a cluster over the variance; 0 where undefined."""
    away = np.asarray(flag, dtype=float) - np.mean(flag)
    pairs = [away[a] * away[b] for a, b in combinations(range(len(flag)), 2) if cluster[a] == cluster[b]]
    return np.mean(pairs) / np.mean(away**2) if pairs and np.mean(away**2) > 0 else 0.0


def by_hand(flag, cluster):
    names = np.unique(cluster)
    left = [moment(flag[cluster != name], cluster[cluster != name]) for name in names] if len(names) > 1 else [0.0]
    error = np.sqrt((len(names) - 1) / len(names) * np.sum((np.array(left) - np.mean(left)) ** 2))
    least = 1 / (1 + len(np.unique(cluster[flag])))
    return float(np.clip(moment(flag, cluster) + error, least, 1))


@settings(max_examples=20)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=25))
def test_it_equals_the_sum_over_all_pairs_and_the_jackknife(rows):
    flag, cluster = np.array([one for one, _ in rows]), np.array([name for _, name in rows])
    assert likeness(flag, cluster) == pytest.approx(by_hand(flag, cluster), abs=1e-9)


def test_without_a_flag_nothing_tells_so_that_a_cluster_counts_as_one():
    assert likeness(np.zeros(6, dtype=bool), [1, 1, 1, 2, 2, 2]) == 1


def test_clusters_that_are_all_or_none_are_wholly_alike():
    flag = np.repeat(np.arange(40) % 4 == 0, 5)
    assert likeness(flag, np.repeat(np.arange(40), 5)) == pytest.approx(1)


@pytest.mark.parametrize("alike", [0.0, 0.3, 0.7])
def test_it_lies_above_the_truth_and_not_far(alike):
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(60):
        share = np.full(60, 0.2) if alike == 0 else rng.beta(*(np.array([0.2, 0.8]) * (1 - alike) / alike), 60)
        flag = rng.random((60, 5)) < share[:, None]
        drawn.append(likeness(flag.ravel(), np.repeat(np.arange(60), 5)))
    assert alike < np.mean(drawn) < alike + 0.2
    assert np.mean(np.array(drawn) >= alike - 0.02) > 0.7


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=30))
def test_squared_sizes_are_those_of_every_first_part(names):
    wanted = [sum(names[:k].count(name) ** 2 for name in set(names[:k])) for k in range(1, len(names) + 1)]
    assert squared_sizes(names).tolist() == wanted


def test_rows_are_worth_their_clusters_at_worst_and_themselves_at_best():
    n, squares = np.array([60, 4]), np.array([300, 4])
    assert effective(n, squares, 0.0).tolist() == [60, 4]
    assert effective(n, squares, 1.0).tolist() == [12, 4]
    assert effective(n, squares, 0.25).tolist() == [30, 4]
