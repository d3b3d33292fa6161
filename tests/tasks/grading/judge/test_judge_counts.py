"""Counted sub-points against the rule of the key, by worked cases and enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from builders.keys import counting, criterion, locked
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.grading.judge.score import expected_share, round_half_up, score, whole_shares

LEVELS = (0, 1, 2)


def scores(bundle: Bundle, *levels: Mapping[str, int]) -> list[float | None]:
    return [score(bundle, {c.id: 0 for c in bundle.criteria} | given).score for given in levels]


def test_one_or_two_three_four_elements_are_one_two_three_points() -> None:
    parts = [criterion(f"P{n}", parent="K") for n in range(8)]
    bundle = locked(counting("K", [0, 1, 1, 2, 3]), *parts)
    met = [{f"P{n}": 2 for n in range(count)} for count in range(9)]
    assert scores(bundle, *met) == [0, 1, 1, 2, 3, 3, 3, 3, 3]
    hinted = [{f"P{n}": 1 for n in range(count)} for count in range(9)]
    assert scores(bundle, *hinted) == [0] * 9
    lenient = locked(counting("K", [0, 1, 1, 2, 3], least=1), *parts)
    assert scores(lenient, *hinted) == [0, 1, 1, 2, 3, 3, 3, 3, 3]


def test_groups_add_up_and_each_is_capped() -> None:
    """A conclusion for one point, and up to two improvements for one each."""
    groups = counting("C", [0, 1]), counting("D", [0, 1, 2])
    parts = [*(criterion(f"c{n}", parent="C") for n in range(3)), *(criterion(f"d{n}", parent="D") for n in range(4))]
    for conclusions, improvements in itertools.product(range(4), range(5)):
        given = {f"c{n}": 2 for n in range(conclusions)} | {f"d{n}": 2 for n in range(improvements)}
        expected = min(1, conclusions) + min(2, improvements)
        assert scores(locked(*groups, *parts), given) == [expected]


def test_nothing_is_earned_without_what_is_needed() -> None:
    """A trait for a point, a detail for a second one; without a trait no credit."""
    names = counting("R", [0, 1, 2], needs=("T",)), counting("T", [0, 1], parent="R"), counting("D", [0, 1], parent="R")
    parts = [criterion("t1", parent="T"), criterion("t2", parent="T"), criterion("d1", parent="D")]
    bundle = locked(*names, *parts, top=2)
    assert scores(bundle, {}, {"d1": 2}, {"t1": 2}, {"t2": 2, "t1": 2}, {"t2": 2, "d1": 2}) == [0, 0, 1, 1, 2]


def test_a_mistake_is_taken_off_a_count_and_a_count_of_mistakes_costs() -> None:
    parts = [criterion(f"P{n}", parent="K") for n in range(3)]
    group = criterion("G", weight=2), counting("K", [0, 1, 2], parent="G"), criterion("M", parent="G", weight=-1)
    assert scores(locked(*group, *parts, top=2), {"P0": 2, "P1": 2, "M": 2}, {"M": 2}) == [1, 0]
    errors = [criterion(f"E{n}", parent="E", weight=-1) for n in range(3)]
    costs = counting("E", [0, 0, 1], -1)
    bundle = locked(criterion("P", weight=2), costs, *errors, top=2)
    assert scores(bundle, {"P": 2, "E0": 2}, {"P": 2, "E0": 2, "E1": 2}) == [2, 1]


@st.composite
def groups(draw: Callable[..., Any]) -> tuple[Bundle, Callable[[Mapping[str, int]], float]]:
    """Groups with a count each, some of which cost, and the share of the points that their definition gives."""
    size = draw(st.integers(1, 2))
    criteria, rules = [], []
    for g in range(size):
        n = draw(st.integers(1, 4))
        sign = -1 if g and draw(st.booleans()) else 1
        steps = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=n).filter(any))
        points, least = [0.0, *itertools.accumulate(steps)], draw(st.sampled_from([None, 1, 2]))
        names = [f"g{g}{c}" for c in "abcd"[:n]]
        needs = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
        whole = counting(f"G{g}", points, sign, least=least, needs=tuple(needs))
        criteria += [whole, *(criterion(name, parent=f"G{g}", weight=float(sign)) for name in names)]
        rules.append((sign, points, least or 2, names, needs))

    def share(levels: Mapping[str, int]) -> float:
        earned = 0.0
        for sign, points, least, names, needs in rules:
            met = [name for name in names if levels[name] >= least]
            if set(needs) <= set(met):
                earned += sign * points[min(len(met), len(points) - 1)]
        return min(1.0, max(0.0, earned / sum(points[-1] for sign, points, *_ in rules if sign > 0)))

    bundle = locked(*draw(st.permutations(criteria)), top=draw(st.sampled_from([2, 3, 7])), unscored="bounds")
    return bundle, share


@settings(max_examples=20)
@given(st.data(), groups())
def test_counts_are_their_official_rule(data: Any, case: tuple[Bundle, Any]) -> None:
    bundle, share = case
    levels = {c.id: data.draw(st.sampled_from(LEVELS)) for c in bundle.criteria}
    assert score(bundle, levels).score == round_half_up(bundle.scale.max * share(levels), bundle.scale)


@settings(max_examples=20)
@given(st.data(), groups())
def test_probabilities_make_the_expected_points(data: Any, case: tuple[Bundle, Any]) -> None:
    """Over all outcomes, each as probable as its levels together."""
    bundle, _ = case
    spreads = st.sampled_from([(0, 0, 1), (0.5, 0.25, 0.25), (0.1, 0.6, 0.3)])
    likely = {c.id: data.draw(spreads) for c in bundle.criteria}
    reached = whole_shares(bundle, {c.id: expected_share(bundle, c, 0, likely[c.id]) for c in bundle.criteria})
    for whole in bundle.whole:
        parts = [c.id for c in bundle.sub_points(whole.id)]
        outcomes = [dict(zip(parts, of, strict=True)) for of in itertools.product(LEVELS, repeat=len(parts))]
        worth = [
            whole_shares(bundle, {c.id: expected_share(bundle, c, of.get(c.id, 0), None) for c in bundle.criteria})
            for of in outcomes
        ]
        chances = [math.prod(likely[name][level] for name, level in of.items()) for of in outcomes]
        assert reached[whole.id] == pytest.approx(sum(w[whole.id] * p for w, p in zip(worth, chances, strict=True)))


def test_a_long_list_is_counted_by_the_binomial_distribution() -> None:
    parts = [criterion(f"P{n}", parent="K") for n in range(3000)]
    bundle = locked(counting("K", [0, 1, 2, 3]), *parts)
    share = whole_shares(bundle, {c.id: 1e-3 for c in parts})["K"]
    assert share == pytest.approx(sum(min(n, 3) / 3 * binom.pmf(n, 3000, 1e-3) for n in range(100)))
