"""The promised share of errors: worked examples, brute force, libraries and simulation."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, norm

from rubricflow.tasks.core.stats.promise import (
    POWER,
    effective,
    fewest_without_error,
    labels_for_promise,
    labels_for_width,
    likeness,
    missed_by_constant,
    promise,
    released_for_promise,
    squared_sizes,
    upper_bound,
)

# bounds


@pytest.mark.parametrize(("wrong", "released"), [(0, 59), (1, 100), (4, 200), (7, 20), (19, 20)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_upper_bound_equals_scipy(wrong, released, confidence):
    theirs = binomtest(wrong, released, alternative="less").proportion_ci(confidence, method="exact").high
    assert upper_bound(wrong, released, confidence) == pytest.approx(theirs, abs=1e-9)


def test_upper_bound_edges():
    assert (upper_bound(0, 0, 0.95), upper_bound(3, 3, 0.95)) == (1, 1)
    for bad in [(2, 1, 0.95), (-1, 1, 0.95), (0, 1, 1)]:
        with pytest.raises(ValueError, match="needs"):
            upper_bound(*bad)


@pytest.mark.parametrize("target", [0.01, 0.05, 0.3, 0.5])
@pytest.mark.parametrize("confidence", [0.5, 0.75, 0.9, 0.95])
def test_fewest_without_error_is_the_first_that_suffices(target, confidence):
    n = fewest_without_error(target, confidence)
    left, goal = 1 - Fraction(str(target)), 1 - Fraction(str(confidence))
    assert left**n <= goal < left ** (n - 1)


def test_fewest_refuses():
    with pytest.raises(ValueError, match="inside"):
        fewest_without_error(0, 0.95)


# rows that stand for themselves


def graded(seed, n=400):
    rng = np.random.default_rng(seed)
    risk = np.round(0.5 * rng.random(n) ** 2, 2)
    return risk, rng.random(n) < 0.7 * risk


def passes(risk, wrong, at, target, confidence):
    """Whether a test of one threshold alone passes."""
    out = risk <= at
    return binomtest(int(wrong[out].sum()), int(out.sum()), target, "less").pvalue <= 1 - confidence + 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_every_threshold_from_the_start_up_to_the_promise_passes_and_the_next_fails(seed):
    risk, wrong = graded(seed)
    made = promise(risk, wrong, 0.1, 0.9)
    steps = [at for at in np.unique(risk) if (risk <= at).sum() >= fewest_without_error(0.1, 0.9)]
    passed = [at for at in steps if passes(risk, wrong, at, 0.1, 0.9)]
    assert (made.threshold is None) or made.threshold in passed
    if made.threshold is not None:
        out = risk <= made.threshold
        assert (made.released, made.wrong, made.worth) == (out.sum(), wrong[out].sum(), out.sum())
        assert made.upper == upper_bound(made.wrong, made.released, 0.9) <= 0.1


def test_most_of_those_promises_release_something():
    made = [promise(*graded(seed), 0.1, 0.9) for seed in range(20)]
    assert sum(one.threshold is not None for one in made) >= 15


@pytest.mark.parametrize("errors", range(6))
def test_without_order_the_first_rows_with_room_for_one_more_error_decide(errors):
    """All risks alike: everything goes out where the errors of all are few enough, as the exact test has it."""
    wrong = np.arange(80) < errors
    made = promise(np.full(80, 0.02), wrong, 0.1, 0.9)
    fits = binomtest(errors, 80, 0.1, "less").pvalue <= 0.1
    assert (made.released, made.wrong) == ((80, errors) if fits else (0, 0))


def test_an_unlucky_first_row_does_not_end_it():
    # From the fewest rows up, 22, the test would fail at once; the risks say to begin where two errors are allowed.
    risk = np.linspace(0.01, 0.03, 100)
    wrong = np.arange(100) == 0
    made = promise(risk, wrong, 0.1, 0.9)
    assert (made.released, made.wrong) == (100, 1)


def test_too_few_rows_promise_nothing():
    assert promise([0.1] * 58, [False] * 58, 0.05, 0.95) == (None, 0, 0, 0.0, None)
    assert promise([], [], 0.05, 0.95) == (None, 0, 0, 0.0, None)
    assert promise(np.arange(59) / 100, [False] * 59, 0.05, 0.95).released == 59


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 150), st.sampled_from([0.05, 0.2, 0.5]), st.integers(1, 30), st.booleans())
def test_whatever_goes_out_keeps_its_bound(seed, n, target, authors, tied):
    rng = np.random.default_rng(seed)
    risk = rng.choice([0.0, 0.2, 1.0], n) if tied else rng.random(n)
    wrong, cluster = rng.random(n) < rng.random() * risk, rng.integers(0, authors, n)
    alone = promise(risk, wrong, target, 0.9)
    for made in (alone, promise(risk, wrong, target, 0.9, cluster)):
        if made.threshold is None:
            assert made == (None, 0, 0, 0.0, None)
            continue
        out = risk <= made.threshold
        assert (made.released, made.wrong) == (out.sum(), wrong[out].sum())
        assert 0 < made.worth <= made.released
        assert made.upper <= target + 1e-9
    shuffled = rng.permutation(n)
    assert promise(risk[shuffled], wrong[shuffled], target, 0.9) == alone


@pytest.mark.parametrize(("risk", "wrong", "cluster"), [([0.1], [True, False], None), ([np.nan], [True], None)])
def test_promise_refuses(risk, wrong, cluster):
    with pytest.raises(ValueError, match="must"):
        promise(risk, wrong, 0.05, 0.95, cluster)


# simulations


def realised(kind, rng, n=200):
    """(risk estimates, wrong, the true share of wrong ones at or below a threshold)."""
    place = rng.random(n)
    if kind == "calibrated":
        # P(wrong) is 0.4 u^2, so below u its mean is a third of that at u.
        return 0.4 * place**2, rng.random(n) < 0.4 * place**2, lambda at: at / 3
    if kind == "overconfident":
        return 0.05 * place**2, rng.random(n) < 0.4 * place**2, lambda at: 8 * at / 3
    if kind == "upside down":
        return 0.4 * place**2, rng.random(n) < 0.3 * (1 - place), lambda at: 0.3 - 0.15 * np.sqrt(at / 0.4)
    return place, rng.random(n) < 0.1000001, lambda at: 0.1000001


@pytest.mark.parametrize("kind", ["calibrated", "overconfident", "upside down", "useless"])
def test_a_promise_is_broken_no_more_often_than_it_says(kind):
    rng = np.random.default_rng(5)
    repetitions, broken, kept = 120, 0, 0
    for _ in range(repetitions):
        risk, wrong, truth = realised(kind, rng)
        made = promise(risk, wrong, target=0.1, confidence=0.9)
        kept += made.threshold is not None
        broken += made.threshold is not None and truth(made.threshold) > 0.1
    assert broken / repetitions <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / repetitions)
    assert kept > 0.5 * repetitions or kind in ("upside down", "useless")


def of_authors(rng, authors, answers, alike):
    """Wrong ones of answers that are wrong one time in ten and, of an author, as alike as said; and their authors."""
    cluster = np.repeat(np.arange(authors), answers)
    normal = np.sqrt(alike) * rng.normal(size=authors)[cluster] + np.sqrt(1 - alike) * rng.normal(size=len(cluster))
    return normal < norm.ppf(0.1000001), cluster


@pytest.mark.parametrize(("authors", "answers", "alike"), [(20, 5, 0.9), (30, 10, 0.5), (40, 4, 1.0)])
def test_it_holds_where_the_answers_of_an_author_are_alike(authors, answers, alike):
    """Any promise is broken where more than one answer in ten is wrong; taken as independent, too many are made."""
    rng, repetitions, broken, independent = np.random.default_rng(3), 120, 0, 0
    for _ in range(repetitions):
        wrong, cluster = of_authors(rng, authors, answers, alike)
        risk = np.zeros(len(wrong))
        broken += promise(risk, wrong, 0.1, 0.9, cluster).threshold is not None
        independent += promise(risk, wrong, 0.1, 0.9).threshold is not None
    most = 0.1 + 3 * np.sqrt(0.1 * 0.9 / repetitions)
    assert broken / repetitions <= most < independent / repetitions


def test_authors_whose_answers_are_not_alike_cost_little():
    rng = np.random.default_rng(4)
    wrong, cluster = rng.random(600) < 0.02, np.repeat(np.arange(120), 5)
    made = promise(np.zeros(600), wrong, 0.1, 0.9, cluster)
    assert made.released == 600
    assert 300 < made.worth <= 600


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=40),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
)
def test_the_best_constant_is_that_of_brute_force_and_of_the_others_no_better(marks, top, tolerance):
    human = np.minimum(np.array(marks, dtype=float), top)
    levels = np.arange(top + 1)
    fewest = min(int((np.abs(human - level) > tolerance).sum()) for level in levels)
    assert missed_by_constant(human, top, tolerance).sum() == fewest
    of_others = missed_by_constant(human, top, tolerance, of_others=True)
    for at, mark in enumerate(human):
        rest = np.delete(human, at)
        best = min(levels, key=lambda level: ((np.abs(rest - level) > tolerance).sum(), level))
        assert of_others[at] == (abs(mark - best) > tolerance)
    assert of_others.sum() >= fewest


def test_scores_no_better_than_constants_pass_in_no_more_cases_than_allowed():
    made = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        human = rng.permutation(np.repeat([0.0, 1.0, 2.0], [60, 25, 15]))
        missed = missed_by_constant(human, 2, 0)
        wrong = rng.choice([0.0, 0.0, 1.0], 100) != human
        risk, share = rng.uniform(size=100), np.full(100, missed.mean())
        made += promise(risk, wrong, 0.38, 0.6, constant=share).threshold is not None
        made += promise(risk, missed, 0.45, 0.6, constant=share, unlikely=0.025).threshold is not None
    assert made <= binom.ppf(0.998, 300, 0.025)


def test_scores_better_than_constants_pass_and_at_a_stricter_level_only_with_more_labels():
    wrong = np.arange(60) % 12 == 0
    share = np.full(60, 0.2)
    assert promise(np.zeros(60), wrong, 0.15, 0.8, constant=share, unlikely=0.025).released == 60
    assert promise(np.zeros(60), wrong, 0.15, 0.8, constant=share, unlikely=0.001).released == 0
    assert promise(np.zeros(60), wrong, 0.15, 0.8, constant=np.full(60, 0.1)).released == 0


# How alike the answers of a cluster are: brute force, worked examples and simulation.


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


# How many labels it would take.


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
