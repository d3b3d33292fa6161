"""Fair scores: worked cases, and closer to the truth than the mean where raters mark different answers."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.stats.facets import fair_scores, fit
from tests.builders.ratings import Rating, World, design, marked, world


def compared(of, seed, **more):
    """(root mean squared errors of mean and fair score, fair scores, their true values)."""
    ratings, truth = marked(of, seed, **more)
    coded = design(ratings)
    found = fair_scores(fit(coded))
    given = defaultdict(list)
    for one in ratings:
        given[one.response].append(one.score)
    true = np.array([truth[name] for name in coded.responses])
    mean = np.array([np.mean(given[name]) for name in coded.responses])
    return *(float(np.sqrt(np.mean((own - true) ** 2))) for own in (mean, found.score)), found, true


@pytest.mark.parametrize("more", [{}, {"doubles": 0.5}, {"each": 3}], ids=["two", "one or two", "three"])
@pytest.mark.parametrize("levels", [3, 5, 30])
def test_fair_scores_are_closer_to_the_truth_than_the_mean(levels, more):
    of = world(2, raters=5, spread=0.6, levels=levels, slope=8.0 if levels < 30 else 20.0)
    mean, fair, found, true = compared(of, 1, n=400, **more)
    assert fair < 0.95 * mean
    assert np.sqrt(np.mean(found.se**2)) == pytest.approx(fair, rel=0.15)
    assert (np.abs(found.score - true) <= 1.96 * found.se).mean() == pytest.approx(0.94, abs=0.04)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_where_raters_are_equal(seed):
    mean, fair, _, _ = compared(World(dict.fromkeys("abcdef", 0.0)), seed, n=150)
    assert fair < 1.05 * mean


def test_equal_raters_leave_the_mean():
    table = [(1, 3), (3, 1), (2, 2), (0, 1), (1, 0), (4, 4), (2, 4), (4, 2), (0, 0)]
    ratings = [Rating(f"r{i}", "g", f"p{j}", x) for i, row in enumerate(table) for j, x in enumerate(row)]
    found = fair_scores(fit(design(ratings)))
    assert found.score == pytest.approx([np.mean(row) for row in table], abs=1e-4)
    assert found.se.min() > 0
    assert found.ratings.tolist() == [2] * 9


def test_a_single_mark_of_a_strict_rater_counts_for_more():
    twice = [(x, x - 1) for x in (2, 3, 4, 5, 3, 4)] * 20
    ratings = [Rating(f"r{i:03d}", "g", f"p{j}", x) for i, row in enumerate(twice) for j, x in enumerate(row)]
    found = design([*ratings, Rating("s", "g", "p1", 3), Rating("t", "g", "p0", 3), Rating("u", "g", "p1", 1)])
    score = dict(zip(found.responses, fair_scores(fit(found)).score, strict=True))
    assert score["s"] == pytest.approx(3.5, abs=0.2)
    assert score["t"] == pytest.approx(2.5, abs=0.2)
    assert score["r001"] == pytest.approx(2.5, abs=0.1)  # both marked it: 3 and 2


RATINGS = st.dictionaries(
    st.tuples(st.integers(0, 9), st.integers(0, 2)), st.sampled_from([0, 0.5, 1, 3]), min_size=3, max_size=25
).map(lambda told: [Rating(f"r{r}", "gh"[r % 2], f"p{p}", float(x)) for (r, p), x in told.items()])


@settings(max_examples=8)
@given(RATINGS)
def test_fair_scores_stay_between_the_scores_given_and_their_order(ratings):
    coded = design(ratings)
    found = fair_scores(fit(coded, at_random=True))
    group = {one.response: one.group for one in ratings}
    at = {name: coded.values[coded.groups.index(group[name])] for name in coded.responses}
    for name, score, se in zip(coded.responses, found.score, found.se, strict=True):
        assert at[name].min() <= score <= at[name].max()
        assert 0 <= se < np.inf
    by_raters = defaultdict(list)
    for name, score in zip(coded.responses, found.score, strict=True):
        own = sorted((one.rater, one.score) for one in ratings if one.response == name)
        by_raters[group[name], tuple(rater for rater, _ in own)].append((sum(x for _, x in own), score))
    for rows in by_raters.values():  # the same raters: more marks, no lower a fair score
        assert [score for _, score in sorted(rows)] == pytest.approx(sorted(score for _, score in rows), abs=1e-9)
