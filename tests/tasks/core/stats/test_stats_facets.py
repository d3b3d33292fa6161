"""The many-facet model: other implementations, a plain integral, simulation, and what must not matter."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from scipy.special import logsumexp

from rubricflow.tasks.core.stats.facet_likelihood import Likelihood, linked, log_sum
from rubricflow.tasks.core.stats.facets import fair_scores, fit
from tests.builders.ratings import Rating, World, design, marked, world


def crossed(table) -> list[Rating]:
    return [Rating(f"r{i:04d}", "g", f"p{j}", float(x)) for i, row in enumerate(table) for j, x in enumerate(row)]


def published_tables():
    """600 responses: right or wrong by five raters, and 0 to 3 by four."""
    rng = np.random.default_rng(7)
    ability = rng.normal(size=600)
    right = 1 / (1 + np.exp(-2.0 * (ability[:, None] - np.array([-1, -0.4, 0, 0.4, 1.0]))))
    binary = (rng.random(right.shape) < right).astype(int)
    gap = ability[:, None, None] - np.array([-0.6, -0.1, 0.2, 0.5])[None, :, None]
    p = np.exp(2.0 * np.arange(4) * gap + np.array([0, 1.2, 1.6, 0.9]))
    p /= p.sum(-1, keepdims=True)
    return binary, (p.cumsum(-1) < rng.random(p.shape[:2])[..., None]).sum(-1)


def test_severities_are_those_of_another_marginal_likelihood():
    # girth 0.8.0, onepl_mml, raters as its items; its difficulties less their mean, and its discrimination.
    fitted = fit(design(crossed(published_tables()[0])))
    difficulty = np.array([-0.86511599, -0.29488958, 0.10908217, 0.51727528, 1.23059915])
    assert fitted.curves.slope[0] == pytest.approx(1.812928911218071, rel=0.02)
    logits = fitted.severity * fitted.curves.slope[0]
    assert logits == pytest.approx((difficulty - difficulty.mean()) * 1.812928911218071, abs=0.02)


def test_severities_are_those_of_another_estimator_of_the_rating_scale():
    # RaschPy 1.4.0, RSM: conditional on pairs, without any assumption on abilities; standard errors are 0.05.
    fitted = fit(design(crossed(published_tables()[1])))
    logits = fitted.severity * fitted.curves.slope[0] / 3
    assert logits == pytest.approx([-1.143150, -0.380578, 0.466436, 1.057292], abs=0.03)


def test_two_raters_of_right_and_wrong_have_the_conditional_odds():
    # Rasch 1960: given that just one of them says right, the odds are those of the two severities alone.
    table = [[1, 1]] * 120 + [[0, 0]] * 90 + [[1, 0]] * 70 + [[0, 1]] * 30
    fitted = fit(design(crossed(table)))
    logits = (fitted.severity[1] - fitted.severity[0]) * fitted.curves.slope[0]
    assert logits == pytest.approx(np.log(70 / 30), rel=0.06)
    # The standard error of a log odds ratio of pairs.
    assert 2 * fitted.se[0] * fitted.curves.slope[0] == pytest.approx(np.sqrt(1 / 70 + 1 / 30), rel=0.1)


@pytest.mark.parametrize("shape", [(5, 4, 21), (60, 15), (1, 1)])
@pytest.mark.parametrize("size", [0.1, 3, 300])
def test_logarithms_are_added_up_as_scipy_does(shape, size):
    logs = np.random.default_rng(0).normal(0, size, shape).round(1)
    logs[:, 1:][logs[:, 1:] > size] = -np.inf
    np.testing.assert_array_equal(log_sum(logs), logsumexp(logs, axis=1, keepdims=True))


def test_the_likelihood_is_the_plain_integral():
    ratings = [Rating("a", "g", "p", 0), Rating("a", "g", "q", 2), Rating("b", "g", "p", 1), Rating("c", "g", "q", 0)]
    model = Likelihood(design(ratings), at_random=True)
    free = np.array([-0.3, 0.3, np.log(5.0), 0.0, 0.7, 0.2])
    steps, share = np.array([0.0, 0.7, 0.2]), np.array([0, 0.5, 1])

    def chance(level, ability, severity):
        weights = np.exp(5.0 * share * (ability - severity) + steps)
        return weights[level] / weights.sum()

    def integral(of):
        density = lambda z: np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * np.prod([chance(x, z, s) for x, s in of])  # noqa: E731
        return np.log(quad(density, -9, 9)[0])

    wanted = integral([(0, -0.3), (2, 0.3)]) + integral([(1, -0.3)]) + integral([(0, 0.3)])
    parts = model.split(free)
    total, _ = model.posterior(parts, model.of_pairs(parts))
    assert model.design.weight @ total == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("at_random", [False, True])
def test_the_gradient_is_that_of_small_steps(at_random):
    ratings, _ = marked(world(0, raters=3), 1, n=30, doubles=0.6)
    ratings += [Rating(f"x{one.response}", "h", one.rater, one.score // 2) for one in ratings[:30]]
    model = Likelihood(design(ratings), at_random)
    free = model.start()
    free = free + np.random.default_rng(0).normal(size=len(free)) * 0.2
    numeric = approx_fprime(free, lambda x: model.loss(x, 0.3)[0], 1e-6)
    assert model.loss(free, 0.3)[1] == pytest.approx(numeric, abs=1e-3)


def recovered(seeds, raters=5, **more):
    """(errors in standard errors, true, estimated), severities in logits."""
    z, true, estimated = [], [], []
    for seed in seeds:
        of = world(seed, raters)
        ratings, _ = marked(of, seed + 1000, **more)
        fitted = fit(design(ratings))
        logits = np.array([of.severity[name] for name in fitted.design.raters]) * of.slope
        own = fitted.severity * fitted.curves.slope[0]
        z += ((own - logits) / (fitted.se * fitted.curves.slope[0])).tolist()
        true += logits.tolist()
        estimated += own.tolist()
    return np.array(z), np.array(true), np.array(estimated)


@pytest.mark.parametrize("more", [{}, {"sorted_out": True}, {"doubles": 0.4}], ids=["random", "sorted", "singles"])
def test_severities_put_in_are_found(more):
    z, true, estimated = recovered(range(8), n=150, **more)
    assert np.polyfit(true, estimated, 1)[0] == pytest.approx(1, abs=0.15)
    assert (np.abs(z) < 1.96).mean() >= 0.8
    assert np.abs(estimated - true).mean() < 0.4 * np.abs(true).mean()


def test_who_gets_the_weak_answers_is_not_taken_for_strict():
    # Equal raters, sorted answers: by chance assumed, the last one's good answers look like leniency.
    ratings, _ = marked(World(dict.fromkeys(["p0", "p1", "p2"], 0.0)), 5, n=400, doubles=0.3, sorted_out=True)
    coded = design(ratings)
    assert np.abs(fit(coded).severity).max() < 0.25
    assert np.ptp(fit(coded, at_random=True).severity) > 0.5


def test_few_ratings_stay_near_the_average_rater():
    ratings, _ = marked(world(3, raters=6, spread=0.1), 4, n=200)
    lone = [Rating("r0000", "g", "new", 0.0), Rating("r0001", "g", "new", 0.0)]
    fitted = fit(design([*ratings, *lone]))
    at = fitted.design.raters.index("new")
    assert abs(fitted.severity[at]) < 0.5
    assert fitted.se[at] == max(fitted.se)


RATINGS = st.dictionaries(
    st.tuples(st.integers(0, 12), st.integers(0, 3)), st.integers(0, 3), min_size=4, max_size=40
).map(lambda told: [Rating(f"r{r:02d}", "g", f"p{p}", float(x)) for (r, p), x in told.items()])


@settings(max_examples=5)
@given(RATINGS, st.randoms(use_true_random=False))
def test_order_and_names_do_not_matter(ratings, rng):
    plain = fit(design(ratings), at_random=True)
    names = {f"p{at}": name for at, name in enumerate(rng.sample("zyxw", 4))}
    other = [Rating(one.response[::-1], "other", names[one.rater], one.score) for one in ratings]
    rng.shuffle(other)
    renamed = fit(design(other), at_random=True)
    back = [renamed.design.raters.index(names[name]) for name in plain.design.raters]
    assert renamed.severity[back] == pytest.approx(plain.severity, abs=0.01)
    assert renamed.se[back] == pytest.approx(plain.se, abs=0.01)


@settings(max_examples=5)
@given(RATINGS, st.sampled_from([0.25, 1.0, 10.0]), st.sampled_from([-5.0, 0.0, 100.0]))
def test_the_unit_of_the_scores_does_not_matter(ratings, step, low):
    plain = fit(design(ratings), at_random=True)
    other = fit(design([one._replace(score=low + step * one.score) for one in ratings]), at_random=True)
    assert other.severity == pytest.approx(plain.severity, abs=1e-6)


@settings(max_examples=8)
@given(RATINGS)
def test_any_ratings_have_finite_severities_that_are_0_on_average(ratings):
    fitted = fit(design(ratings), at_random=True)
    assert np.isfinite(fitted.severity).all()
    assert (fitted.se < 3).all()
    assert fitted.severity.mean() == pytest.approx(0, abs=1e-9)


def test_raters_are_linked_by_way_of_others():
    pairs = [("r1", "a"), ("r1", "b"), ("r2", "b"), ("r2", "c"), ("r3", "d"), ("r4", "d"), ("r4", "e"), ("r5", "f")]
    coded = design([Rating(response, "g", rater, 1.0) for response, rater in pairs])
    assert linked(coded) == [("a", "b", "c"), ("d", "e"), ("f",)]


@settings(max_examples=20)
@given(RATINGS, st.sampled_from(["g", "h"]), st.randoms(use_true_random=False))
def test_the_design_is_that_of_plain_sets(ratings, other_group, rng):
    ratings = [row._replace(group=other_group) if row.response > "r06" else row for row in ratings]
    rng.shuffle(ratings)
    coded = design(ratings)
    cells = sorted({(row.group, row.rater, row.score) for row in ratings})
    sets = {
        name: tuple(sorted(cells.index((r.group, r.rater, r.score)) for r in ratings if r.response == name))
        for name in {row.response for row in ratings}
    }
    patterns = sorted(set(sets.values()))
    assert coded.responses == tuple(sorted(sets))
    assert coded.pattern.tolist() == [patterns.index(sets[name]) for name in coded.responses]
    assert coded.weight.tolist() == [list(sets.values()).count(pattern) for pattern in patterns]
    assert [tuple(row.indices.tolist()) for row in coded.ratings] == patterns
    raters = [coded.raters[coded.pair_rater[pair]] for pair in coded.cell_pair]
    groups = [coded.groups[coded.pair_group[pair]] for pair in coded.cell_pair]
    scores = [coded.values[coded.groups.index(g)][n] for g, n in zip(groups, coded.cell_level, strict=True)]
    assert list(zip(groups, raters, scores, strict=True)) == cells
    assert [coded.groups[code] for code in coded.group] == [cells[pattern[0]][0] for pattern in patterns]


# Fair scores: worked cases, and closer to the truth than the mean where raters mark different answers.


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


HALF_POINTS = st.dictionaries(
    st.tuples(st.integers(0, 9), st.integers(0, 2)), st.sampled_from([0, 0.5, 1, 3]), min_size=3, max_size=25
).map(lambda told: [Rating(f"r{r}", "gh"[r % 2], f"p{p}", float(x)) for (r, p), x in told.items()])


@settings(max_examples=8)
@given(HALF_POINTS)
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
