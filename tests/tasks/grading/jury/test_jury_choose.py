"""Which rule makes a jury's scores: held against scikit-learn and scipy, and by simulated jurors, whom a jury must not
hurt."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr
from sklearn.linear_model import Ridge

from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.jury.choose import (
    PRIOR,
    LabelledShares,
    agreement,
    chosen,
    errors,
    fold_rules,
    leave_out,
    of_labels,
    standard_error,
    trials,
    weights,
)
from rubricflow.tasks.grading.jury.combine import Rule

TEST = 600
"""Simulated responses without a label, by which rules are judged."""


class World:
    """Answers of known quality, and jurors who see it through errors of their own and of their family."""

    def __init__(self, noise: list[float], shared: float, scale: list[float], labels: int, seed: int) -> None:
        """noise: standard deviation of each juror's error; shared: share of its variance that all have in common;
        scale: how far each juror spreads its scores."""
        luck, n = np.random.default_rng(seed), labels + TEST
        quality = luck.normal(size=n)
        own, common = luck.normal(size=(n, len(noise))), luck.normal(size=(n, 1))
        error = np.array(noise) * (np.sqrt(1 - shared) * own + np.sqrt(shared) * common)
        self.shares = np.round(np.clip(0.5 + 0.15 * np.array(scale) * (quality[:, None] + error), 0, 1) * 10) / 10
        self.human = np.round(np.clip(0.5 + 0.15 * (quality + 0.3 * luck.normal(size=n)), 0, 1) * 5) / 5
        names = np.arange(n).astype(str)
        self.items = np.repeat("i", n)
        told = np.where(np.arange(n) < labels, self.human, np.nan)
        self.labels = of_labels(self.shares, told, self.items, names)
        self.voices = np.full(len(noise), 1 / len(noise))
        self.common = self.shares.mean(axis=0), self.shares.std(axis=0)

    def choose(self) -> Rule:
        tried = trials(self.labels, self.voices, self.common)
        return chosen("choose", tried, self.voices, self.common)[0]

    def worth(self, scores: Floats) -> float:
        """Correlation with people over the responses without a label; 0 where a juror says one thing to all."""
        own, human = scores[-TEST:], self.human[-TEST:]
        return float(pearsonr(own, human)[0]) if np.ptp(own) and np.ptp(human) else 0.0

    def single(self) -> float:
        """Worth of the juror that the labels show to agree best; of an average one where they are too few."""
        alone = [self.worth(self.shares[:, juror]) for juror in range(len(self.voices))]
        tried = trials(self.labels, self.voices, self.common)
        return alone[int(np.argmax(tried["best"].rule.weights))] if tried else float(np.mean(alone))


def few(seed: int, jurors: int = 3, labels: int = 40) -> LabelledShares:
    luck = np.random.default_rng(seed)
    human = luck.random(labels)
    shares = human[:, None] + luck.normal(size=(labels, jurors))
    return of_labels(shares, human, luck.choice(["a", "b"], labels), luck.choice(list("uvwxyz"), labels))


@given(st.integers(0, 50))
def test_weights_are_ridge_regression_drawn_to_equal_voices(seed: int) -> None:
    labels, voices = few(seed), np.full(3, 1 / 3)
    x, y = (table - means for table, means in ((labels.shares, 0.0), (labels.human, 0.0)))
    for group in np.unique(labels.group):
        x[labels.group == group] -= x[labels.group == group].mean(axis=0)
        y[labels.group == group] -= y[labels.group == group].mean()
    mean = x @ voices
    slope = max(0.0, mean @ y / (mean @ mean))
    spread = np.sqrt((x**2).mean(axis=0))
    far = Ridge(alpha=PRIOR, fit_intercept=False).fit(x / spread, y - slope * mean).coef_ / spread
    expected = np.maximum(slope / 3 + far, 0)
    assert weights(labels, voices) == pytest.approx(expected / expected.sum() if expected.sum() else voices)


def test_agreement_is_pearsons_and_its_parts_leave_an_author_out() -> None:
    luck = np.random.default_rng(0)
    human, scores, cluster = luck.random(30), luck.random(30), np.repeat([f"{n:02d}" for n in range(10)], 3)
    labels = LabelledShares(scores[:, None], human, np.zeros(30, dtype=np.int64), cluster)
    found = agreement(scores, labels)
    assert found[0] == pytest.approx(pearsonr(scores, human)[0])
    kept = cluster != "03"
    # The means stay those of all.
    own, others = scores - scores.mean(), human - human.mean()
    part = (own * others)[kept].sum() / np.sqrt((own**2)[kept].sum() * (others**2)[kept].sum())
    assert found[4] == pytest.approx(part)
    assert 0.1 < standard_error(found) < 0.4  # about 1 / sqrt(30)


def test_labels_count_only_where_every_juror_scored() -> None:
    shares = np.array([[0.1, 0.2], [np.nan, 0.3], [0.4, 0.5]])
    labels = of_labels(shares, np.array([0.0, 0.5, np.nan]), ["a", "a", "a"], ["u", "v", "w"])
    assert labels.human.tolist() == [0.0]


def test_without_labels_equal_voices_and_with_few_no_figure() -> None:
    world = World([0.3, 1.0, 1.0], 0.0, [1, 1, 1], labels=6, seed=1)
    rule = world.choose()
    assert (rule.name, rule.weights.tolist()) == ("mean", [pytest.approx(1 / 3)] * 3)
    assert fold_rules(world.labels, world.voices) == []


def test_labels_without_a_difference_choose_nothing() -> None:
    world = World([0.3, 0.3], 0.0, [1, 1], labels=40, seed=2)
    flat = LabelledShares(world.labels.shares, np.full(40, 0.5), world.labels.group, world.labels.cluster)
    tried = trials(flat, world.voices, world.common)
    assert chosen("choose", tried, world.voices, world.common)[0].name == "mean"


def test_one_juror_that_alone_knows_is_taken_alone_or_nearly() -> None:
    world = World([0.1, 9.0, 9.0, 9.0], 0.0, [1, 1, 1, 1], labels=150, seed=3)
    assert world.choose().weights[0] > 0.8


def test_a_copy_is_told_by_its_errors_and_costs_nothing_to_leave_out() -> None:
    luck = np.random.default_rng(4)
    world = World([0.6, 0.6, 0.6], 0.0, [1, 1, 1], labels=200, seed=4)
    copy = np.clip(world.labels.shares[:, 0] + 0.01 * luck.normal(size=200), 0, 1)
    labels = LabelledShares(
        np.column_stack([world.labels.shares, copy]), world.labels.human, world.labels.group, world.labels.cluster
    )
    alike = errors(labels)
    assert alike[0, 3] > 0.9
    assert abs(alike[0, 1]) < 0.5
    changes = [change[0] for change in leave_out(labels, np.full(4, 0.25))]
    assert abs(changes[3]) < 0.01
    assert changes[1] < changes[3]


@settings(max_examples=25, deadline=None)
@given(
    noise=st.lists(st.sampled_from([0.3, 0.6, 1.0, 2.0, 5.0]), min_size=2, max_size=8),
    shared=st.sampled_from([0.0, 0.5, 0.9]),
    labels=st.sampled_from([25, 50, 100, 200]),
    seed=st.integers(0, 10_000),
    scales=st.lists(st.sampled_from([0.3, 1.0, 1.5]), min_size=8, max_size=8),
)
def test_a_jury_chosen_by_labels_is_about_as_good_as_the_juror_chosen_by_them(
    noise: list[float], shared: float, labels: int, seed: int, scales: list[float]
) -> None:
    world = World(noise, shared, scales[: len(noise)], labels, seed)
    lost = world.single() - world.worth(world.choose().scores(world.shares))
    assert lost < 0.12


def test_over_many_juries_it_gains_and_never_loses_more_than_a_hundredth_in_the_mean() -> None:
    luck = np.random.default_rng(5)
    for labels in (0, 25, 100):
        gains = []
        for seed in range(25):
            size = int(luck.integers(2, 8))
            noise = luck.choice([0.3, 0.6, 1.0, 2.0, 5.0], size).tolist()
            scale = luck.choice([0.5, 1.0, 1.5], size).tolist()
            world = World(noise, float(luck.choice([0.0, 0.5, 0.9])), scale, labels, seed)
            gains.append(world.worth(world.choose().scores(world.shares)) - world.single())
        assert np.mean(gains) > -0.01, labels
