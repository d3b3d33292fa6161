"""Mappings of the raw score alone, against other ways to the same numbers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from rubricflow.tasks.grading.calibrate.alignment import (
    Refusal,
    ScoreCurve,
    apply_curve,
    fit_isotonic,
    fit_linear,
    fit_linking,
    offsets,
)

SCALE = (0.0, 5.0, 1.0)
ENDS = SCALE[:2]


def sample(seed, n=40):
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 6, n).astype(float)
    human = np.clip(np.round(1 + 0.6 * raw + rng.normal(0, 1, n)), 0, 5)
    return raw, human, rng.integers(1, 4, n).astype(float), rng


def fitted(fit, raw, human, weight, item=None, items=("q",)):
    if fit is fit_linking:
        return fit(raw, human, weight, ENDS)
    return fit(raw, human, weight, np.zeros(len(raw), dtype=int) if item is None else item, items, ENDS)


@pytest.mark.parametrize("seed", range(3))
def test_the_line_is_the_weighted_least_squares_line(seed):
    raw, human, weight, _ = sample(seed)
    slope, intercept = np.polyfit(raw, human, 1, w=np.sqrt(weight))
    inside = np.linspace(raw.min(), raw.max(), 9)
    found = apply_curve(fitted(fit_linear, raw, human, weight), inside, 0.0, SCALE)
    np.testing.assert_allclose(found.aligned, np.clip(intercept + slope * inside, 0, 5))
    assert np.isnan(found.latent).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_step_function_is_the_librarys_isotonic_regression(seed):
    raw, human, weight, rng = sample(seed)
    model = IsotonicRegression(out_of_bounds="clip").fit(raw, human, sample_weight=weight)
    new = rng.uniform(-1, 7, 50)
    found = apply_curve(fitted(fit_isotonic, raw, human, weight), new, 0.0, SCALE)
    np.testing.assert_allclose(found.aligned, model.predict(new), atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_linking_gives_the_raw_scores_the_human_mean_and_spread(seed):
    raw, human, weight, _ = sample(seed)
    once = np.ones_like(weight)
    found = apply_curve(fitted(fit_linking, raw, 2 + human / 10, once), raw, 0.0, SCALE).aligned
    assert found.mean() == pytest.approx(2 + human.mean() / 10)
    assert found.std() == pytest.approx(human.std() / 10)
    found = apply_curve(fitted(fit_linking, raw, 2 + human / 10, weight), raw, 0.0, SCALE).aligned
    assert np.average(found, weights=weight) == pytest.approx(2 + np.average(human, weights=weight) / 10)


@pytest.mark.parametrize(
    ("fit", "raw", "human", "why"),
    [
        (fit_linear, [0, 1, 2, 3], [3, 2, 1, 0], "slope is -1, not above 0"),
        (fit_linear, [0, 1, 2, 3], [2, 2, 2, 2], "slope"),
        (fit_linear, [2, 2, 2, 2], [0, 1, 2, 3], "all raw scores are the same"),
        (fit_isotonic, [0, 1, 2, 3], [3, 2, 1, 0], "do not rise"),
        (fit_isotonic, [2, 2, 2, 2], [0, 1, 2, 3], "do not rise"),
        (fit_linking, [2, 2, 2, 2], [0, 1, 2, 3], "no spread"),
        (fit_linking, [0, 1, 2, 3], [1, 1, 1, 1], "no spread"),
    ],
)
def test_what_does_not_rise_is_refused(fit, raw, human, why):
    with pytest.raises(Refusal, match=why):
        fitted(fit, np.array(raw, dtype=float), np.array(human, dtype=float), np.ones(4))


def test_offsets_are_shrunk_as_by_hand():
    # Means 1 and -1: within 4/3; between 3 x 0.8^2 + 2 x 1.2^2 = 4.8; tau^2 = (4.8 - 4/3) / (5 - 13/5) = 13/9.
    residual, item = np.array([0.0, 1, 2, -2, 0]), np.array([0, 0, 0, 1, 1])
    found = offsets(residual, np.ones(5), item, ("p", "q", "unseen"))
    assert found == pytest.approx({"p": 13 / 17, "q": -13 / 19})


def test_items_that_differ_no_more_than_chance_have_no_offsets():
    residual, item = np.array([1.0, -1, 1, -1, 1.1, -1]), np.repeat([0, 1, 2], 2)
    assert offsets(residual, np.ones(6), item, ("a", "b", "c")) == {}
    assert offsets(residual, np.ones(6), np.zeros(6, dtype=int), ("a",)) == {}
    assert offsets(residual, np.ones(6), np.arange(6), tuple("abcdef")) == {}


def test_a_weight_of_two_counts_as_two_ratings_in_an_offset():
    # The same information once as two rows at their mean and once as one row of weight two: n_k is equal.
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(200), 10)
    residual = rng.normal(0, 1, 200)[item] + rng.normal(0, 1, len(item))
    pairs = residual.reshape(-1, 2).mean(axis=1)
    names = tuple(map(str, range(200)))
    rows = offsets(residual, np.ones(len(item)), item, names)
    halves = offsets(pairs, np.full(len(pairs), 2.0), item[::2], names)
    np.testing.assert_allclose([rows[k] for k in names], [halves[k] for k in names], atol=0.03)


@pytest.mark.parametrize("fit", [fit_linear, fit_isotonic])
def test_each_items_offset_is_added_and_a_new_item_gets_none(fit):
    raw, human, weight, _ = sample(1, 80)
    item = np.arange(80) % 2
    curve = fitted(fit, raw, np.where(item, human / 2 + 2, human / 2), weight, item, ("low", "high"))
    assert curve.offsets.get("high", 0.0) > 0.5 > -0.5 > curve.offsets.get("low", 0.0)
    assert curve.offsets.get("new", 0.0) == 0
    gap = [
        float(apply_curve(curve, [2.0], curve.offsets.get(name, 0.0), SCALE).aligned[0])
        for name in ("low", "new", "high")
    ]
    np.testing.assert_allclose(np.diff(gap), [-curve.offsets.get("low", 0.0), curve.offsets.get("high", 0.0)])


def test_raw_scores_outside_the_range_seen_are_clipped_and_flagged():
    curve = fitted(fit_linear, np.array([1.0, 2, 3]), np.array([1.0, 2, 4]), np.ones(3))
    found = apply_curve(curve, [0.0, 1.0, 3.0, 3.5], 0.0, SCALE)
    assert found.clipped.tolist() == [True, False, False, True]
    assert found.aligned[0] == found.aligned[1]
    assert found.aligned[2] == found.aligned[3]


def test_a_share_that_is_equal_but_for_its_last_bit_is_inside():
    curve = fitted(fit_linear, np.array([0.2, 0.4, 0.8]), np.array([1.0, 2, 4]), np.ones(3))
    assert not apply_curve(curve, [1.2 - 1.0], 0.0, SCALE).clipped.any()


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.sampled_from([fit_linear, fit_isotonic, fit_linking]))
def test_maps_rise_stay_on_the_scale_and_do_not_depend_on_the_order_of_rows(seed, fit):
    raw, human, weight, rng = sample(seed, 25)
    item, order = rng.integers(0, 3, 25), rng.permutation(25)
    try:
        curve = fitted(fit, raw, human, weight, item, ("a", "b", "c"))
    except Refusal:
        return
    assert fitted(fit, raw[order], human[order], weight[order], item[order], ("a", "b", "c")) == curve
    assert ScoreCurve.model_validate_json(curve.model_dump_json()) == curve
    found = apply_curve(curve, np.linspace(-1, 6, 60), curve.offsets.get("a", 0.0), (10.0, 20.0, 2.0))
    assert (np.diff(found.aligned) >= 0).all()
    assert ((found.aligned >= 10) & (found.aligned <= 20)).all()
    assert set(found.score) <= {10, 12, 14, 16, 18, 20}
