"""True-score statistics: worked examples, the identity of the losses, closed forms and a plain loop of resamples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import f_oneway

from rubricflow.tasks.core.stats import agreement as ag
from rubricflow.tasks.core.stats import bootstrap as bs
from rubricflow.tasks.core.stats import true_score as fr
from rubricflow.tasks.core.stats import true_score as ts

NAN = np.nan
A = np.array([[0, 1, 2, 2, 3, 3, 4, 4], [0, 2, 2, 1, 3, 4, 4, 3]], dtype=float).T
A_M = [1, 1, 2, 2, 2, 3, 4, 3]
B = np.array([[1, 2, 3, 3, 4, 5, 6, 2, 4, 5], [2, NAN, 3, 4, NAN, 5, 5, NAN, 4, NAN]]).T
B_M = [1.5, 2.2, 2.8, 3.9, 3.6, 5.4, 5.1, 2.9, 4.4, 4.8]
WORKED = {
    "A": (A, A_M, [0.25, 1.714286, 0.25, 0.854167, 0.922331]),
    "B": (B, B_M, [0.25, 1.824561, -0.005625, 1.003083, 1.000400]),
}
NAMES = ["prmse", "r_true", "loss_association", "loss_spread", "loss_bias"]


def sample(seed, n=60, k=3, missing=0.4, noise=0.8):
    rng = np.random.default_rng(seed)
    true = rng.normal(3, 1, n)
    ratings = true[:, None] + rng.normal(0, noise, (n, k))
    ratings[rng.random((n, k)) < missing] = NAN
    return ratings, 0.7 * true + rng.normal(0.4, 0.5, n)


def looped(ratings, machine):
    """The published sums, response by response."""
    rows = [([x for x in row if not np.isnan(x)], m) for row, m in zip(ratings, machine, strict=True)]
    rows = [(np.array(row), m) for row, m in rows if row]
    c = [len(row) for row, _ in rows]
    total, n = sum(c), len(rows)
    spread = total - sum(x * x for x in c) / total
    error_variance = sum(((row - row.mean()) ** 2).sum() for row, _ in rows) / sum(x - 1 for x in c)
    grand = sum(row.sum() for row, _ in rows) / total
    machine_mean = sum(len(row) * m for row, m in rows) / total
    true = sum(len(row) * (row.mean() - grand) ** 2 for row, _ in rows) - (n - 1) * error_variance
    true /= spread
    mse = (sum(len(row) * (row.mean() - m) ** 2 for row, m in rows) - n * error_variance) / total
    cov = sum(len(row) * (row.mean() - grand) * (m - machine_mean) for row, m in rows) / spread
    var = sum(len(row) * (m - machine_mean) ** 2 for row, m in rows) / spread
    return [error_variance, true, mse, 1 - mse / true, cov / np.sqrt(true * var)]


def figures(found):
    return [found.error_variance, found.true_variance, found.mse, found.prmse.value, found.r_true.value]


@pytest.mark.parametrize("name", WORKED)
def test_worked_example(name):
    ratings, machine, published = WORKED[name]
    assert figures(ts.true_score(ratings, machine)) == pytest.approx(published, abs=5.1e-7)


def test_counts():
    found = ts.true_score(np.vstack([B, [[NAN, NAN]]]), [*B_M, 3])
    assert (found.n, found.doubles) == (10, 6)


@pytest.mark.parametrize("seed", range(5))
def test_equals_the_published_sums(seed):
    ratings, machine = sample(seed)
    assert figures(ts.true_score(ratings, machine)) == pytest.approx(looped(ratings, machine), rel=1e-9)


@given(st.integers(0, 10_000), st.floats(0, 0.7), st.integers(2, 4), st.floats(-50, 50))
@settings(max_examples=20)
def test_losses_add_up(seed, missing, k, shift):
    ratings, machine = sample(seed, n=40, k=k, missing=missing)
    found = ts.true_score(ratings, machine + shift)
    if found.prmse.value is not None:
        losses = found.loss_association + found.loss_spread + found.loss_bias
        assert found.prmse.value == pytest.approx(1 - losses, rel=1e-7, abs=1e-7)


def test_losses_name_what_is_wrong():
    ratings, _ = sample(0, n=400, k=2, missing=0)
    mean = ratings.mean(axis=1)
    right = ts.true_score(ratings, mean)
    shifted = ts.true_score(ratings, mean + 2)
    stretched = ts.true_score(ratings, 3 * (mean - mean.mean()) + mean.mean())
    assert shifted.loss_bias - right.loss_bias == pytest.approx(4 / right.true_variance)
    assert shifted.loss_association == pytest.approx(right.loss_association)
    assert shifted.loss_spread == pytest.approx(right.loss_spread)
    ratio = np.sqrt(mean.var(ddof=1) / right.true_variance)
    assert stretched.loss_spread == pytest.approx((3 * ratio - right.r_true.value) ** 2)


def test_squared_bias_is_unbiased():
    biases = []
    for seed in range(300):
        ratings, machine = sample(seed, n=50, k=2, missing=0.3)
        found = ts.true_score(ratings, machine)
        biases.append(found.loss_bias * found.true_variance)
    # The machine's mean is 0.7 * 3 + 0.4, half a point below the true mean.
    assert np.mean(biases) == pytest.approx(0.25, abs=3 * np.std(biases) / np.sqrt(300))


@pytest.mark.parametrize(
    ("ratings", "machine", "note"),
    [
        (A[:, :1], A_M, ts.NO_DOUBLES),
        ([[1, 2]], [1], "undefined: fewer than two rated responses"),
        (np.empty((0, 2)), [], "undefined: fewer than two rated responses"),
        ([[NAN, NAN]] * 3, [1, 2, 3], "undefined: fewer than two rated responses"),
        ([[1, 5], [5, 1], [3, 2]], [1, 2, 3], ts.NO_TRUE_VARIANCE),
        ([[0.1, 0.1]] * 7, range(7), ts.NO_TRUE_VARIANCE),
    ],
)
def test_undefined_with_a_reason(ratings, machine, note):
    found = ts.true_score(ratings, machine)
    assert (found.prmse, found.r_true) == ((None, note), (None, note))
    assert (found.loss_association, found.loss_spread, found.loss_bias) == (None, None, None)


def test_a_constant_machine_has_a_prmse_but_no_correlation():
    found = ts.true_score(A, [2] * 8)
    assert found.prmse.value == pytest.approx(looped(A, np.full(8, 2.000001))[3], abs=1e-5)
    assert found.r_true == (None, "undefined: machine scores constant")
    assert found.loss_association is None


def test_values_out_of_range_are_kept_and_noted():
    found = ts.true_score(B, B_M)
    assert [stat.note.split(":")[0] for stat in (found.prmse, found.r_true)] == ["above 1", "above 1"]
    assert ts.true_score(A, [9] * 8).prmse.note.startswith("below 0")
    assert ts.true_score(A, A_M).prmse.note is None


@pytest.mark.parametrize(
    ("ratings", "machine"),
    [
        (A, [1] * 7),
        (A, [NAN] * 8),
        ([1, 2], [1, 2]),
        ([[1, np.inf]], [1]),
    ],
)
def test_bad_input_is_refused(ratings, machine):
    with pytest.raises(ValueError, match="must"):
        ts.true_score(ratings, machine)


def test_intervals_equal_a_loop_over_resampled_rows():
    ratings, machine = sample(3)
    ratings[5] = NAN
    clusters = np.arange(60) // 3
    counts = bs.resample_counts(np.random.default_rng(7), 20, 40).astype(int)
    drawn = {name: [] for name in NAMES}
    for row in counts:
        times = row[clusters]
        found = ts.true_score(np.repeat(ratings, times, axis=0), np.repeat(machine, times))
        for name in NAMES:
            value = getattr(found, name)
            drawn[name].append(value.value if isinstance(value, ag.Stat) else value)
    intervals = ts.true_score_intervals(ratings, machine, clusters, 40, 7)
    for name in NAMES:
        assert intervals[name] == pytest.approx(bs.interval(np.array(drawn[name]), 20), rel=1e-8)


def test_draws_without_doubles_are_counted():
    ratings = np.array([[1, 2], [3, NAN], [5, NAN], [4, NAN]])
    found = ts.true_score_intervals(ratings, [1, 3, 5, 4], [1, 2, 3, 4], 500, 0)["prmse"]
    # Three draws in ten miss the one doubled response: (3/4)^4 = 0.316.
    assert found.undefined / 500 >= 0.25


def test_reliability_equals_one_way_icc_when_complete():
    ratings, _ = sample(2, n=30, k=3, missing=0)
    f = f_oneway(*ratings).statistic
    assert ts.human_reliability(ratings).value == pytest.approx((f - 1) / (f + 2), abs=1e-9)


def test_reliability_without_doubles():
    assert ts.human_reliability(A[:, :1]) == (None, ts.NO_DOUBLES)


@pytest.mark.parametrize("error", [0.5, 1, 3])
def test_ceiling_is_the_kappa_of_the_true_score(error):
    true, noise = (np.ravel(axis) for axis in np.meshgrid([0.0, 2.0], [-error, error]))
    kappa = ag.qwk_continuous(true + noise, true).value
    assert ts.ceiling(1 / (1 + error**2)).value == pytest.approx(kappa)


def test_ceiling_edges():
    assert ts.ceiling(-0.1).value is None
    assert ts.ceiling(0).value == 0
    for bad in (1.1, NAN):
        with pytest.raises(ValueError, match="reliability"):
            ts.ceiling(bad)


def noisy(seed, n=150, error=0.8, slope=0.7, shift=0.2):
    """(ratings by one or two people, a machine's scores, true scores)."""
    rng = np.random.default_rng(seed)
    true = rng.normal(3, 1, n)
    ratings = true[:, None] + rng.normal(0, error, (n, 2))
    ratings[rng.random(n) < 0.3, 1] = NAN
    return ratings, 3 + shift + slope * (true - 3) + rng.normal(0, 0.5, n), true


def test_agreement_with_the_true_score_is_that_without_peoples_error():
    ratings, machine, true = noisy(0, n=40_000)
    assert ts.true_score(ratings, machine).qwk_true == pytest.approx(ag.qwk_continuous(true, machine).value, abs=0.01)
    mean = np.nanmean(ratings, axis=1)
    assert ag.qwk_continuous(mean, machine).value < ts.true_score(ratings, machine).qwk_true - 0.05


def test_without_error_of_people_it_is_plain_kappa():
    _, machine, true = noisy(1)
    found = ts.true_score(np.column_stack([true, true]), machine)
    # Their variances divide by n - 1, those of kappa by n.
    assert found.qwk_true == pytest.approx(ag.qwk_continuous(true, machine).value, abs=0.005)


def test_its_interval_holds_the_error_of_the_target():
    _, machine, true = noisy(2, n=200_000)
    wanted = ag.qwk_continuous(true, machine).value
    held, narrow = [], []
    for seed in range(60):
        ratings, machine, _ = noisy(seed)
        rows = np.arange(len(machine))
        found = ts.true_score_intervals(ratings, machine, rows, 300, seed)["qwk_true"]
        held.append(found.low <= wanted <= found.high)
        plain = bs.bootstrap(np.nanmean(ratings, axis=1), machine, rows, (-3, 9, 0.001), 300, seed)["qwk_continuous"]
        narrow.append(plain.low <= wanted <= plain.high)
    assert np.mean(held) >= 0.88
    assert np.mean(narrow) < 0.75


def test_no_true_variance_leaves_it_unknown():
    assert ts.true_score([[1, 2], [2, 1]], [1, 2]).qwk_true is None


# Group differences: worked examples, statsmodels, a loop over resamples, and what noise alone shows.


def grouped_sample(seed, n=120, groups="abcd"):
    rng = np.random.default_rng(seed)
    human = rng.integers(1, 6, n).astype(float)
    member = np.array(list(groups))[rng.integers(0, len(groups), n)]
    return human, human + 0.3 * (member == "b") + rng.normal(0, 0.8, n), member


@pytest.mark.parametrize("seed", range(3))
def test_overall_differences_equal_statsmodels(seed):
    formula = pytest.importorskip("statsmodels.formula.api")
    pandas = pytest.importorskip("pandas")
    human, machine, member = grouped_sample(seed)
    error = machine - human
    table = pandas.DataFrame({"h": human, "e": error, "square": error**2, "g": member})
    fits = {
        name: formula.ols(text, table).fit()
        for name, text in {"osa": "square ~ g", "osd": "e ~ g", "full": "e ~ C(h) + g", "h": "e ~ C(h)"}.items()
    }
    found = fr.overall_differences(human, machine, member)
    assert found.osa.value == pytest.approx(fits["osa"].rsquared_adj)
    assert found.osd.value == pytest.approx(fits["osd"].rsquared_adj)
    assert found.csd.value == pytest.approx(fits["full"].rsquared_adj - fits["h"].rsquared_adj)
    assert found.csd_coefficients == {group: pytest.approx(fits["full"].params[f"g[T.{group}]"]) for group in "bcd"}


def test_human_scores_that_tell_the_group_leave_no_coefficients():
    found = fr.overall_differences([1, 1, 1, 2, 2, 2], [1, 2, 1.5, 2, 2.5, 2], list("aaabbb"))
    assert found.csd_coefficients == {}
    assert found.csd.value == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("human", "machine", "groups", "note"),
    [
        ([], [], [], "undefined: fewer than two groups"),
        ([1, 2, 3], [1, 3, 2], "aaa", "undefined: fewer than two groups"),
        ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6], "aba", "undefined: the errors do not vary"),
        ([1, 2], [2, 4], "ab", "undefined: no more rows than coefficients"),
    ],
)
def test_a_difference_is_undefined_with_a_reason(human, machine, groups, note):
    assert fr.overall_differences(human, machine, list(groups)).osd == (None, note)


def test_more_human_scores_than_rows_can_bear_leave_only_csd_undefined():
    found = fr.overall_differences([1, 2, 3, 4], [1, 3, 3, 5], list("abab"))
    assert (found.osd.note, found.csd.note) == (None, "undefined: no more rows than coefficients")


def test_dsm_equals_the_definition():
    human, machine, member = grouped_sample(1)
    z = [(scores - scores.mean()) / scores.std(ddof=1) for scores in (machine, human)]
    for group, stat in fr.dsm(human, machine, member).items():
        assert stat.value == pytest.approx((z[0] - z[1])[member == group].mean())


@pytest.mark.parametrize(
    ("human", "machine", "note"),
    [
        ([1], [2], "undefined: fewer than two pairs"),
        ([0.1] * 3, [1, 2, 3], "undefined: constant scores: human"),
        ([0.1] * 3, [0.3] * 3, "undefined: constant scores: human, machine"),
    ],
)
def test_dsm_undefined_with_a_reason(human, machine, note):
    assert fr.dsm(human, machine, ["a"] * len(human)) == {"a": (None, note)}


def test_groups_of_another_length_are_refused():
    with pytest.raises(ValueError, match="groups must have shape"):
        fr.dsm([1, 2], [1, 2], ["a"])


def test_intervals_of_differences_equal_a_loop_over_resampled_rows():
    human, machine, member = grouped_sample(2, n=60)
    member[:3] = "e"
    clusters = np.arange(60) // 3
    counts = bs.resample_counts(np.random.default_rng(11), 20, 60).astype(int)
    drawn = {group: [] for group in "abcde"}
    for row in counts:
        times = row[clusters]
        found = fr.dsm(*(np.repeat(column, times) for column in (human, machine, member)))
        for group in drawn:
            drawn[group].append(found[group].value if group in found else np.nan)
    intervals = fr.dsm_intervals(human, machine, member, clusters, 60, 11)
    # The only author of group e is missing from a third of the draws, and tells nothing of others.
    assert drawn.keys() == intervals.keys()
    assert intervals["e"] == (None, None, np.isnan(drawn.pop("e")).sum(), 1)
    assert intervals["e"].undefined > 10
    for group, values in drawn.items():
        held = len(np.unique(clusters[member == group]))
        assert intervals[group] == pytest.approx(bs.interval(np.array(values), held), rel=1e-9)


def test_draws_of_one_score_are_undefined():
    human, machine = np.array([0.1] * 3 + [0.4, 0.8, 0.5]), np.array([0.2, 0.4, 0.3, 0.2, 0.4, 0.7])
    found = fr.dsm_intervals(human, machine, list("abaaba"), [1, 1, 1, 2, 2, 2], 400, 0)
    # Twice the author whose human scores are all one: a quarter of the draws.
    assert found["a"].undefined == pytest.approx(100, abs=3 * np.sqrt(75))


@pytest.mark.parametrize("gap", [0.0, 0.6])
def test_a_fair_machine_shows_the_noise_line(gap):
    rng = np.random.default_rng(0)
    member = rng.integers(0, 2, 200_000)
    true = rng.normal(0, 1, 200_000) + gap * member
    human = np.round(true + rng.normal(0, 0.7, 200_000), 1)
    found = fr.overall_differences(human, true, member.astype(str)).csd_coefficients["1"]
    assert found == pytest.approx(fr.noise_line(1 / 1.49, gap), abs=0.01)
