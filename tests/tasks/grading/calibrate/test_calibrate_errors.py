"""The risk learned from which labels were wrong: held against scikit-learn, and by simulation."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from labels_scene import labelled_rows
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.stats.probability import aurc, oracle_aurc, random_aurc
from rubricflow.tasks.core.stats.promise import promise
from rubricflow.tasks.grading.calibrate.fit import outcome
from rubricflow.tasks.grading.calibrate.methods import CrossFitted, cross_fit, folds
from rubricflow.tasks.grading.calibrate.spread import Placed, error_risk, fit_errors

LEAST = 0.005


def scored(seed, n=200, top=4):
    """Placed scores, two features and their flags of wrongness: the second feature tells it, the first does not."""
    rng = np.random.default_rng(seed)
    aligned, features = rng.uniform(0, top, n), rng.normal(size=(n, 2))
    placed = Placed(aligned, np.floor(aligned + 0.5), np.full(n, float(top)), rng.uniform(0, 0.6, n))
    return placed, features, rng.random(n) < expit(logit(np.clip(placed.by_distribution, 0.05, 1)) + features[:, 1])


def fitted(placed, features, wrong, item=None, items=("q",)):
    item = np.zeros(len(wrong), dtype=np.int64) if item is None else item
    return fit_errors(placed, features, ("a", "b"), item, items, wrong, LEAST)


def test_it_is_a_ridge_logistic_regression():
    placed, features, wrong = scored(0)
    model = fitted(placed, features, wrong)
    odds = logit(np.clip(placed.by_distribution, LEAST, 1 - LEAST))
    ends = np.minimum(placed.aligned, 4 - placed.aligned) / 4
    terms = np.column_stack([odds, np.abs(placed.aligned - placed.level), ends, features])
    z = np.clip((terms - terms.mean(axis=0)) / terms.std(axis=0), -4, 4)
    levels = placed.level[:, None] == np.arange(5)
    design = np.column_stack([2 * z[:, :1], z[:, 1:], 2 * levels])
    theirs = LogisticRegression(C=0.1, tol=1e-8, max_iter=1000).fit(design, wrong).predict_proba(design)[:, 1]
    np.testing.assert_allclose(error_risk(model, placed, features, 0.0), theirs, atol=1e-4)


def test_nothing_is_learned_where_all_or_none_are_wrong():
    placed, features, wrong = scored(1)
    assert fitted(placed, features, np.zeros_like(wrong)) is None
    assert fitted(placed, features, np.ones_like(wrong)) is None


def test_the_mean_risk_is_the_share_of_wrong_labels():
    placed, features, wrong = scored(2)
    told = error_risk(fitted(placed, features, wrong), placed, features, 0.0).mean()
    assert told == pytest.approx(wrong.mean(), abs=1e-3)


def test_an_item_that_is_graded_worse_has_a_higher_risk_and_a_new_one_none_of_its_own():
    placed, features, _ = scored(3, 400)
    item = np.arange(400) % 2
    wrong = np.random.default_rng(3).random(400) < np.where(item == 1, 0.4, 0.1)
    model = fitted(placed, features, wrong, item, ("good", "bad"))
    assert model.effect("bad") > 0 > model.effect("good")
    assert model.effect("new") == 0


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(2, 60), st.sampled_from([1, 2, 5, 40]))
def test_risks_are_probabilities_and_equal_rows_have_equal_ones(seed, n, top):
    placed, features, wrong = scored(seed, n, top)
    features[:, 0] = 7.0
    if wrong.all() or not wrong.any():
        return
    model = fitted(placed, features, wrong)
    # Far from everything that it was fitted on, one by one and together.
    far = features * 1e9
    together = error_risk(model, placed, far, 0.0)
    assert ((together >= 0) & (together <= 1)).all()
    for row in range(n):
        mine = np.arange(n) == row
        assert error_risk(model, placed.take(mine), far[mine], 0.0)[0] == together[row]


def test_no_two_levels_of_a_scale_of_twelve_share_a_coefficient():
    level = np.repeat(np.arange(12.0), 20)
    placed = Placed(level, level, np.full(240, 11.0), np.full(240, 0.1))
    risk = error_risk(fitted(placed, np.zeros((240, 2)), level == 5), placed, np.zeros((240, 2)), 0.0)
    assert risk[level == 5].min() > 0.5 > 0.2 > risk[level != 5].max()


# through the mapping


def judged(seed, n):
    """Labels of a judge whose errors lie on the middle levels and on rows with a feature that is no signal of the
    spread."""
    rng = np.random.default_rng(seed)
    truth, hint = rng.uniform(0, 5, n), rng.random(n)
    human = np.clip(np.round(truth), 0, 5)
    raw = np.clip(truth + rng.normal(0, 1, n) * 2.5 * hint**2, 0, 5)
    cluster = np.array([f"response {seed} {k}" for k in range(n)])
    matrix = np.column_stack([raw, hint])
    return labelled_rows(raw, human, names=("score", "criterion.c"), matrix=matrix, cluster=cluster)


def gained(labels):
    """Share of the way from a random order of the labels to the best one, as told and as learned, both cross-fitted."""
    fold = folds(labels.cluster)
    found = outcome(labels, cross_fit("linear", labels, fold, 2.5), fold, Release())[1]
    loss = found.wrong.astype(float)
    span = random_aurc(loss) - oracle_aurc(loss)
    return [(random_aurc(loss) - aurc(loss, -risk)) / span for risk in (found.by_distribution, found.risk)]


def test_it_ranks_by_features_that_the_distribution_does_not_see():
    told, learned = np.mean([gained(judged(seed, 200)) for seed in range(8)], axis=0)
    assert learned > told + 0.2


def test_a_feature_that_says_nothing_costs_little():
    told, learned = np.mean([gained(_noised(seed)) for seed in range(8)], axis=0)
    assert learned > told - 0.1


def _noised(seed):
    labels = judged(seed, 200)
    noise = np.random.default_rng(100 + seed).random(200)
    return replace(labels, matrix=np.column_stack([labels.raw, noise]))


def test_where_nothing_tells_which_scores_are_wrong_nothing_more_is_promised_than_chance_allows():
    """One in ten is wrong in each of twenty items with ten labels: any promise of a tenth is broken."""
    repetitions = 20
    broken = sum(promise(*untold(seed), 0.1, 0.9).threshold is not None for seed in range(repetitions))
    assert broken / repetitions <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / repetitions)


def untold(seed):
    """Learned risk and wrongness of labels that are wrong by chance."""
    labels = judged(seed, 200)
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 3, 200).astype(float)
    human = level + 3 * (rng.random(200) < 0.1000001)
    items = tuple(f"item {k}" for k in range(20))
    labels = replace(
        labels, items=items, scales=labels.scales * 20, item=np.repeat(np.arange(20), 10), human=human, raw=level
    )
    fold = folds(labels.cluster)
    rows = outcome(labels, CrossFitted(None, level, np.zeros(200, dtype=bool)), fold, Release())[1]
    return rows.risk, rows.wrong
