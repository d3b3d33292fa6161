"""What another reply is worth, and what two replies come to: by finite outcomes, by hand, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reward_scene import study
from rubric_graphs import edges_among, rubric, shares, weights_of

from rubricflow.tasks.rewards.reward.aggregate import PLAIN_DOUBT, averaged, weights_of_doubts
from rubricflow.tasks.rewards.reward.compiled import batch
from rubricflow.tasks.rewards.reward.exact import reward_variances

TREE = [(0, 1, 0.2), (0, 2, 0.6), (1, 3, 0.2), (0, 4, 0.0)]
WEIGHTS = [3.0, 2.0, 5.0, 4.0, -2.0]


def judged(compiled, local, variance=None, scored=None):
    """Responses of one rubric; variances are those of a yes or no where not given. All (n, k)."""
    local = np.atleast_2d(np.asarray(local, dtype=float))
    variance = local * (1 - local) if variance is None else np.atleast_2d(np.asarray(variance, dtype=float))
    known = None if scored is None else np.atleast_2d(scored).ravel()
    return batch([compiled], np.zeros(len(local), np.int32), local.ravel(), known, variance=variance.ravel())


def doubts(responses, aggregation="gear"):
    return weights_of_doubts(responses, aggregation, study())


@settings(max_examples=15)
@given(st.data())
def test_no_doubt_outweighs_the_variance_of_the_reward(data):
    weights = data.draw(weights_of(most=6))
    edges = [edge for edge in data.draw(edges_among(len(weights))) if edge[1] == edge[0] + 1]  # parents are independent
    responses = judged(rubric(weights, edges), data.draw(shares(len(weights))))
    found, whole = doubts(responses), reward_variances(responses, "gear")[0]
    assert (found >= 0).all()
    assert found.sum() <= whole * (1 + 1e-9) + 1e-12


def test_the_doubts_of_a_plain_sum_are_its_variance():
    responses = judged(rubric(WEIGHTS, TREE), [0.5, 0.2, 0.9, 1.0, 0.4])
    assert doubts(responses, "flat").sum() == pytest.approx(reward_variances(responses, "flat")[0])
    assert doubts(responses, "flat")[3] == 0


def test_what_much_hangs_on_weighs_more_and_what_hangs_on_nothing_less():
    found = doubts(judged(rubric([1.0, 1.0, 1.0], [(0, 1, 0.0), (0, 2, 0.0)]), [0.5, 0.5, 0.5]))
    slopes = np.array([1 + 0.5 + 0.5, 0.5, 0.5]) / 3
    np.testing.assert_allclose(found, slopes**2 / 4)


def test_a_verdict_without_a_probability_counts_as_one_that_was_drawn_once():
    found = doubts(judged(rubric([1.0, 1.0], []), [1.0, 0.0], [np.nan, np.nan]))
    np.testing.assert_allclose(found, PLAIN_DOUBT / 4)


def test_a_response_with_a_hole_is_not_asked_about_again():
    scored = [[True, False], [True, True]]
    assert doubts(judged(rubric([1.0, 1.0], []), np.full((2, 2), 0.5), scored=scored)).tolist()[:2] == [0, 0]


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=6))
def test_two_replies_come_to_their_mixture(pairs):
    first, second = np.array(pairs).T
    compiled = rubric([1.0] * len(pairs), [])
    both = averaged(judged(compiled, first), judged(compiled, second), np.array([0]))
    mean = (first + second) / 2
    np.testing.assert_allclose(both.local, mean)
    np.testing.assert_allclose(both.variance, mean * (1 - mean), atol=1e-12)  # of yes or no the mean says it all


def test_only_the_responses_that_were_judged_again_and_what_was_scored_twice_change():
    compiled = rubric([1.0, 1.0], [])
    first = judged(compiled, [[0.2, 0.4], [0.6, 0.8], [0.0, 1.0]])
    second = judged(compiled, [[1.0, 0.0], [0.4, 0.9]], scored=[[True, True], [True, False]])
    both = averaged(first, second, np.array([2, 1]))
    np.testing.assert_allclose(both.local, [0.2, 0.4, 0.5, 0.8, 0.5, 0.5])
    assert first.local.tolist() == [0.2, 0.4, 0.6, 0.8, 0.0, 1.0]
