"""Risk and coverage: worked examples, all orders of a tie, and the ends between oracle and chance."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.stats import probability as sv

A_LOSS, A_CONFIDENCE = [1, 0, 0, 0, 1, 0, 0, 1], [0.9, 0.8, 0.6, 0.6, 0.5, 0.4, 0.95, 0.3]
B_LOSS = [0.5, 0.2, 0.2, 0.9, 0.4, 0.4, 0.9, 0.9, 0.4, 0.2]
B_CONFIDENCE = [0.7, 0.7, 0.9, 0.5, 0.8, 0.6, 0.4, 0.3, 0.85, 0.65]
PAIRS = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 4)), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("loss", "confidence", "published"),
    [
        (A_LOSS, A_CONFIDENCE, [0.284673, 0.171875, 0.103423]),
        (B_LOSS, B_CONFIDENCE, [0.351163, 0.213500, 0.311413]),
    ],
)
def test_worked_example(loss, confidence, published):
    ours = [sv.aurc(loss, confidence), sv.augrc(loss, confidence), sv.oracle_aurc(loss)]
    assert ours == pytest.approx(published, abs=5.1e-7)


def test_ties_count_as_the_mean_over_their_orders():
    loss, confidence = np.array([3, 0, 1, 5, 2.0]), [9, 7, 7, 7, 4]
    orders = [loss[[0, *tie, 4]] for tie in permutations([1, 2, 3])]
    curves = [np.cumsum(order) / np.arange(1, 6) for order in orders]
    np.testing.assert_allclose(sv.risk_coverage(loss, confidence), np.mean(curves, axis=0), rtol=1e-12)


@given(PAIRS)
@settings(max_examples=20)
def test_between_the_oracle_and_its_opposite(rows):
    loss, confidence = map(list, zip(*rows, strict=True))
    worst = sv.aurc(loss, loss)
    assert sv.oracle_aurc(loss) - 1e-9 <= sv.aurc(loss, confidence) <= worst + 1e-9


@given(PAIRS, st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_order_of_rows_does_not_matter(rows, random):
    loss, confidence = map(list, zip(*rows, strict=True))
    place = list(range(len(loss)))
    random.shuffle(place)
    shuffled = sv.aurc([loss[at] for at in place], [confidence[at] for at in place])
    assert shuffled == pytest.approx(sv.aurc(loss, confidence), abs=1e-9)


def test_random_is_the_mean_over_all_orders():
    loss = np.array([0, 1, 4, 2.0])
    areas = [np.mean(np.cumsum(order) / np.arange(1, 5)) for order in permutations(loss)]
    assert sv.random_aurc(loss) == pytest.approx(np.mean(areas))


@pytest.mark.parametrize(("loss", "confidence"), [([], []), ([1, 2], [1]), ([np.nan], [1]), ([1], [np.inf])])
def test_bad_input_is_refused(loss, confidence):
    with pytest.raises(ValueError, match=r"needs rows|scores must be"):
        sv.risk_coverage(loss, confidence)
