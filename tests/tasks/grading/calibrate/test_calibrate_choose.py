"""Methods compared inside folds, and which one is chosen."""

from dataclasses import replace

import numpy as np
import pytest
from labels_scene import labelled_rows

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.settings.study import Calibration
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.core.stats.bootstrap import paired_bootstrap
from rubricflow.tasks.grading.calibrate.alignment import Refusal
from rubricflow.tasks.grading.calibrate.choose import _one_score_each, decide, weight_of
from rubricflow.tasks.grading.calibrate.methods import (
    STANDARD,
    apply_to_labels,
    cross_fit,
    fit_method,
    folds,
    towards_raw,
)


def labels(raw, human, item=None, items=("q",), **more):
    return labelled_rows(raw, human, items=items, **({} if item is None else {"item": item}), **more)


def judged(seed, n=120, noise=0.8):
    """A judge with half the slope of people, so that a line helps."""
    rng = np.random.default_rng(seed)
    truth = rng.uniform(0, 5, n)
    human = np.clip(np.round(truth + rng.normal(0, noise, n)), 0, 5)
    raw = np.clip(np.round(2 + truth / 2 + rng.normal(0, 0.3, n)), 0, 5)
    return labels(raw, human)


def rows(decision):
    return {one.method: one for one in decision.candidates}


# folds


@pytest.mark.parametrize(("n", "clusters", "wanted"), [(99, 99, 5), (100, 100, 10), (120, 4, 4), (30, 7, 5)])
def test_folds_keep_authors_whole_and_are_balanced(n, clusters, wanted):
    cluster = np.array([f"author {k % clusters}" for k in range(n)])
    fold = folds(cluster)
    assert set(fold) == set(range(wanted))
    assert all(len(set(fold[cluster == name])) == 1 for name in set(cluster))
    sizes = np.bincount(fold)
    assert np.ptp(sizes) <= -(-n // clusters)


def test_folds_do_not_depend_on_the_order_of_rows():
    cluster = np.array([f"author {k % 23}" for k in range(130)])
    order = np.random.default_rng(0).permutation(130)
    np.testing.assert_array_equal(folds(cluster[order]), folds(cluster)[order])


@pytest.mark.parametrize("method", ["linear", "isotonic", "linking", "rulers"])
def test_a_row_is_scored_by_a_fit_without_its_fold(method):
    given = judged(1)
    fold = folds(given.cluster)
    tried = cross_fit(method, given, fold, 2.5)
    out = fold == 3
    alone = apply_to_labels(fit_method(method, given.take(~out), 2.5), given.take(out))
    np.testing.assert_array_equal(tried.aligned[out], alone.aligned)
    changed = given.human.copy()
    changed[out] = 5 - changed[out]
    again = cross_fit(method, labels(given.raw, changed), fold, 2.5)
    np.testing.assert_array_equal(again.aligned[out], tried.aligned[out])
    assert again.mapping != tried.mapping


def test_a_fit_refused_in_one_fold_is_refused():
    raw = np.zeros(20)
    raw[7] = 1.0
    given = labels(raw, raw * 3)
    with pytest.raises(Refusal, match="the same, in one fold"):
        cross_fit("linear", given, folds(given.cluster), 2.5)


# figures


def test_figures_are_those_of_the_cross_fitted_scores():
    given = judged(2)
    found = rows(decide(given, Calibration()))["linear"]
    aligned = cross_fit("linear", given, folds(given.cluster), 2.5).aligned
    assert found.qwk == pytest.approx(qwk(given.human, aligned, 0, 5).value)
    assert found.rmse == pytest.approx(np.sqrt(np.mean((given.human - aligned) ** 2)))
    assert found.sd_ratio == pytest.approx(aligned.std() / given.human.std())
    assert found.distinct == len(set(np.floor(aligned + 0.5)))


def test_pooled_qwk_and_rmse_of_items_with_one_scale_are_in_its_units():
    own = judged(3)
    item = np.arange(len(own)) % 2
    pooled = labels(own.raw / 5, own.human / 5, item, ("p", "q"))
    found = rows(decide(pooled, Calibration(method="identity")))["identity"]
    expected = rows(decide(own, Calibration(method="identity")))["identity"]
    assert found.qwk == pytest.approx(expected.qwk)
    assert found.rmse == pytest.approx(expected.rmse)


def test_standard_errors_agree_with_the_bootstrap_over_authors():
    given = judged(4, 300)
    given = labels(given.raw, given.human, cluster=np.array([f"author {k // 2}" for k in range(300)]))
    found = rows(decide(given, Calibration(choose_by="qwk")))
    scores = {name: cross_fit(name, given, folds(given.cluster), 2.5).aligned for name in ("identity", "linking")}
    gap = paired_bootstrap(given.human, scores["linking"], scores["identity"], given.cluster, (0, 5, 1))["qwk"]
    difference = found["identity"].behind - found["linking"].behind
    assert difference == pytest.approx(-gap.estimate)
    assert found["stacked"].behind == 0
    against = cross_fit("stacked", given, folds(given.cluster), 2.5).aligned
    gap = paired_bootstrap(given.human, scores["identity"], against, given.cluster, (0, 5, 1))["qwk"]
    assert found["identity"].behind_se == pytest.approx((gap.high - gap.low) / (2 * 1.96), rel=0.15)


# the choice


@pytest.mark.parametrize("seed", range(6))
def test_a_judge_who_agrees_with_people_is_left_as_it_is_however_the_noise_of_few_labels_falls(seed):
    rng = np.random.default_rng(seed)
    human = rng.integers(0, 6, 25).astype(float)
    raw = np.where(rng.random(25) < 0.1, np.clip(human + rng.choice([-1, 1], 25), 0, 5), human)
    given = labels(raw, human)
    found = decide(given, Calibration())
    assert found.method == "identity" or found.tried.weight <= 0.5
    assert (given.levels(found.tried.aligned) == raw).mean() >= 0.9
    assert found.method != "identity" or found.reason.startswith("the raw score is kept, which 25 labels do not show ")


def test_the_weight_is_that_of_the_likelihoods_and_rises_with_the_labels():
    weights = []
    for n in (12, 40, 200):
        given = judged(5, n)
        mapped = cross_fit("linking", given, folds(given.cluster), 2.5).aligned
        ratios = [
            (1 - qwk(given.human, given.raw, 0, 5).value + 1 / n) / (1 - qwk(given.human, mapped, 0, 5).value + 1 / n)
        ]
        steps = [np.floor(np.clip(scores, 0, 5) + 0.5) for scores in (given.raw, mapped)]
        errors = [np.mean((given.human - level) ** 2) + 1 / (12 * n) for level in steps]
        ratios.append(errors[0] / errors[1])
        # The root of the likelihood ratio of two regressions with normal errors, by the mean of both misfits.
        odds = 0.5 * np.prod(ratios) ** (n / 8)
        weight = weight_of(mapped, given)
        assert abs(weight - odds / (1 + odds)) <= 1 / 8 + 1e-9
        assert weight in (0, 0.25, 0.5, 0.75, 1)
        weights.append(weight)
    assert weights == sorted(weights)
    assert weights[-1] == 1
    given = judged(5, 40)
    assert weight_of(given.raw[::-1].copy(), given) == 0


def test_part_of_the_way_is_stored_as_it_was_weighed():
    given = judged(7, 14)
    plain = cross_fit("linking", given, folds(given.cluster), 2.5)
    part = towards_raw(plain, given, 0.25)
    np.testing.assert_allclose(part.aligned, 0.75 * given.raw + 0.25 * plain.aligned)
    new = judged(8)
    whole = apply_to_labels(plain.mapping, new).aligned
    np.testing.assert_allclose(
        apply_to_labels(plain.mapping, new, part.weight).aligned, 0.75 * new.raw + 0.25 * whole, atol=1e-11
    )


def test_a_method_that_is_clearly_better_is_taken():
    rng = np.random.default_rng(8)
    truth = rng.uniform(0, 5, 600)
    human = np.clip(np.round(truth + rng.normal(0, 0.3, 600)), 0, 5)
    found = decide(labels(truth**3 / 25, human, matrix=rng.normal(size=(600, 1))), Calibration(choose_by="rmse"))
    assert found.method == "isotonic"
    assert found.reason.startswith("better by more than a standard error than the standard mapping, stacked with ")
    assert rows(found)["isotonic"].behind < 0


# nothing that misleads


def test_signals_without_the_score_are_a_control_that_only_they_serve():
    rng = np.random.default_rng(20)
    human = rng.integers(0, 6, 80).astype(float)
    length = rng.normal(size=80)
    given = replace(labels(human, human, matrix=length[:, None]), names=("length",), has_score=False)
    found = decide(given, Calibration())
    assert found.method in ("stacked", "rulers")
    assert abs(rows(found)[found.method].qwk) < 0.4
    for method in ("identity", "linking", "linear", "isotonic"):
        assert rows(found)[method].tried is None
        assert "leave out" in rows(found)[method].note


@pytest.mark.parametrize(("n", "method"), [(9, "choose"), (60, "linear"), (60, "identity")])
def test_a_control_that_cannot_be_fitted_is_refused_rather_than_scored_by_the_judge(n, method):
    human = np.arange(n) % 6.0
    given = replace(labels(human, human), names=("length",), has_score=False)
    with pytest.raises(ContractError, match="leave the judge's score out"):
        decide(given, Calibration(method=method))


def classes(seed, items, each, between, within):
    """Items whose means differ far more than the responses of one; a judge who tells these apart, not the items."""
    rng = np.random.default_rng(seed)
    item = np.repeat(np.arange(items), each)
    own = rng.normal(0, within, items * each)
    human = np.clip(np.round(2.5 + rng.normal(0, between, items)[item] + own), 0, 5)
    raw = np.clip(np.round(2.5 + own + rng.normal(0, within, items * each)), 0, 5)
    return labels(raw / 5, human / 5, item, tuple(f"q{at:02d}" for at in range(items)))


@pytest.mark.parametrize("seed", range(3))
def test_pooled_methods_are_weighed_by_agreement_within_items(seed):
    given = classes(seed, 12, 15, 2.0, 0.6)
    found = decide(given, Calibration())
    tried = [one for one in found.candidates if one.tried]
    assert all(one.qwk_within is not None for one in tried)
    for one in tried:
        level = given.levels(one.tried.aligned)
        human = given.levels(given.human)
        worth = []
        for kept in (np.arange(180) >= 0, *(given.cluster != author for author in np.unique(given.cluster))):
            top = bottom = 0.0
            for at in range(12):
                h, m = human[kept & (given.item == at)], level[kept & (given.item == at)]
                top += 2 * np.sum((h - h.mean()) * (m - m.mean()))
                bottom += np.sum((h - h.mean()) ** 2 + (m - m.mean()) ** 2 + (h.mean() - m.mean()) ** 2)
            worth.append(top / bottom)
        assert one.qwk_within == pytest.approx(worth[0])
        assert one.worth == pytest.approx(np.array(worth))


def test_one_score_for_everybody_on_a_question_is_refused():
    given = classes(3, 10, 8, 2.0, 0.7)
    constant = np.array([given.human[given.item == at].mean() for at in range(10)])[given.item]
    human = given.levels(given.human)
    assert _one_score_each(given, human, given.levels(constant)) == (
        "it gives all responses of an item one score, where people and the judge tell them apart"
    )
    assert _one_score_each(given, human, given.levels(given.raw)) is None
    flat = labels(np.full(80, 0.4), given.human, given.item, given.items)
    assert _one_score_each(flat, human, given.levels(constant)) is None


@pytest.mark.parametrize("method", [*STANDARD, "ridge"])
def test_a_method_by_name_is_taken_and_still_compared(method):
    found = decide(judged(9), Calibration(method=method))
    assert (found.method, found.reason) == (method, "asked for by the study")
    assert all(one.qwk is not None for one in found.candidates if one.method != "text_only")
    assert rows(found)["text_only"].note == "the study's features hold nothing of the text"


def test_the_ablation_is_never_chosen_unless_asked_for():
    assert "ridge" not in rows(decide(judged(9), Calibration()))
    assert rows(decide(judged(9), Calibration(method="ridge")))["ridge"].tried is not None


def test_a_refused_method_by_name_keeps_the_raw_score_and_says_so():
    given = judged(10)
    found = decide(labels(5 - given.raw, given.human), Calibration(method="linear"))
    assert found.method == "identity"
    assert found.reason.startswith("the study asks for linear, but its slope is -")
    assert rows(found)["linear"].qwk is None
    assert rows(found)["linear"].note.startswith("its slope is -")


@pytest.mark.parametrize("method", ["choose", "linear"])
def test_too_few_labels_or_authors_keep_the_raw_score(method):
    given = judged(11, 9)
    found = decide(given, Calibration(method=method))
    assert (found.method, found.folds, found.tried) == ("identity", 0, None)
    assert found.reason == "9 usable labels, fewer than 10: the raw score is kept"
    assert {one.note for one in found.candidates} == {"9 usable labels, fewer than 10"}
    given = judged(11, 40)
    found = decide(labels(given.raw, given.human, cluster=np.array(["author a"] * 40)), Calibration(method=method))
    assert (found.method, found.folds) == ("identity", 0)
    assert "one author" in found.reason


def test_one_author_of_nearly_all_labels_leaves_the_raw_score_as_the_only_candidate():
    given = judged(12, 20)
    found = decide(labels(given.raw, given.human, cluster=np.array(["author a"] * 19 + ["author b"])), Calibration())
    assert (found.method, found.folds) == ("identity", 2)
    assert [one.method for one in found.candidates if one.tried] == ["identity"]
    assert rows(found)["linear"].note == "fewer than two labels to fit, in one fold"


def test_people_who_all_give_one_score_leave_qwk_undefined_for_who_agrees():
    found = decide(labels([1.0, 2, 3, 4, 5] * 4, [2.0] * 20), Calibration())
    assert found.method == "identity"
    assert rows(found)["rulers"].note == "QWK is undefined"


# labels that were chosen


def chosen_beside(given, cluster="other"):
    """Twenty labels that were chosen, on which a line falls."""
    raw = np.tile([1.0, 4.0], 10)
    return labels(raw, 5 - raw, cluster=np.array([f"{cluster} {k}" for k in range(20)]))


@pytest.mark.parametrize("method", ["linear", "linking", "rulers"])
def test_chosen_labels_teach_the_mapping_and_are_not_predicted(method):
    given = judged(1)
    chosen = chosen_beside(given)
    found = cross_fit(method, given, folds(given.cluster), 2.5, chosen)
    assert found.mapping == fit_method(method, given.joined_with(chosen), 2.5)
    assert found.mapping != cross_fit(method, given, folds(given.cluster), 2.5).mapping
    assert len(found.aligned) == len(given)


def test_a_chosen_label_does_not_teach_the_fold_of_its_author():
    given = judged(2)
    fold = folds(given.cluster)
    out = fold == 0
    mine = labels([2.0], [5.0], cluster=given.cluster[out][:1])
    apart, beside = (cross_fit("linear", given, fold, 2.5, chosen).aligned for chosen in (None, mine))
    np.testing.assert_array_equal(apart[out], beside[out])
    assert (apart[~out] != beside[~out]).any()


def test_the_figures_are_those_of_drawn_labels():
    given = judged(3)
    found = decide(given, Calibration(), chosen_beside(given))
    aligned = cross_fit("linear", given, folds(given.cluster), 2.5, chosen_beside(given)).aligned
    assert rows(found)["linear"].rmse == pytest.approx(float(np.sqrt(np.mean((aligned - given.human) ** 2))))
    assert len(found.fold) == len(given)


def test_the_reason_gives_the_figures_inside_folds():
    given = judged(6)
    found = decide(given, Calibration())
    own, raw = (rows(found)[name].qwk for name in (found.method, "identity"))
    assert found.method != "identity"
    assert found.reason.endswith(f": QWK {own:.3f} inside 10 folds, the raw score {raw:.3f}")
