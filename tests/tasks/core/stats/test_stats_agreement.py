"""Worked examples and edge cases of the agreement statistics."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from rubricflow.tasks.core.stats import agreement as ag
from rubricflow.tasks.core.stats.agreement import krippendorff_ordinal

A_H1 = [0, 1, 2, 2, 3, 3, 4, 4]
A_H2 = [0, 2, 2, 1, 3, 4, 4, 3]
A_M = [1, 1, 2, 2, 2, 3, 4, 3]
A_SCALE = (0, 4)
SHROUT = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]


def degradation(first, second, machine, scale):
    ours = (ag.qwk(first, machine, *scale).value + ag.qwk(second, machine, *scale).value) / 2
    return ours - ag.qwk(first, second, *scale).value


def disattenuated(human, machine, first, second):
    return ag.pearson(human, machine).value / np.sqrt(ag.pearson(first, second).value)


WORKED = {
    "A qwk continuous": (ag.qwk_continuous(A_H1, A_M).value, 0.860465),
    "A qwk rounded": (ag.qwk(A_H1, A_M, *A_SCALE).value, 0.860465),
    "A qwk of humans": (ag.qwk(A_H1, A_H2, *A_SCALE).value, 0.855856),
    "A degradation": (degradation(A_H1, A_H2, A_M, A_SCALE), -0.041902),
    "A exact": (ag.exact_agreement(A_H1, A_M, *A_SCALE).value, 0.625),
    "A adjacent": (ag.adjacent_agreement(A_H1, A_M, *A_SCALE).value, 1),
    "A smd": (ag.smd(A_H1, A_M).value, -0.088786),
    "A smd pooled": (ag.smd_pooled(A_H1, A_M).value, -0.101163),
    "A disattenuated r": (disattenuated(A_H1, A_M, A_H1, A_H2), 0.980154),
    "A icc": (ag.icc_2_1(np.column_stack([A_H1, A_H2])).value, 0.871560),
    "fisher, equal weights": (ag.fisher_mean_kappa([0.6, 0.8], [1, 1]).value, 0.714286),
    "fisher, perfect kappa": (ag.fisher_mean_kappa([0.5, 0.7, 1], [1, 0.5, 0.5]).value, 0.894005),
    "icc of four judges": (ag.icc_2_1(SHROUT).value, 0.289764),
}


@pytest.mark.parametrize("name", WORKED)
def test_worked_example(name):
    ours, published = WORKED[name]
    assert ours == pytest.approx(published, abs=5.1e-7)


@pytest.mark.parametrize(
    ("score", "scale", "level"),
    [
        (1.5, (0, 4, 1), 2),
        (2.5, (0, 4, 1), 3),
        (0.3, (0, 1, 0.1), 3),
        (0.15, (0, 1, 0.1), 2),
        (1.24, (1, 6, 0.5), 0),
        (1.25, (1, 6, 0.5), 1),
        (2.4999, (1, 6, 1), 1),
        (-3, (-2, 2, 1), 0),
        (-1.5, (-2, 2, 1), 1),
        (9, (0, 4, 1), 4),
    ],
)
def test_levels_round_half_up_then_clip(score, scale, level):
    assert ag.to_levels([score], *scale).tolist() == [level]


@pytest.mark.parametrize("scale", [(0, 4, 0), (4, 0, 1), (0, 4, 3), (0, 0, 1), (0, 4, -1)])
def test_malformed_scale_is_refused(scale):
    with pytest.raises(ValueError, match="step"):
        ag.level_count(*scale)


def test_half_point_scale_counts_steps_not_points():
    assert ag.adjacent_agreement([1, 2], [1.5, 3], 1, 6, 0.5).value == 0.5


def test_adjacent_on_three_levels_is_flagged():
    assert ag.adjacent_agreement([0, 1], [1, 1], 0, 2) == (1.0, "says little: the scale has 3 levels only")


PAIR_FUNCTIONS = {
    "qwk": lambda h, m: ag.qwk(h, m, 0, 4),
    "qwk_continuous": ag.qwk_continuous,
    "exact": lambda h, m: ag.exact_agreement(h, m, 0, 4),
    "adjacent": lambda h, m: ag.adjacent_agreement(h, m, 0, 4),
    "mae": ag.mae,
    "rmse": ag.rmse,
    "bias": ag.bias,
    "smd": ag.smd,
    "smd_pooled": ag.smd_pooled,
    "pearson": ag.pearson,
    "spearman": ag.spearman,
    "macro_f1": lambda h, m: ag.macro_f1(h, m, 0, 4),
}
NEED_TWO = ["qwk", "qwk_continuous", "smd", "smd_pooled", "pearson", "spearman"]


@pytest.mark.parametrize("name", PAIR_FUNCTIONS)
@pytest.mark.parametrize(
    ("human", "machine"), [([1, np.nan], [1, 2]), ([1, 2], [np.inf, 2]), ([1, 2], [1]), ([[1, 2]], [[1, 2]])]
)
def test_bad_columns_are_refused(name, human, machine):
    with pytest.raises(ValueError, match="scores must be"):
        PAIR_FUNCTIONS[name](human, machine)


@pytest.mark.parametrize("name", PAIR_FUNCTIONS)
def test_no_pairs_is_undefined_with_a_reason(name):
    value, note = PAIR_FUNCTIONS[name]([], [])
    assert (value, note.split(":")[0]) == (None, "undefined")


@pytest.mark.parametrize("name", NEED_TWO)
def test_one_pair_is_undefined_with_a_reason(name):
    assert PAIR_FUNCTIONS[name]([1], [2]) == (None, "undefined: fewer than two pairs")


@pytest.mark.parametrize("name", ["qwk", "qwk_continuous"])
@pytest.mark.parametrize(
    ("human", "machine", "value", "note"),
    [
        ([0.1] * 3, [0.1] * 3, None, "undefined: both raters constant at the same score"),
        ([1.1] * 3, [2.2] * 3, 0.0, "both raters constant at different scores"),
        ([0.1] * 3, [0, 1, 2], 0.0, "one rater constant: human"),
        ([0, 1, 2], [0.7] * 3, 0.0, "one rater constant: machine"),
    ],
)
def test_qwk_of_constant_raters(name, human, machine, value, note):
    assert PAIR_FUNCTIONS[name](human, machine) == (value, note)


def test_qwk_judges_constancy_after_rounding():
    assert ag.qwk([2, 2, 2], [1.9, 2.1, 2.4], 0, 4).value is None


@pytest.mark.parametrize("name", ["pearson", "spearman"])
@pytest.mark.parametrize(
    ("human", "machine", "who"),
    [([1, 1], [1, 2], "human"), ([1, 2], [2, 2], "machine"), ([1, 1], [2, 2], "human, machine")],
)
def test_correlation_of_constant_raters(name, human, machine, who):
    assert PAIR_FUNCTIONS[name](human, machine) == (None, f"undefined: constant scores: {who}")


def test_smd_of_constant_humans_is_undefined():
    assert ag.smd([0.1] * 3, [1, 2, 3]) == (None, "undefined: human scores constant")


def test_smd_of_a_constant_machine_is_defined():
    assert ag.smd([1, 2, 3], [3, 3, 3]).value == pytest.approx(1)


def test_pooled_smd_needs_one_rater_that_varies():
    assert ag.smd_pooled([0.1] * 3, [0.3] * 3) == (None, "undefined: both raters constant")


def test_bias_is_machine_minus_human():
    assert ag.bias([1, 2], [2, 4]).value == 1.5


@pytest.mark.parametrize("table", [[[1, 2]], [[1], [2]], np.empty((0, 2))])
def test_icc_needs_two_of_each(table):
    assert ag.icc_2_1(table) == (None, "undefined: fewer than two responses or raters")


@pytest.mark.parametrize("table", [[[0.1, 0.1]] * 3, [[0.1, 0.3], [0.3, 0.1]]])
def test_icc_without_variance_to_share(table):
    assert ag.icc_2_1(table) == (None, "undefined: no variance to share")


@pytest.mark.parametrize("table", [[1, 2, 3], [[1, 2], [np.nan, 3]]])
def test_icc_refuses_an_incomplete_table(table):
    with pytest.raises(ValueError, match="complete"):
        ag.icc_2_1(table)


def test_fisher_without_weight():
    assert ag.fisher_mean_kappa([0.5], [0]) == (None, "undefined: no weight")


@pytest.mark.parametrize(("kappas", "weights"), [([1.2], [1]), ([0.5], [-1]), ([np.nan], [1]), ([0.5, 0.6], [1])])
def test_fisher_refuses(kappas, weights):
    with pytest.raises(ValueError, match=r"must (lie|be)"):
        ag.fisher_mean_kappa(kappas, weights)


# The agreement statistics against scikit-learn and scipy.


@st.composite
def level_pairs(draw):
    """Two integer columns on a scale, often with few levels in use: constants, gaps, a single level."""
    low = draw(st.integers(-2, 2))
    high = low + draw(st.integers(1, 9))
    used = draw(st.lists(st.integers(low, high), min_size=1, max_size=4, unique=True))
    either = st.sampled_from(used) | st.integers(low, high) if draw(st.booleans()) else st.sampled_from(used)
    n = draw(st.integers(2, 30))
    human = draw(st.lists(either, min_size=n, max_size=n))
    machine = draw(st.lists(either, min_size=n, max_size=n))
    return np.array(human), np.array(machine), low, high


def sklearn_kappa(human, machine, low, high):
    labels = np.arange(low, high + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return metrics.cohen_kappa_score(human, machine, weights="quadratic", labels=labels)


def plain(stat):
    return np.nan if stat.value is None else stat.value


@given(level_pairs())
@settings(max_examples=20)
def test_qwk_equals_sklearn_over_the_full_scale(case):
    assert plain(ag.qwk(*case)) == pytest.approx(sklearn_kappa(*case), abs=1e-12, nan_ok=True)


@given(level_pairs(), st.sampled_from([0.5, 0.1, 3.0]))
@settings(max_examples=20)
def test_qwk_does_not_depend_on_the_unit(case, step):
    human, machine, low, high = case
    scaled = ag.qwk(human * step, machine * step, low * step, high * step, step)
    assert plain(scaled) == pytest.approx(plain(ag.qwk(*case)), abs=1e-12, nan_ok=True)


@given(level_pairs())
@settings(max_examples=20)
def test_macro_f1_equals_sklearn_over_the_levels_in_use(case):
    human, machine, _, _ = case
    labels = np.union1d(human, machine)
    theirs = metrics.f1_score(human, machine, labels=labels, average="macro", zero_division=0)
    assert ag.macro_f1(*case).value == pytest.approx(theirs, abs=1e-12)


@given(level_pairs())
@settings(max_examples=20)
def test_confusion_equals_sklearn(case):
    human, machine, low, high = case
    theirs = metrics.confusion_matrix(human, machine, labels=np.arange(low, high + 1))
    np.testing.assert_array_equal(ag.confusion(*case), theirs)


def random_pair(seed):
    rng = np.random.default_rng(seed)
    human = rng.integers(0, 7, 60).astype(float)
    return human, human + rng.normal(0.3, 1.0, 60).round(seed % 3)


LIBRARY = {
    "mae": (ag.mae, metrics.mean_absolute_error),
    "rmse": (ag.rmse, metrics.root_mean_squared_error),
    "pearson": (ag.pearson, lambda h, m: stats.linregress(h, m).rvalue),
    "spearman": (ag.spearman, lambda h, m: np.corrcoef(stats.rankdata(h), stats.rankdata(m))[0, 1]),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LIBRARY)
def test_against_library(name, seed):
    ours, theirs = LIBRARY[name]
    pair = random_pair(seed)
    assert ours(*pair).value == pytest.approx(theirs(*pair), abs=1e-12)


# Krippendorff's alpha for ordered levels: worked examples, the textbook sums, and its edges.


NAN = np.nan


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


@given(st.lists(st.lists(st.sampled_from([NAN, 1.0, 1.5, 2.0, 6.0]), min_size=3, max_size=3), min_size=1, max_size=12))
@settings(max_examples=20)
def test_equals_the_textbook_sums(rows):
    ours, theirs = krippendorff_ordinal(rows).value, textbook(rows)
    assert (ours is None) == (theirs is None)
    assert ours is None or ours == pytest.approx(theirs, abs=1e-9)


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
