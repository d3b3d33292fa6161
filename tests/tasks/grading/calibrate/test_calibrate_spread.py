"""The predictive distribution of a human score, and what is promised and released by it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labels_scene import SCALE, labelled_rows, rules_of
from scipy.stats import binom
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.stats.agreement import to_levels
from rubricflow.tasks.core.stats.probability import interval
from rubricflow.tasks.grading.calibrate.fit import outcome
from rubricflow.tasks.grading.calibrate.methods import apply_to_labels, cross_fit, folds
from rubricflow.tasks.grading.calibrate.release import ReleaseRule, Scope, reasons, seen_levels
from rubricflow.tasks.grading.calibrate.rows import RiskRows
from rubricflow.tasks.grading.calibrate.spread import (
    Placed,
    error_risk,
    fit_sigma,
    level_probabilities,
    risks,
    sigmas,
    thinned,
)


def judged(seed, n=300, item=None, items=("q",), weak=None):
    """A judge whose errors grow with the signal 'uncertainty'; pooled shares where there are several items."""
    rng = np.random.default_rng(seed)
    truth, unsure = rng.uniform(0, 5, n), rng.uniform(0.2, 1, n)
    human = np.clip(np.round(truth), 0, 5)
    raw = np.clip(truth + rng.normal(0, 1, n) * unsure, 0, 5)
    high = 5.0 if len(items) == 1 else 1.0
    columns = {"names": ("score", "uncertainty"), "matrix": np.column_stack([raw * high / 5, unsure]), "items": items}
    columns |= {name: column for name, column in (("item", item), ("weak", weak)) if column is not None}
    columns["cluster"] = np.array([f"response {seed} {k}" for k in range(n)])
    return labelled_rows(raw * high / 5, human * high / 5, **columns)


def released_from(labels, release):
    """Mapping, spread and rules of labels, by the line."""
    fold = folds(labels.cluster)
    tried = cross_fit("linear", labels, fold, 2.5)
    spread, found, _ = outcome(labels, tried, fold, release)
    return tried.mapping, spread, found, rules_of(Scope(labels, found), release)


def applied(labels, mapping, spread):
    """Aligned score, sigma, level and risk of new rows of one item, in steps."""
    aligned = apply_to_labels(mapping, labels).aligned
    sigma = sigmas(spread.sigma, aligned, labels.matrix[:, 1:])
    level = to_levels(aligned, *SCALE.bounds).astype(float)
    told = risks(aligned, sigma, level, 5, np.array(spread.epsilon), 1.0, spread.grain)
    placed = Placed(aligned, level, np.full(len(level), 5.0), told)
    return aligned, sigma, level, error_risk(spread.errors, placed, labels.matrix, 0.0)


# the distribution


@st.composite
def predicted(draw):
    """Aligned scores, sigmas, top level, epsilons, all in steps."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    top = draw(st.integers(1, 12))
    n, m = draw(st.integers(1, 6)), draw(st.integers(1, 30))
    return rng.uniform(0, top, n), rng.uniform(1e-6, 3, n), top, np.sort(rng.normal(0, 2, m))


@settings(max_examples=50)
@given(predicted())
def test_level_probabilities_count_the_epsilons_that_round_to_each_level(drawn):
    aligned, sigma, top, epsilon = drawn
    found = level_probabilities(aligned, sigma, top, epsilon)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    for row in range(len(aligned)):
        levels = to_levels(aligned[row] + sigma[row] * epsilon, 0, top, 1)
        expected = np.bincount(levels, minlength=top + 1) / len(epsilon)
        np.testing.assert_allclose(found[row], expected, atol=1e-12)


@settings(max_examples=50)
@given(predicted(), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.sampled_from([1.0, 0.5, 1 / 3]))
def test_risk_counts_the_human_scores_beyond_the_tolerance(drawn, tolerance, grain):
    aligned, sigma, top, epsilon = drawn
    level = to_levels(aligned, 0, top, 1).astype(float)
    found = risks(aligned, sigma, level, top, epsilon, tolerance, grain)
    for row in range(len(aligned)):
        human = np.clip(np.round((aligned[row] + sigma[row] * epsilon) / grain) * grain, 0, top)
        assert found[row] == pytest.approx(np.mean(np.abs(human - level[row]) > tolerance + 1e-9))


def test_continuous_human_scores_are_not_rounded():
    two, epsilon = np.array([2.0]), np.array([-1.1, 0.0, 0.9, 1.1])
    assert risks(two, np.ones(1), two, 5, epsilon, 1.0, 0.0) == 0.5
    assert risks(two, np.ones(1), two, 5, epsilon, 1.0, 1.0) == 0


def test_sigma_is_a_ridge_regression_of_absolute_residuals():
    rng = np.random.default_rng(0)
    aligned, signal = rng.uniform(0, 5, 80), rng.random((80, 1))
    residual = rng.normal(0, 1, 80) * (0.5 + signal[:, 0])
    signal = np.column_stack([signal, np.full(80, 7.0)])
    terms, size = np.column_stack([aligned, aligned**2, signal]), np.abs(residual)
    expected = make_pipeline(StandardScaler(), Ridge(alpha=10)).fit(terms, size).predict(terms)
    model = fit_sigma(residual, aligned, signal, 5.0)
    np.testing.assert_allclose(sigmas(model, aligned, signal), np.clip(expected, size.mean() / 4, size.mean() * 4))
    far = sigmas(model, np.array([1e6, -1e6, 2.0]), np.array([[0.0, 7], [0.0, 7], [1e6, 7]]))
    assert ((far >= size.mean() / 4 - 1e-12) & (far <= size.mean() * 4 + 1e-12)).all()


def test_a_perfect_judge_has_the_smallest_sigma():
    model = fit_sigma(np.zeros(20), np.arange(20.0), np.empty((20, 0)), 19.0)
    assert sigmas(model, np.array([3.0]), np.empty((1, 0))) == pytest.approx(19e-6)


def test_stored_epsilons_keep_the_distribution():
    epsilon = np.random.default_rng(1).normal(size=7_001)
    kept = thinned(epsilon)
    assert len(kept) == 500
    assert set(kept) <= set(epsilon)
    np.testing.assert_allclose(np.quantile(kept, [0.1, 0.5, 0.9]), np.quantile(epsilon, [0.1, 0.5, 0.9]), atol=0.01)
    assert thinned(epsilon[:400]).tolist() == sorted(epsilon[:400])


# simulations


def test_intervals_hold_the_share_of_human_scores_asked_for():
    covered = []
    for seed in range(8):
        mapping, spread, _, _ = released_from(judged(seed), Release(coverage=0.9))
        new = judged(1_000 + seed, 2_000)
        aligned, sigma, _, _ = applied(new, mapping, spread)
        low, high = interval(aligned, spread.reach * sigma, SCALE.bounds, spread.grain)
        covered.append(np.mean((low <= new.human) & (new.human <= high)))
    # One calibration set of 300 leaves a standard error of 0.017 of the coverage, eight of them 0.006.
    assert np.mean(covered) == pytest.approx(0.9, abs=0.02)


def test_risks_come_true_and_those_of_labels_are_as_large():
    told, true, labels = [], [], []
    for seed in range(10):
        mapping, spread, found, _ = released_from(judged(seed), Release())
        new = judged(2_000 + seed, 2_000)
        _, _, level, risk = applied(new, mapping, spread)
        labels.append(found.risk.mean())
        told.append(risk)
        true.append(np.abs(new.human - level) > 1)
    told, true = np.concatenate(told), np.concatenate(true)
    assert told.mean() == pytest.approx(true.mean(), abs=0.008)
    for fifth in np.array_split(np.argsort(told, kind="stable"), 5):
        assert told[fifth].mean() == pytest.approx(true[fifth].mean(), abs=0.03)
    assert told.max() > 0.1
    assert np.mean(labels) == pytest.approx(told.mean(), abs=0.01)


def test_the_promise_holds_on_new_responses():
    release, broken, shares = Release(by="set"), 0, []
    for seed in range(15):
        mapping, spread, _, rules = released_from(judged(seed, 400), release)
        if rules.new is None:
            shares.append(0.0)
            continue
        new = judged(5_000 + seed, 4_000)
        _, _, level, risk = applied(new, mapping, spread)
        out = risk <= rules.new
        shares.append(out.mean())
        broken += np.mean(np.abs(new.human - level)[out] > 1) > release.risk
    assert np.mean(shares) > 0.3
    assert broken <= binom.ppf(0.998, 15, 1 - release.confidence)


# rules and routes


def test_nothing_is_promised_on_a_dozen_labels_and_the_note_says_how_many_it_takes():
    rules = released_from(judged(1, 12), Release())[3]
    assert rules.promises[0].threshold is None
    note = "too few marked answers to promise anything: 45 needed, 12 here, of which 3 go to a person in any case"
    assert rules.promises[0].note == note
    harsh = released_from(judged(1, 300), Release(tolerance=0))[3].promises[0]
    assert harsh.threshold is None
    assert harsh.note.endswith("marked answers do not show, even for the surest scores, that at most 5% are wrong")


def test_labels_of_few_authors_count_for_less_and_the_note_names_the_authors():
    labels = judged(4)
    few = replace(labels, cluster=np.array([f"author {k % 8}" for k in range(300)]))
    alone, shared = (released_from(one, Release(risk=0.15))[3].promises[0] for one in (labels, few))
    assert alone.worth == alone.released
    assert shared.threshold is None or shared.worth < shared.released
    wrong_by_author = replace(few, human=np.where(np.arange(300) % 8 < 2, 5 - few.human, few.human))
    none = released_from(wrong_by_author, Release(risk=0.15))[3].promises[0]
    assert none.threshold is None
    assert none.note.startswith(f"the {none.n} marked answers of 8 authors do not show")


def test_every_item_has_its_own_promise_or_the_set_has_one():
    item = np.repeat([0, 1], [286, 14])
    labels = judged(2, 300, item, ("large", "small", "none"))
    rules = released_from(labels, Release(risk=0.15))[3]
    found = {one.scope: one for one in rules.promises}
    assert {name: one.threshold is not None for name, one in found.items()} == {
        "large": True,
        "small": False,
        "none": False,
    }
    assert found["none"].n == 0
    assert found["none"].note is not None
    assert rules.items["large"].threshold == found["large"].threshold
    assert rules.new is None
    rules = released_from(labels, Release(risk=0.15, by="set"))[3]
    assert [one.scope for one in rules.promises] == ["all"]
    assert {rule.threshold for rule in rules.items.values()} == {rules.new}
    assert rules.new is not None


def test_an_item_without_labels_counts_levels_seen_on_its_scale():
    labels = judged(3, 40, np.zeros(40, dtype=np.int64), ("seen", "same", "other"))
    labels = replace(labels, human=np.repeat([0.2, 0.6], 20), scales=(SCALE, SCALE, Scale(min=0, max=9)))
    assert seen_levels(labels) == {"seen": (1.0, 3.0), "same": (1.0, 3.0), "other": ()}


def test_the_first_reason_that_applies_is_given():
    rule = ReleaseRule(scale=(0, 5, 1), levels=(1, 2), threshold=0.1)
    nan = np.nan
    score = np.array([nan, 1, 1, 1, 1, 4, 1, 1, 2])
    prechecked = np.array([0, 1, 0, 0, 0, 0, 0, 0, 0], dtype=bool)
    weak = np.array([1, 1, 1, 0, 0, 0, 0, 0, 0], dtype=bool)
    risk = np.array([nan, nan, nan, nan, 0.5, 0.5, 0.2, 0.1, 0.0])
    clipped = np.array([0, 0, 0, 0, 1, 0, 0, 0, 0], dtype=bool)
    first = ["unscored", "precheck", "weak_evidence", "uncalibrated", "out_of_range", "level_unseen"]
    assert reasons(score, prechecked, weak, clipped, risk, rule).to_pylist() == [*first, "risk", None, None]
    nothing = rule.model_copy(update={"threshold": None})
    assert reasons(score, prechecked, weak, clipped, risk, nothing).to_pylist() == [*first, *["no_promise"] * 3]


def test_what_weak_evidence_sends_to_a_person_does_not_vouch_for_the_rest():
    weak = np.arange(300) % 3 == 0
    every, some = (released_from(judged(4, weak=of), Release(risk=0.15))[3].promises[0] for of in (None, weak))
    labels = judged(4)
    kept = released_from(labels, Release(risk=0.15))
    assert some.n < every.n
    clipped = kept[2].clipped
    levels = np.isin(kept[2].level, every.levels)
    assert some.n == (levels & ~clipped & ~weak).sum()


def marked_by(marks, level, item, items=("a", "b"), top=2):
    """A scope of labels on a scale 0 .. top with these human scores and cross-fitted levels, and a risk of 0.1."""
    count = len(marks)
    labels = replace(
        judged(1, count, np.asarray(item), items),
        scales=(Scale(min=0, max=top),) * len(items),
        low=0.0,
        high=1.0,
        human=np.asarray(marks) / top,
    )
    wrong = np.abs(np.asarray(marks) - level) > 1e-9
    risk = np.full(count, 0.1)
    return Scope(labels, RiskRows(np.asarray(level, dtype=float), risk, risk, wrong, np.zeros(count, dtype=bool)))


def test_a_promise_that_a_constant_keeps_is_refused_with_the_tolerance_that_asks_something():
    marks = np.arange(120) % 3
    for by in ("item", "set"):
        scope = marked_by(marks, marks, np.arange(120) % 2)
        scope = scope._replace(outcome=scope.outcome._replace(wrong=np.zeros(120, dtype=bool)))
        rules = rules_of(scope, Release(tolerance=1, by=by))
        assert {one.refused for one in rules.promises} == {"asks_nothing"}
        assert {one.asking_tolerance for one in rules.promises} == {0.0}
        assert {rule.refused for rule in rules.items.values()} == {"asks_nothing"}
        assert rules.new is None
        rules = rules_of(scope, Release(tolerance=0, by=by))
        assert {one.refused for one in rules.promises} == {None}
        assert [(one.exact, one.exact_released) for one in rules.promises] == [(1.0, 1.0)] * len(rules.promises)
        assert all(one.constant == pytest.approx(2 / 3) for one in rules.promises)


def test_a_question_that_a_constant_answers_has_no_part_in_the_promise_for_the_set():
    item = np.repeat([0, 1], 100)
    marks = np.concatenate([np.arange(100) % 3, np.full(100, 2)])
    rules = rules_of(marked_by(marks, marks, item), Release(tolerance=0, by="set"))
    assert {one.scope: (one.refused, one.n) for one in rules.promises} == {
        "all": (None, 100),
        "b": ("asks_nothing", 100),
    }
    assert rules.items["b"].threshold is None
    assert rules.items["a"].threshold == rules.new == 0.1
    none = rules_of(marked_by(marks, np.where(item, 2, 1), item), Release(tolerance=0, risk=0.6, by="set"))
    assert {one.refused for one in none.promises} != {None}


def test_a_question_of_which_nothing_could_go_out_asks_nothing_of_the_others_and_is_no_error():
    item = np.repeat([0, 1], [100, 3])
    scope = marked_by(np.concatenate([np.full(100, 2), [0, 1, 2]]), np.full(103, 2), item)
    clipped = scope._replace(outcome=scope.outcome._replace(clipped=item == 1))
    rules = rules_of(clipped, Release(tolerance=0, by="set"))
    assert {one.refused for one in rules.promises} == {"asks_nothing", "question_means"}
    assert {one.scope: one.n for one in rules.promises} == {"all": 0, "a": 100}


def test_scores_that_are_no_better_than_a_constant_are_not_released():
    marks = np.repeat([0, 1], [56, 44])
    constant = rules_of(marked_by(marks, np.zeros(100), np.zeros(100, int), ("a",)), Release(tolerance=0, risk=0.43))
    assert constant.promises[0].refused == "no_promise"
    better = np.where(np.arange(100) < 80, marks, 0)
    kept = rules_of(marked_by(marks, better, np.zeros(100, int), ("a",)), Release(tolerance=0, risk=0.43))
    assert kept.promises[0].refused is None
