"""Which rule makes a jury's scores: held against scikit-learn and scipy, and by simulated jurors, whom a jury must not
hurt."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr
from sklearn.linear_model import LogisticRegression, Ridge

from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.jury.choose import (
    CHOICES,
    OWN,
    PRIOR,
    ROUNDS,
    LabelledShares,
    agreement,
    by_agreement,
    choices,
    chosen,
    errors,
    fold_rules,
    leave_out,
    of_labels,
    standard_error,
    trials,
    unlabelled,
    weights,
)
from rubricflow.tasks.grading.jury.combine import Rule, plain

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
        self.families = [f"family {n}" for n in range(len(noise))]
        voices = np.full(len(noise), 1 / len(noise))
        self.known = unlabelled(self.shares, self.items, self.families, voices)

    def choose(self) -> Rule:
        tried = trials(self.labels, self.known)
        return chosen("choose", tried, self.known)[0]

    def worth(self, scores: Floats) -> float:
        """Correlation with people over the responses without a label; 0 where a juror says one thing to all."""
        own, human = scores[-TEST:], self.human[-TEST:]
        return float(pearsonr(own, human)[0]) if np.ptp(own) and np.ptp(human) else 0.0

    def single(self) -> float:
        """Worth of the juror that the labels show to agree best; of an average one where they are too few."""
        alone = [self.worth(self.shares[:, juror]) for juror in range(len(self.families))]
        tried = trials(self.labels, self.known)
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


def test_where_people_choose_one_of_several_weights_and_agreement_are_those_of_choices() -> None:
    luck = np.random.default_rng(8)
    quality = luck.normal(size=(120, 4))
    noise = np.array([0.5, 1.0, 3.0])
    shares = (quality[..., None] + noise * luck.normal(size=(120, 4, 3))).reshape(-1, 3)
    human = (quality == quality.max(axis=1, keepdims=True)).astype(float).ravel()
    items = np.repeat([f"{n:03d}" for n in range(120)], 4)
    labels = of_labels(shares, human, items, items)
    chosen_ones, others = choices(labels)
    of_item = {item: int(np.flatnonzero((items == item) & (human == 1))[0]) for item in items}
    assert [of_item[item] for item in items[others]] == chosen_ones.tolist()
    assert len(others) == 360
    scores = shares[:, 0]
    above = [np.sign(scores[of_item[item]] - score) for item, score in zip(items, scores, strict=True)]
    assert agreement(scores, labels)[0] == pytest.approx(np.sum(above) / 360)
    assert len(agreement(scores, labels)) == 121
    difference = shares[chosen_ones] - shares[others]
    spread = np.sqrt((difference**2).mean(axis=0))
    model = LogisticRegression(C=CHOICES, fit_intercept=False)
    model.fit(np.vstack([difference, -difference]) / spread, [1] * 360 + [0] * 360)
    found = model.coef_[0] / spread
    assert weights(labels, np.full(3, 1 / 3)) == pytest.approx(found / found.sum())
    # Levels, or several right ones, are more than a choice; so is one item alone with many.
    assert not len(choices(LabelledShares(shares, quality.ravel(), labels.group, items))[0])
    assert not len(choices(LabelledShares(shares, human, np.zeros(480, dtype=np.int64), items))[0])


def test_labels_count_only_where_every_juror_scored() -> None:
    shares = np.array([[0.1, 0.2], [np.nan, 0.3], [0.4, 0.5]])
    labels = of_labels(shares, np.array([0.0, 0.5, np.nan]), ["a", "a", "a"], ["u", "v", "w"])
    assert labels.human.tolist() == [0.0]


def test_with_few_labels_weights_are_those_of_agreement_and_there_is_no_figure() -> None:
    world = World([0.3, 1.0, 1.0], 0.0, [1, 1, 1], labels=6, seed=1)
    rule = world.choose()
    assert (rule.name, rule.weights.tolist()) == ("weighted", world.known.agreed.tolist())
    assert rule.weights[0] > rule.weights[1:].max()
    assert fold_rules(world.labels, world.known) == []


def test_weights_by_agreement_are_those_of_a_regression_of_what_other_families_say() -> None:
    """Held against scikit-learn on raw scores, where two rounds are enough to write down."""
    luck = np.random.default_rng(6)
    scores = luck.normal(size=(400, 1)) + np.array([0.5, 0.8, 1.2, 1.5]) * luck.normal(size=(400, 4))
    scores = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    trusted, goes = np.full(4, 0.25), np.zeros(4)
    for _ in range(ROUNDS):
        goes = np.array([pearsonr(scores[:, j], np.delete(scores, j, 1) @ np.delete(trusted, j))[0] for j in range(4)])
        trusted = goes**2 / (goes**2).sum()
    # Rows of which the jurors' gram is their correlations, and whose product with the target is what they have of it.
    root = np.linalg.cholesky(np.corrcoef(scores.T)).T
    found = Ridge(alpha=OWN, fit_intercept=False).fit(root, np.linalg.solve(root.T, goes)).coef_
    made = by_agreement(np.corrcoef(scores.T), list("abcd"), np.full(4, 0.25))
    assert made == pytest.approx(found / found.sum())
    assert made[0] > made[1] > made[2] > made[3]


def test_a_juror_of_chance_a_liar_and_one_that_says_the_same_of_all_have_no_part_and_copies_share_one() -> None:
    luck = np.random.default_rng(7)
    n, quality = 300, luck.normal(size=300)
    sound = quality[:, None] + luck.normal(size=(n, 3))
    sound = np.column_stack([sound, sound[:, 0] + 0.05 * luck.normal(size=n)])
    odd = np.column_stack([luck.normal(size=n), -quality + 0.5 * luck.normal(size=n), np.full(n, 0.5)])
    families = ["a", "b", "c", "a", "d", "e", "f"]
    voices = np.array([1 / 12, 1 / 6, 1 / 6, 1 / 12, 1 / 6, 1 / 6, 1 / 6])
    known = unlabelled(np.hstack([sound, odd]), ["i"] * n, families, voices)
    first, second, third, copy, *others = known.agreed
    assert max(others) < 0.05
    assert first + copy == pytest.approx(second, abs=0.1)
    assert second == pytest.approx(third, abs=0.1)
    # Two that always agree are no less than two, where the third goes with neither.
    agreeing = np.column_stack([quality, quality, luck.normal(size=n)])
    assert unlabelled(agreeing, ["i"] * n, list("abc"), np.full(3, 1 / 3)).agreed == pytest.approx([0.5, 0.5, 0.0])
    assert unlabelled(sound[:9], ["i"] * 9, families[:4], np.full(4, 0.25)).agreed.tolist() == [0.25] * 4


@given(st.integers(0, 30))
def test_a_stretched_mean_is_spread_as_its_jurors_are(seed: int) -> None:
    luck = np.random.default_rng(seed)
    shares = 0.5 + 0.05 * (luck.normal(size=(200, 1)) + luck.normal(size=(200, 3)))
    shares[luck.random(shares.shape) < 0.02] = np.nan
    known = unlabelled(shares, ["i"] * 200, list("abc"), np.full(3, 1 / 3))
    rule = known.stretched(known.agreed)
    made = rule.scores(shares)  # none where two jurors gave none
    assert np.nanmean(made) == pytest.approx(np.nanmean(plain("mean", known.agreed).scores(shares)), abs=0.005)
    assert np.nanstd(made) == pytest.approx(known.agreed @ np.nanstd(shares, axis=0), rel=0.05)
    assert 1 <= rule.factor[0] <= 1.8


def test_labels_without_a_difference_choose_nothing() -> None:
    world = World([0.3, 0.3], 0.0, [1, 1], labels=40, seed=2)
    flat = LabelledShares(world.labels.shares, np.full(40, 0.5), world.labels.group, world.labels.cluster)
    tried = trials(flat, world.known)
    rule, _ = chosen("choose", tried, world.known)
    assert rule.weights.tolist() == world.known.agreed.tolist()


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
    assert lost < 0.25  # jurors of one error may outvote the better ones


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
