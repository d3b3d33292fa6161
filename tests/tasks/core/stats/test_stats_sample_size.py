"""How many labels it would take."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from rubricflow.tasks.core.stats.promise import (
    POWER,
    fewest_without_error,
    labels_for_promise,
    labels_for_width,
    released_for_promise,
    upper_bound,
)


class TestLabelsForWidth:
    def test_half_the_width_takes_four_times_the_labels(self):
        assert labels_for_width(0.4, 0.6, 50, 0.05) == 200
        assert labels_for_width(0.4, 0.6, 50, 0.1) == 50

    def test_is_about_what_resampled_means_need(self):
        rng = np.random.default_rng(0)
        means = rng.normal(size=(4000, 100)).mean(axis=1)
        needed = labels_for_width(*np.quantile(means, (0.025, 0.975)), 100, 0.05)
        wider = rng.normal(size=(2000, needed)).mean(axis=1)
        assert np.ptp(np.quantile(wider, (0.025, 0.975))) / 2 == pytest.approx(0.05, rel=0.06)

    def test_never_fewer_than_there_are(self):
        assert labels_for_width(0.5, 0.5, 7, 0.05) == 7


class TestReleasedForPromise:
    @given(st.sampled_from([0.05, 0.1, 0.2, 0.3]), st.sampled_from([0.8, 0.9, 0.95]))
    def test_without_errors_it_is_the_fewest_without_an_error(self, target, confidence):
        assert released_for_promise(0.0, target, confidence) == fewest_without_error(target, confidence)

    @pytest.mark.parametrize(("wrong", "target"), [(0.01, 0.05), (0.05, 0.1), (0.1, 0.2), (0.15, 0.2)])
    def test_the_promise_is_then_made_as_often_as_asked_and_with_one_less_it_is_not(self, wrong, target):
        def made(n):
            allowed = -1  # of n scores no more may be wrong than of n + 1
            while upper_bound(allowed + 1, n, 0.9) <= target + 1e-12:
                allowed += 1
            return binom.cdf(allowed, n, wrong)

        needed = released_for_promise(wrong, target, 0.9)
        assert made(needed) >= POWER
        assert all(made(n) < POWER for n in range(1, needed))

    def test_none_where_scores_are_as_wrong_as_may_be(self):
        assert released_for_promise(0.1, 0.1, 0.9) is None
        assert released_for_promise(0.0999, 0.1, 0.9) is None


class TestLabelsForPromise:
    def test_the_least_risky_part_is_taken_where_the_rest_is_wrong(self):
        risk = np.linspace(0, 1, 400)
        labels, coverage = labels_for_promise(risk, risk > 0.55, 0.1, 0.9)
        assert coverage == 0.5
        assert labels == released_for_promise(1 / 202, 0.1, 0.9) * 2

    def test_few_scores_without_an_error_prove_nothing(self):
        assert labels_for_promise([0.1] * 5, [False] * 5, 0.1, 0.9) is None

    def test_none_without_scores_or_hope(self):
        assert labels_for_promise([], [], 0.1, 0.9) is None
        assert labels_for_promise(np.linspace(0, 1, 50), np.ones(50), 0.1, 0.9) is None
