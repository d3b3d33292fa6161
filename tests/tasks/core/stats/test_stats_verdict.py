"""Three-way verdicts and the labels that would settle them."""

import numpy as np
import pytest

from rubricflow.tasks.core.stats.verdict import labels_needed, margin, verdict


@pytest.mark.parametrize(
    ("low", "high", "least", "most", "said"),
    [
        (0.71, 0.80, 0.7, None, "pass"),
        (0.70, 0.80, 0.7, None, "pass"),
        (0.69, 0.80, 0.7, None, "undecided"),
        (0.60, 0.70, 0.7, None, "undecided"),
        (0.60, 0.69, 0.7, None, "fail"),
        (0.01, 0.05, None, 0.05, "pass"),
        (0.01, 0.06, None, 0.05, "undecided"),
        (0.05, 0.09, None, 0.05, "undecided"),
        (0.06, 0.09, None, 0.05, "fail"),
        (-0.1, 0.1, -0.1, 0.1, "pass"),
        (-0.2, 0.2, -0.1, 0.1, "undecided"),
        (-0.3, -0.2, -0.1, 0.1, "fail"),
        (0.2, 0.3, -0.1, 0.1, "fail"),
        (0.0, 0.3, -0.1, 0.1, "undecided"),
        (0.0, 0.3, None, None, "unknown"),
    ],
)
def test_verdict(low, high, least, most, said):
    assert verdict((low + high) / 2, low, high, least, most) == said


@pytest.mark.parametrize("missing", range(3))
def test_nothing_is_known_without_an_interval(missing):
    figures = [0.75, 0.71, 0.8]
    figures[missing] = None
    assert verdict(*figures, least=0.7) == "unknown"
    assert labels_needed(*figures, n=100, least=0.7) is None


def test_no_number_of_labels_settles_an_estimate_on_the_bound():
    assert labels_needed(0.7, 0.6, 0.8, 100, least=0.7) is None
    # One step of floating point away from the bound, as a kappa of 0.7 may be.
    assert labels_needed(0.7000000000000001, 0.6, 0.8, 100, least=0.7) is None
    assert labels_needed(0.6999999999999999, 0.6, 0.8, 100, least=0.7) is None
    assert labels_needed(0.1, 0.0, 0.2, 100, least=-0.1, most=0.1) is None


@pytest.mark.parametrize("bounds", [(0.0, None), (None, 0.0), (-0.5, 0.5)])
def test_labels_are_the_fewest_that_settle(bounds):
    rng = np.random.default_rng(1)
    asked = 0
    for _ in range(500):
        estimate, n = rng.normal(), int(rng.integers(20, 500))
        below, above = rng.exponential(size=2)
        more = labels_needed(estimate, estimate - below, estimate + above, n, *bounds)
        if more is None:
            assert verdict(estimate, estimate - below, estimate + above, *bounds) in ("pass", "fail")
            continue
        asked += 1

        def then(labels, estimate=estimate, below=below, above=above, n=n):
            width = np.sqrt(n / labels)
            return verdict(estimate, estimate - below * width, estimate + above * width, *bounds)

        assert more >= 1
        assert then(n + more) == ("pass" if verdict(*[estimate] * 3, *bounds) == "pass" else "fail")
        assert then(n + more - 1) == "undecided"
    assert asked > 100


@pytest.mark.parametrize(
    ("estimate", "least", "most", "inside"),
    [(0.5, 0.7, None, -0.2), (0.2, -0.15, 0.15, -0.05), (0.0, -0.1, 0.15, 0.1), (None, 0.7, None, float("inf"))],
)
def test_the_margin_is_the_way_to_the_nearer_bound(
    estimate: float | None, least: float, most: float | None, inside: float
) -> None:
    assert margin(estimate, least, most) == pytest.approx(inside)


def test_hand_worked_labels():
    # The lower end is 0.08 away and may be 0.04 away: half the width needs four times the labels.
    assert labels_needed(0.74, 0.66, 0.82, 100, least=0.70) == 300
    # The upper end must drop below the bound, not onto it.
    assert labels_needed(0.66, 0.58, 0.74, 100, least=0.70) == 301
