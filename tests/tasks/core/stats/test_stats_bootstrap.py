"""The cluster bootstrap against a plain loop over resampled rows, and its contract."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import norm, t

from rubricflow.tasks.core.stats import agreement as ag
from rubricflow.tasks.core.stats import bootstrap as bs
from rubricflow.tasks.core.stats.bootstrap import within_items

HALVES = (1.0, 6.0, 0.5)
NAMES = [
    "qwk",
    "qwk_continuous",
    "exact",
    "within_1",
    "within_2",
    "mae",
    "rmse",
    "bias",
    "smd",
    "pearson",
    "icc",
    "macro_f1",
]


def direct(human, machine, scale):
    """Every bootstrapped statistic by its function in agreement."""
    found = {
        "qwk": ag.qwk(human, machine, *scale),
        "qwk_continuous": ag.qwk_continuous(human, machine),
        "exact": ag.exact_agreement(human, machine, *scale),
        "within_1": ag.adjacent_agreement(human, machine, *scale, within=1),
        "within_2": ag.adjacent_agreement(human, machine, *scale, within=2),
        "mae": ag.mae(human, machine),
        "rmse": ag.rmse(human, machine),
        "bias": ag.bias(human, machine),
        "smd": ag.smd(human, machine),
        "pearson": ag.pearson(human, machine),
        "icc": ag.icc_2_1(np.column_stack([human, machine])),
        "macro_f1": ag.macro_f1(human, machine, *scale),
    }
    return {name: np.nan if stat.value is None else stat.value for name, stat in found.items()}


def loop(human, machine, clusters, scale, counts):
    """The same, draw by draw on rows repeated as often as their cluster was drawn."""
    names = np.unique(clusters)
    found = []
    for row in counts:
        times = row.astype(int)[np.searchsorted(names, clusters)]
        found.append(direct(np.repeat(human, times), np.repeat(machine, times), scale))
    return {name: np.array([one[name] for one in found]) for name in NAMES}


def typical():
    rng = np.random.default_rng(1)
    clusters = rng.integers(0, 25, 120)
    human = np.clip(np.round(2 * rng.normal(3.5, 1.2, 120)) / 2, 1, 6)
    return human, human + rng.normal(0.2, 0.7, 120), clusters, HALVES


def flat_clusters():
    """Few clusters, some flat and at scores without a finite binary form, so that many draws are degenerate."""
    human = np.array([0.1, 0.1, 0.1, 0.1, 0.3, 0.7])
    machine = np.array([0.1, 0.1, 0.3, 0.3, 0.1, 0.7])
    return human, machine, np.array(["a", "a", "b", "b", "c", "d"]), (0.0, 1.0, 0.1)


def crosswise():
    """Two raters who swap two scores: the variance that ICC divides by cancels."""
    return np.array([0.1, 0.7]), np.array([0.7, 0.1]), np.array([1, 2]), (0.0, 1.0, 0.1)


def far_from_zero():
    human, machine, clusters, _ = typical()
    return human + 2**17, machine + 2**17, clusters, (2**17 + 1.0, 2**17 + 6.0, 0.5)


CASES = {"typical": typical, "flat clusters": flat_clusters, "crosswise": crosswise, "far from zero": far_from_zero}


@pytest.fixture(scope="module", params=CASES)
def compared(request):
    human, machine, clusters, scale = CASES[request.param]()
    sums = bs.cluster_sums(bs.pair_terms(human, machine, scale), clusters)
    counts = bs.resample_counts(np.random.default_rng(2), len(sums), 200)
    return bs.statistics_of_totals(counts @ sums), loop(human, machine, clusters, scale, counts)


@pytest.mark.parametrize("name", NAMES)
def test_every_draw_equals_the_plain_loop(compared, name):
    ours, theirs = compared
    np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("size", [0, 1])
def test_totals_of_a_tiny_sample_are_undefined_where_the_statistic_is(size):
    totals = bs.pair_terms([1.0] * size, [2.0] * size, HALVES).sum(axis=0, keepdims=True)
    undefined = {name for name, value in bs.statistics_of_totals(totals).items() if np.isnan(value[0])}
    assert undefined == (set(NAMES) if size == 0 else {"qwk", "qwk_continuous", "smd", "pearson", "icc"})


def test_intervals_are_percentiles_of_the_defined_draws():
    human, machine, clusters, scale = flat_clusters()
    sums = bs.cluster_sums(bs.pair_terms(human, machine, scale), clusters)
    drawn = bs.statistics_of_totals(bs.resample_counts(np.random.default_rng(7), 4, 300) @ sums)["icc"]
    ours = bs.bootstrap(human, machine, clusters, scale, draws=300, seed=7)["icc"]
    assert ours == pytest.approx((*np.nanquantile(drawn, tails(4)), np.isnan(drawn).sum(), 4))


def tails(clusters, level=0.95):
    """The expanded percentiles, by integrals of the normal density."""
    ends = t.interval(level, clusters - 1)
    return [quad(norm.pdf, -np.inf, end * np.sqrt(clusters / (clusters - 1)))[0] for end in ends]


@pytest.mark.parametrize(("clusters", "wider"), [(10, 1.22), (20, 1.096), (100, 1.017), (2000, 1.001)])
def test_intervals_of_normal_draws_are_as_wide_as_those_of_student(clusters, wider):
    spread = np.sqrt((clusters - 1) / clusters)
    found = bs.interval(norm.ppf((np.arange(100_000) + 0.5) / 100_000) * spread, clusters)
    assert found[:2] == pytest.approx(t.interval(0.95, clusters - 1), rel=1e-3)
    assert found.high / (1.96 * spread) == pytest.approx(wider, rel=0.005)


def clustered(rng, clusters):
    """Scores of a machine and a human that share a part within each author; authors with unlike many responses."""
    author = np.repeat(np.arange(clusters), rng.integers(4, 13, clusters))
    human = 2.5 + rng.normal(0, 0.8, clusters)[author] + rng.normal(0, 0.8, len(author))
    machine = human + rng.normal(0, 0.4, clusters)[author] + rng.normal(0.1, 0.7, len(author))
    return (*(np.clip(np.rint(scores), 0, 5) for scores in (human, machine)), author)


@pytest.mark.parametrize(("clusters", "least"), [(10, 0.915), (20, 0.92)])
def test_intervals_of_few_authors_hold_the_true_figure_nearly_as_often_as_they_say(clusters, least):
    scale, names = (0.0, 5.0, 1.0), ("exact", "mae", "bias")
    human, machine, author = clustered(np.random.default_rng(0), 20_000)
    whole = bs.pair_sums(human, machine, np.zeros(len(author), dtype=int), 1, scale)
    true = {name: value[0] for name, value in bs.statistics_of_totals(whole).items()}
    held = []
    for seed in range(400):
        found = bs.bootstrap(*clustered(np.random.default_rng([clusters, seed]), clusters), scale, 200, seed)
        held.append([found[name].low <= true[name] <= found[name].high for name in names])
    # A standard error of 0.018 for each, of 0.013 or so for their mean; plain percentiles hold 0.89 of 10 authors.
    assert np.mean(held) >= least


def test_intervals_of_few_are_marked_and_said_once():
    assert [bs.is_few(count) for count in (None, np.nan, 2, 19, 20, 300)] == [False, False, True, True, False, False]
    (said,) = bs.cautions([None, 40, 12, 7, np.nan])
    assert "fewer than 20" in said
    assert "(here 7 at the least)" in said
    assert list(bs.cautions([None, 20, 300])) == []


def test_correlation_never_passes_one():
    human, _, clusters, scale = typical()
    assert bs.bootstrap(human, 0.7 * human + 0.3, clusters, scale, draws=50)["pearson"].high == 1.0


def test_macro_f1_is_left_out_on_a_long_scale():
    human, machine, clusters, scale = typical()
    assert list(bs.bootstrap(human, machine, clusters, scale, draws=5)) == NAMES
    assert list(bs.bootstrap(human, machine, clusters, (0, 15, 1), draws=5)) == NAMES[:-1]


def test_the_seed_decides_the_draws():
    once, again, other = (bs.bootstrap(*typical(), draws=50, seed=seed) for seed in (3, 3, 4))
    assert once == again != other


def test_chunks_do_not_change_the_draws(monkeypatch):
    whole = bs.bootstrap(*typical(), draws=50)
    monkeypatch.setattr(bs, "CHUNK_BYTES", 7 * 25 * bs.CELL_BYTES)
    chunked = bs.bootstrap(*typical(), draws=50)
    assert [tuple(one) for one in chunked.values()] == [pytest.approx(tuple(one)) for one in whole.values()]


def test_counts_are_multinomial():
    counts = bs.resample_counts(np.random.default_rng(0), 6, 20_000)
    assert (counts.sum(axis=1) == 6).all()
    np.testing.assert_allclose(counts.mean(axis=0), 1, atol=0.03)
    np.testing.assert_allclose(counts.var(axis=0), 5 / 6, atol=0.04)


@pytest.mark.parametrize("size", [0, 3])
def test_fewer_than_two_clusters_leave_no_interval(size):
    ours = bs.bootstrap([1, 2, 3][:size], [1, 2, 4][:size], ["a"] * size, HALVES, draws=10)
    assert set(ours.values()) == {bs.Interval(None, None, 10, 1 if size else 0)}


@pytest.mark.parametrize("clusters", [["a", None], [1.0, np.nan], ["a"], [["a", "b"]]])
def test_bad_clusters_are_refused(clusters):
    with pytest.raises(ValueError, match="cluster"):
        bs.bootstrap([1, 2], [1, 2], clusters, HALVES)


def test_no_draws_are_refused():
    with pytest.raises(ValueError, match="draws"):
        bs.bootstrap([1, 2], [1, 2], [1, 2], HALVES, draws=0)


def two_machines():
    human, machine, clusters, scale = typical()
    return human, machine, human + np.random.default_rng(5).normal(0, 0.5, len(human)), clusters, scale


@pytest.fixture(scope="module")
def paired():
    human, a, b, clusters, scale = two_machines()
    counts = bs.resample_counts(np.random.default_rng(6), len(np.unique(clusters)), 100)
    drawn = [loop(human, machine, clusters, scale, counts) for machine in (a, b)]
    return bs.paired_bootstrap(human, a, b, clusters, scale, draws=100, seed=6), drawn


@pytest.mark.parametrize("name", NAMES)
def test_paired_estimate_is_the_difference_of_the_plain_functions(paired, name):
    human, a, b, _, scale = two_machines()
    expected = direct(human, b, scale)[name] - direct(human, a, scale)[name]
    assert paired[0][name].estimate == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_paired_interval_and_p_come_from_shared_draws(paired, name):
    ours, (drawn_a, drawn_b) = paired
    gap = drawn_b[name] - drawn_a[name]
    tail = min((gap <= 1e-12).sum(), (gap >= -1e-12).sum())
    clusters = ours[name].clusters
    # The level at which an interval would end at zero.
    p = brentq(lambda p: tails(clusters, 1 - p)[0] - min(0.5, (tail + 1) / 101), 1e-9, 1)
    assert ours[name][1:] == pytest.approx((*np.quantile(gap, tails(clusters)), p, 0, clusters), abs=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_a_machine_does_not_differ_from_itself(name):
    human, machine, clusters, scale = typical()
    ours = bs.paired_bootstrap(human, machine, machine, clusters, scale, draws=50)[name]
    assert ours == bs.Difference(0.0, 0.0, 0.0, 1.0, 0, len(np.unique(clusters)))


def test_equal_error_summed_in_another_order_is_a_tie():
    error = np.random.default_rng(8).normal(0, 0.3, (20, 5))
    a, b = error.ravel(), error[:, ::-1].ravel()
    ours = bs.paired_bootstrap(np.zeros(100), a, b, np.repeat(np.arange(20), 5), (-2, 2, 1), draws=50)["mae"]
    assert ours == bs.Difference(0.0, 0.0, 0.0, 1.0, 0, 20)


def test_p_is_never_zero():
    human, machine, clusters, scale = typical()
    found = bs.paired_bootstrap(human, machine, machine + 3, clusters, scale, draws=99)["bias"]
    assert 0.02 < found.p < 0.05
    many = bs.paired_bootstrap(human, machine, machine + 3, np.arange(len(human)), scale, draws=99)["bias"]
    assert many.p == pytest.approx(0.02, abs=0.003)


def test_paired_with_one_cluster_keeps_the_estimate():
    ours = bs.paired_bootstrap([1, 2, 3], [1, 2, 4], [2, 2, 4], ["a"] * 3, HALVES, draws=10)["mae"]
    assert ours == (pytest.approx(1 / 3), None, None, None, 10, 1)


def test_paired_with_an_undefined_statistic():
    ours = bs.paired_bootstrap([2, 2, 2], [2, 2, 2], [2, 3, 2], [1, 2, 3], HALVES, draws=10)["qwk"]
    assert ours == bs.Difference(None, None, None, None, 10, 3)


def test_many_clusters_merged_into_groups_keep_the_standard_error():
    rng = np.random.default_rng(5)
    human = rng.integers(0, 5, 30_000).astype(float)
    machine = np.clip(human + rng.integers(-1, 2, 30_000), 0, 4)
    codes, size = bs.cluster_codes(np.arange(30_000))
    assert size == bs.MOST_CLUSTERS
    assert set(np.bincount(codes)) == {30_000 // bs.MOST_CLUSTERS}
    found = bs.bootstrap(human, machine, np.arange(30_000), (0, 4, 1), draws=4_000)["bias"]
    standard_error = (machine - human).std(ddof=1) / np.sqrt(30_000)
    assert (found.high - found.low) / (2 * 1.96) == pytest.approx(standard_error, rel=0.06)


# Agreement inside items, against pandas; an item's mean alone is worth nothing.


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
