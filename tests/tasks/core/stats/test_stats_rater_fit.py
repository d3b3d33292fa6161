"""Fit of single raters: nothing is found where nothing is, and what is put in is found."""

from __future__ import annotations

import numpy as np
import pytest

from rubricflow.tasks.core.stats.facets import fit
from rubricflow.tasks.core.stats.raters import discrimination, halo, infit, leniency, outfit, residuals, shift
from tests.builders.ratings import Rating, World, design, marked, world

ONE = np.ones(1)


def by_rater(ratings):
    fitted = fit(design(ratings))
    found = residuals(fitted)
    return {name: found.take(found.rater == code) for code, name in enumerate(fitted.design.raters)}


def of_rater(ratings, name):
    return by_rater(ratings)[name]


@pytest.mark.parametrize("each", [2, 3])
def test_raters_as_the_model_has_them_fit(each):
    held, values = [], []
    for seed in range(5):
        fitted = fit(design(marked(world(seed), seed + 10, n=200, each=each)[0]))
        found = residuals(fitted)
        for code in range(4):
            own = found.take(found.rater == code)
            held += [one.low < 1 < one.high for one in (infit(own), outfit(own))]
            held.append(shift(own, ONE).low < 0 < shift(own, ONE).high)
            values.append(infit(own).value)
            held.append(discrimination(own).low < 1 < discrimination(own).high)
    assert np.mean(held) >= 0.88
    assert np.mean(values) == pytest.approx(1, abs=0.05)


def test_who_marks_by_chance_is_erratic():
    ratings, _ = marked(world(1), 2, n=300, each=3)
    rng = np.random.default_rng(0)
    wild = [one._replace(score=float(rng.integers(5))) if one.rater == "p2" else one for one in ratings]
    marks = by_rater(wild)
    figures = {name: infit(own) for name, own in marks.items()}
    assert figures["p2"].low > 1.2
    assert all(figures["p2"].value > 1.3 * figures[name].value for name in ("p0", "p1", "p3"))
    apart = {name: discrimination(own) for name, own in marks.items()}
    assert apart["p2"].high < 0.6 < min(apart[name].low for name in ("p0", "p1", "p3"))


def test_residuals_are_one_for_each_shared_rating():
    ratings, _ = marked(world(1), 2, n=60, doubles=0.5)
    found = residuals(fit(design(ratings)))
    shared = {one.response for one in ratings if sum(other.response == one.response for other in ratings) > 1}
    assert len(found.observed) == 2 * len(shared)
    coded = design(ratings)
    told = {(one.response, one.rater): one.score for one in ratings}
    for response, rater, score in zip(found.response, found.rater, found.observed, strict=True):
        assert told[coded.responses[response], coded.raters[rater]] == score


def test_a_shift_in_a_period_is_found_and_only_there():
    ratings, _ = marked(world(1, spread=0.2), 2, n=600)
    late = {f"r{at:04d}" for at in range(400, 600)}
    moved = [
        one._replace(score=max(one.score - 1, 0.0)) if one.rater == "p1" and one.response in late else one
        for one in ratings
    ]
    coded = design(moved)
    found = residuals(fit(coded))
    then = np.array([coded.responses[at] in late for at in found.response])
    own = found.rater == coded.raters.index("p1")
    assert shift(found.take(own & then), ONE, looks=2).high < -0.1
    assert shift(found.take(own & ~then), ONE, looks=2).low > 0
    alone = shift(found.take(own & then), ONE * 0.5)
    assert alone.value == pytest.approx(2 * shift(found.take(own & then), ONE).value)
    assert alone.high - alone.low < 2 * np.ptp(shift(found.take(own & then), ONE, looks=5)[1:3])


def test_leniency_is_in_points_on_the_same_responses():
    of = World({"a": 0.4, "b": 0.0, "c": -0.4})
    ratings, _ = marked(of, 3, n=800, each=3)
    found = leniency(fit(design(ratings)), ONE)
    ability = np.random.default_rng(0).normal(size=2000)
    wanted = [np.mean([of.fair(z - s) - of.fair(z) for z in ability]) for s in (0.4, 0.0, -0.4)]
    assert [one.value for one in found] == pytest.approx(wanted, abs=0.08)
    assert all(one.low <= value <= one.high for one, value in zip(found, wanted, strict=True))
    halves = leniency(fit(design(ratings)), ONE * 0.5)
    assert halves[0].value == pytest.approx(2 * found[0].value)


def traits(seed, impression, n=500, missing=0.0):
    """Three traits by three raters; the first rater's impression of a response enters all of its traits."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=(n, 1)) * 0.7 + rng.normal(size=(n, 3)) * 0.7
    tables = {}
    for at, name in enumerate("abc"):
        own = rng.normal(size=(n, 1)) * (impression if at == 0 else 0.0)
        tables[name] = np.round(2 * (true + own + rng.normal(size=(n, 3)) * 0.6))
        tables[name][rng.random(n) < missing] = np.nan
    return tables


def test_halo_is_0_where_errors_are_independent():
    found = halo(traits(0, 0.0, missing=0.3), np.arange(500), 300, 0)
    for one in found.values():
        assert one.low < 0 < one.high
        assert one.value == pytest.approx(0, abs=0.08)


def test_an_impression_that_colours_all_traits_is_found():
    found = halo(traits(0, 1.0), np.arange(500), 300, 0)
    assert found["a"].low > 0.2
    assert max(found["b"].value, found["c"].value) < 0.1


def test_halo_by_hand():
    own = np.array([[1, 2], [2, 1], [3, 3], [4, 5]] * 5, dtype=float)
    theirs = np.array([[1, 1], [2, 3], [4, 3], [3, 4]] * 5, dtype=float)
    r = np.corrcoef(np.hstack([own, theirs]), rowvar=False)
    found = halo({"a": own, "b": theirs}, np.arange(20), 0, 0)
    assert found["a"].value == pytest.approx(r[0, 1] - (r[0, 3] + r[1, 2]) / 2)
    assert found["b"].value == pytest.approx(r[2, 3] - (r[0, 3] + r[1, 2]) / 2)


def test_too_little_for_a_halo_is_said():
    few = {name: table[:19] for name, table in traits(0, 0.0).items()}
    assert all("fewer than 20" in one.note and one.value is None for one in halo(few, np.arange(19), 10, 0).values())


def test_nobody_else_marked_it():
    ratings = [Rating("r", "g", "a", 1.0), Rating("s", "g", "b", 2.0)]
    found = residuals(fit(design(ratings), at_random=True))
    assert infit(found).note == outfit(found).note == "no response shared with another rater"
    assert shift(found, ONE).value is None
