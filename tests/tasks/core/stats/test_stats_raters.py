"""Rater effects: hand-worked tables, resampled rows, and effects put in by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from rubricflow.tasks.core.stats import bootstrap as bs
from rubricflow.tasks.core.stats import raters as rt
from rubricflow.tasks.core.stats.facets import fit
from rubricflow.tasks.core.stats.raters import discrimination, halo, infit, leniency, outfit, residuals, shift
from tests.builders.ratings import Rating, World, design, marked, world

NAN = np.nan
HAND = np.array([[1, 2, 3], [4, 4, NAN], [NAN, 5, NAN], [2, NAN, 5]])


def crowd(seed, n=400, k=4, missing=0.3):
    rng = np.random.default_rng(seed)
    table = rng.normal(0, 1, (n, 1)) + rng.normal(0, 0.6, (n, k))
    table[rng.random((n, k)) < missing] = NAN
    return table


def test_severity_by_hand():
    found = rt.severity(HAND, range(4), 10, 0)
    assert [one.n for one in found] == [3, 2, 2]
    # First rater: 1 - 2.5, 4 - 4 and 2 - 5; second: 2 - 2 and 4 - 4; third: 3 - 1.5 and 5 - 2.
    assert [one.difference.value for one in found] == pytest.approx([-1.5, 0, 2.25])


def test_severity_put_in_is_found():
    table = crowd(0) + np.array([0, 0, 0, 0.5])
    found = rt.severity(table, np.arange(400), 200, 0)
    # The others' mean holds the lenient one too, in a third of the weight.
    assert found[3].difference.value == pytest.approx(0.5, abs=0.15)
    assert all(one.difference.value < 0 for one in found[:3])
    assert all(one.difference.note is None for one in found)
    assert found[3].interval.low > 0


def test_severity_intervals_equal_a_loop_over_resampled_rows():
    table, clusters = crowd(1, n=40, k=3), np.arange(40) // 2
    counts = bs.resample_counts(np.random.default_rng(5), 20, 50).astype(int)
    drawn = [
        [one.difference.value for one in rt.severity(np.repeat(table, row[clusters], axis=0), range(40), 1, 0)]
        for row in counts
    ]
    found = rt.severity(table, clusters, 50, 5)
    several = (~np.isnan(table)).sum(axis=1) > 1
    for one, values, rater in zip(found, np.transpose(drawn), table.T, strict=True):
        held = len(np.unique(clusters[several & ~np.isnan(rater)]))
        assert tuple(one.interval) == pytest.approx(tuple(bs.interval(values, held)))


def test_too_few_shared_responses_are_said():
    assert rt.severity(HAND, range(4), 1, 0)[0].difference.note == "fewer than 30 shared responses"
    notes = [rt.severity([[1, 2]] * n, range(n), 1, 0)[0].difference.note for n in (29, 30)]
    assert notes == ["fewer than 30 shared responses", None]
    alone = rt.severity([[1, NAN], [NAN, 2]], [1, 2], 5, 0)[0]
    assert (alone.n, alone.difference, alone.interval) == (0, (None, rt.NONE_SHARED), (None, None, 5, 0))


def test_tendency_by_hand():
    # First and second share 0 4 / 1 3 and 2 2; spread 8 against 2.
    found = rt.central_tendency([[0, 1], [4, 3], [2, 2], [4, NAN]], 0, 4)
    assert (found[0].n, found[0].sd_ratio.value, found[1].sd_ratio.value) == (3, pytest.approx(2), pytest.approx(0.5))
    assert (found[0].ends.value, found[0].others_ends.value) == (pytest.approx(2 / 3), 0)


def test_equal_raters_have_equal_spread_however_many():
    for k in (2, 6):
        found = rt.central_tendency(crowd(2, n=4000, k=k, missing=0.2), -9, 9)
        assert [one.sd_ratio.value for one in found] == pytest.approx([1] * k, abs=0.05)


def test_a_rater_who_keeps_to_the_middle():
    table = np.clip(np.round(2 * crowd(3)), -2, 2)
    table[:, 0] = np.round(table[:, 0] / 2)
    found = rt.central_tendency(table, -2, 2)
    assert found[0].sd_ratio.value < 0.7 < 1 < found[1].sd_ratio.value
    assert found[0].ends.value == 0 < found[0].others_ends.value


def test_pairs_are_compared_on_shared_responses_only():
    # The third rater had only extreme responses, on which the first agrees to the point.
    table = np.array([[1, 1, NAN], [2, 2, NAN], [0, NAN, 0], [9, NAN, 9]])
    assert [one.sd_ratio.value for one in rt.central_tendency(table, 0, 9)] == pytest.approx([1, 1, 1])


@pytest.mark.parametrize(
    ("table", "note"),
    [
        ([[1, 2]] * 49, "fewer than 50 shared responses"),
        ([[0, 1], [2, 2]] * 9 + [[1, 2]] * 50, "a level used fewer than 10 times"),
        ([[0, 1], [2, 2]] * 30, None),
        ([[0, 1], [2, 2]] * 30 + [[4, NAN]], None),
    ],
)
def test_tendency_of_thin_data_is_noted(table, note):
    assert rt.central_tendency(table, 0, 4)[0].ends.note == note


def test_tendency_without_others_or_their_spread():
    assert rt.central_tendency([[1, NAN], [NAN, 2]], 0, 4)[0] == (0, *[(None, rt.NONE_SHARED)] * 3)
    flat = rt.central_tendency([[1, 0.1], [2, 0.1], [3, 0.1]], 0, 4)
    assert (flat[0].sd_ratio.value, flat[1].sd_ratio.value) == (None, 0)


# Fit of single raters: nothing is found where nothing is, and what is put in is found.


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
