"""What intervals promise, through the real fit: they hold as many human scores as they say, on whatever grid."""

import math
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from builders.bundles import bundle, criterion, trait
from builders.studies import study
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.schema import schema
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.grading.calibrate.fit import fit_items
from rubricflow.tasks.grading.calibrate.predictions import predict
from rubricflow.tasks.grading.calibrate.rows import GRADING, graded_items
from rubricflow.tasks.grading.calibrate.spread import grain_of

GRADING_SCHEMA = pa.schema([schema(Gradings).field(name) for name in GRADING])
BETWEEN_PEOPLE = 0.12
"""Standard deviation of one person's mark around the true one, as a share of the scale."""


class Case(NamedTuple):
    """scale: lowest, highest, step; raters: how many people mark a response, each number equally likely; labels:
    responses to calibrate on; noise: standard deviation of the judge, as a share of the scale; skew: of true scores, 1
    for even ones; method: as a study says it."""

    raters: tuple[int, ...]
    labels: int = 80
    scale: tuple[float, float, float] = (0, 5, 1)
    noise: float = 0.2
    skew: float = 1
    method: str = "choose"


class Held(NamedTuple):
    """New responses: `target` human scores, `low` and `high` of their intervals, `score` calibrated."""

    target: np.ndarray
    low: np.ndarray
    high: np.ndarray
    score: np.ndarray

    @property
    def share(self):
        """Share of the human scores inside their interval."""
        return np.mean((self.low <= self.target + 1e-9) & (self.target <= self.high + 1e-9))


def held(case, seed, new=300, coverage=0.9):
    """Intervals of new responses by a mapping fitted on the case's labels."""
    item = marked(case, seed, new)
    plan = study(calibration={"method": case.method, "minimum": 20}, release={"coverage": coverage})
    mapping = fit_items([item], "judge", plan).mappings["q"]
    rows = item.rows.filter(np.array(item.rows["split"].to_pylist()) == "test")
    found = predict(mapping, item._replace(rows=rows))
    return Held(rows["target"].to_numpy(), *(found[name].to_numpy() for name in ("low", "high", "score")))


def marked(case, seed, new):
    """An item of the case with labels and as many new responses."""
    rng = np.random.default_rng([seed, case.labels])
    n, scale = case.labels + new, Scale(min=case.scale[0], max=case.scale[1], step=case.scale[2])
    truth = rng.beta(case.skew, 1, n)
    people = truth[:, None] + rng.normal(0, BETWEEN_PEOPLE, (n, max(case.raters)))
    judge = np.clip(truth + rng.normal(0, case.noise, n), 0, 1)
    ids = [f"r{at:05d}" for at in range(n)]
    splits = ["calibration"] * case.labels + ["test"] * new
    responses = pa.table({"response_id": ids, "split": splits, "author_id": pa.nulls(n, pa.string())})
    counts = rng.choice(case.raters, n)
    marks = _marks(ids, _on(scale, people), counts)
    signals = ("trait_scores", "length")
    judged = bundle(criterion("ca", "a"), ends=scale.bounds, traits=(trait("a", 0, 3),), signals=signals)
    (item,) = graded_items({"q": judged}, _gradings(ids, judge, scale, rng), responses, marks, "mean")
    return item


def _on(scale, shares):
    """Shares of a scale as the nearest of its levels."""
    return scale.min + scale.step * np.clip(np.round((scale.levels - 1) * shares), 0, scale.levels - 1)


def _marks(ids, scores, counts):
    response, person = np.nonzero(np.arange(scores.shape[1]) < counts[:, None])
    return pa.table(
        {
            "response_id": np.array(ids)[response],
            "rater_id": [f"person {at}" for at in person],
            "rater_kind": ["human"] * len(response),
            "score": scores[response, person],
        }
    )


def _gradings(ids, judge, scale, rng):
    n = len(ids)
    columns = {
        "response_id": ids,
        "item_id": ["q"] * n,
        "rater_id": ["judge"] * n,
        "sample": [0] * n,
        "score": _on(scale, judge),
        "trait_scores": [[("a", round(3 * at))] for at in judge],
        "signals": [[("length", math.log1p(100 * at))] for at in rng.random(n)],
        "status": ["scored"] * n,
        "unscored_reason": [None] * n,
    }
    return pa.table(columns, schema=GRADING_SCHEMA)


REPETITIONS = 12
"""Sets of 80 labels spread by 0.035 in coverage, so that the mean of these has a standard error of 0.01."""


@pytest.mark.parametrize("raters", [(1,), (1, 2, 3)])
def test_intervals_hold_the_share_they_promise_however_many_people_mark(raters):
    shares = [held(Case(raters), seed).share for seed in range(REPETITIONS)]
    assert 0.885 <= np.mean(shares) <= 0.935


@pytest.mark.parametrize(
    "case",
    [
        Case((2,), 50, noise=0.5, method="linking"),
        Case((3,), 50, skew=6, method="rulers"),
        Case((2,), scale=(0, 1, 1), noise=0.03),
        Case((1, 2), scale=(1, 6, 0.5), method="isotonic"),
        Case((2, 5), scale=(0, 100, 1), method="linear"),
        Case((3, 4, 5)),
    ],
)
def test_no_fewer_on_odd_scales_with_poor_judges_and_skewed_marks(case):
    assert np.mean([held(case, seed).share for seed in range(4)]) >= 0.885


def test_another_share_may_be_asked_for():
    shares = [held(Case((2,)), seed, coverage=0.7).share for seed in range(20)]
    assert np.mean(shares) == pytest.approx(0.71, abs=0.025)


@settings(max_examples=10)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.sampled_from([(0, 1, 1), (0, 3, 1), (1, 6, 0.5), (-2, 2, 0.1), (0, 10, 5)]),
    st.sampled_from([0.0, 0.05, 0.6]),
    st.integers(0, 10**6),
)
def test_an_interval_lies_on_the_scale_and_holds_its_score(raters, scale, noise, seed):
    found = held(Case(tuple(raters), 25, scale, noise), seed, new=40)
    assert (scale[0] <= found.low).all()
    assert (found.low <= found.score).all()
    assert (found.score <= found.high).all()
    assert (found.high <= scale[1]).all()


# the grid of human scores


@pytest.mark.parametrize(
    ("human", "ratings", "grain"),
    [
        ([0, 1, 4], [1], 1),
        ([0, 1.5], [2], 1 / 2),
        ([0, 1, 4], [2], 1 / 2),
        ([0, 1, 4], [1, 1, 2], 1 / 2),
        ([1 / 3, 2], [3], 1 / 3),
        ([0.5, 1 / 3], [2, 3], 1 / 6),
        ([2, 1 / 3], [2, 3], 1 / 6),
        ([0.25, 3], [3, 4], 1 / 12),
        ([0, 1.5], [1], 1 / 2),
        ([0.5, 1.25], [2], 1 / 4),
        ([0.123], [1], 0),
        ([0, 1], [13], 0),
        ([0.25, 1], [5, 3], 0),
    ],
)
def test_the_grain_is_what_averaging_leaves(human, ratings, grain):
    counts = np.resize(np.array(ratings, dtype=float), len(human))
    assert grain_of(np.array(human, dtype=float), counts) == pytest.approx(grain)


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=5), min_size=1, max_size=30))
def test_every_mean_of_as_many_marks_lies_on_the_grid(marks):
    means = np.array([np.mean(of) for of in marks])
    grain = grain_of(means, np.array([len(of) for of in marks], dtype=float))
    if grain:
        others = np.array([np.mean([at % 7 for at in of]) for of in marks])
        np.testing.assert_allclose(np.round(others / grain) * grain, others, atol=1e-9)
