"""Arms of judged answers, and corrected means: against ppi-python where it is installed, the regression estimator by
hand, and the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from rubricflow.tasks.grading.trends.means import Cases, corrected_mean, mean_rows, together
from rubricflow.tasks.grading.trends.moved import drifted, observed


def verdicts(seed: int, answers: int = 200, shift: float = 0.0, start: int = 0, **columns: Any) -> pd.DataFrame:
    """An invented judge: one score 0 to 1 for each answer, its own case, whose true score is in `truth`."""
    rng = np.random.default_rng(seed)
    truth = rng.random(answers)
    score = np.clip(0.8 * truth + 0.2 * rng.random(answers) + shift, 0, 1)
    ids = [f"a{number:05d}" for number in range(start, start + answers)]
    frame = pd.DataFrame(
        {
            **{"answer_id": ids, "case_id": ids, "subject": None, "group": None, "criterion": "", "sample": 0},
            **{"score": score, "status": "scored", "explanation": None, "answer": "an answer of some words"},
            **{"output_tokens": np.nan, "truth": truth},
        }
    )
    return frame.assign(**columns)


def labels(frame: pd.DataFrame, number: int) -> pd.DataFrame:
    """People's labels on the first answers."""
    kept = frame.head(number)
    return pd.DataFrame(
        {
            "answer_id": kept["answer_id"],
            "criterion": kept["criterion"],
            "rater": "p",
            "score": kept["truth"],
            "split": None,
        }
    )


def test_two_logs_are_compared_and_labels_name_the_log_they_mean() -> None:
    one, two = verdicts(0), verdicts(1, answer="other words")
    rows = together({"one": one, "two": two})
    assert set(rows["answer_id"].str.split(":").str[1]) == {"one", "two"}
    people = pd.concat([labels(rows[rows["log"] == name], 60) for name in ("one", "two")])
    made = mean_rows(rows, people)
    assert [(row["arm"], row["less"]) for row in made] == [("one", ""), ("two", ""), ("two", "one")]
    gap = made[2]
    assert gap["value"] == pytest.approx(made[1]["value"] - made[0]["value"], abs=0.02)
    assert gap["low"] < two["truth"].mean() - one["truth"].mean() < gap["high"]
    assert (gap["labels"], gap["answers"]) == (120, 400)


def test_the_same_answers_judged_twice_share_their_labels() -> None:
    frame = verdicts(0)
    rows = together({"one": frame, "two": frame.assign(score=frame["score"] + 0.1)})
    made = mean_rows(rows, labels(frame, 50))
    assert [row["less"] for row in made] == ["", ""]  # people's scores of the same answers are the same
    assert made[1]["value"] == pytest.approx(made[0]["value"], abs=1e-9)
    assert made[1]["by_judge"] == pytest.approx(made[0]["by_judge"] + 0.1)


def test_subjects_and_slices() -> None:
    frame = verdicts(0, subject=np.resize(["m1", "m2"], 200), group=np.repeat(["x", "y"], 100))
    made = mean_rows(together({"log": frame}), labels(frame.sample(frac=1, random_state=0), 120))
    keys = {(row["arm"], row["less"], row["slice"], row["value_of"]) for row in made}
    assert ("m2", "m1", "group", "x") in keys
    assert all(row["high"] - row["low"] <= row["labels_high"] - row["labels_low"] for row in made)


def test_labels_chosen_to_teach_are_left_out_and_probabilities_count() -> None:
    frame = verdicts(0, 400)
    people = labels(frame, 400)
    chosen = people.assign(split=np.where(people["score"] < 0.5, "chosen", None))
    assert mean_rows(together({"log": frame}), chosen)[0]["labels"] == int((people["score"] >= 0.5).sum())
    chance = np.where(people["score"] > 0.5, 0.8, 0.2)
    drawn = people[np.random.default_rng(7).random(400) < chance]
    weighted = drawn.assign(probability=np.where(drawn["score"] > 0.5, 0.8, 0.2))
    truth = frame["truth"].mean()
    row = mean_rows(together({"log": frame}), weighted)[0]
    assert row["low"] < truth < row["high"]
    assert drawn["score"].mean() > truth + 0.1


def test_no_label_no_row() -> None:
    frame = verdicts(0)
    assert mean_rows(together({"log": frame}), labels(verdicts(1, start=1000), 20)) == []


def cases(seed: int, labels: int, cases: int = 400, strength: float = 0.8, size: int = 1) -> tuple[Cases, float]:
    """A judge of this correlation with people, 0.3 too high; of clusters of `size` cases whole ones are labelled."""
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(cases // size), size)
    truth = rng.normal(size=cases // size)[clusters] * (size > 1) + rng.normal(size=cases)
    scores = strength * truth + np.sqrt(1 - strength**2) * rng.normal(size=cases) + 0.3
    drawn = np.isin(clusters, rng.choice(cases // size, labels // size, replace=False))
    return Cases(scores, np.where(drawn, truth, np.nan), clusters, np.ones(cases)), float(truth.mean())


def test_the_estimate_is_that_of_ppi_python() -> None:
    ppi = pytest.importorskip("ppi_py", reason="ppi-python is not installed here: it needs statsmodels and gdown")
    arm, _ = cases(0, 60)
    has = ~np.isnan(arm.labels)
    found = corrected_mean([arm])
    # There λ weighs the unlabelled cases alone, here all of them.
    weight = found.weights[0] * (~has).mean()
    theirs = ppi.ppi_mean_pointestimate(arm.labels[has], arm.scores[has], arm.scores[~has], lam=weight)
    assert found.corrected.value == pytest.approx(float(np.ravel(theirs)[0]), abs=1e-9)


def test_lambda_is_the_slope_of_the_regression_estimator_with_many_labels() -> None:
    arm, _ = cases(1, 2000, 20_000, 0.8)
    has = ~np.isnan(arm.labels)
    slope = np.polyfit(arm.scores[has], arm.labels[has], 1)[0]
    found = corrected_mean([arm])
    assert found.weights[0] == pytest.approx(slope, abs=0.02)
    residual = arm.labels[has] - slope * arm.scores[has]
    error = np.sqrt(residual.var() / has.sum() + (slope**2 * arm.scores.var()) / len(has))
    assert found.corrected.high - found.corrected.low == pytest.approx(2 * 1.96 * error, rel=0.05)


@pytest.mark.parametrize(("labels", "size", "strength"), [(20, 1, 0.0), (20, 1, 0.9), (100, 5, 0.8), (200, 1, 0.5)])
def test_intervals_hold_the_truth_and_are_never_wider_than_labels_alone(
    labels: int, size: int, strength: float
) -> None:
    held, runs = 0, 200
    for seed in range(runs):
        arm, _ = cases(seed, labels, 1000, strength, size)
        found = corrected_mean([arm])
        held += found.corrected.low <= 0.0 <= found.corrected.high
        assert found.corrected.high - found.corrected.low <= found.labels.high - found.labels.low
    assert held >= 0.90 * runs  # three standard errors below .95


def test_a_pass_rate_without_failures_has_an_interval() -> None:
    scores = np.ones(200)
    labels = np.where(np.arange(200) < 30, 1.0, np.nan)
    found = corrected_mean([Cases(scores, labels, np.arange(200), np.ones(200))])
    assert found.corrected.value == 1.0
    assert found.corrected.low is not None
    assert 0.80 < found.corrected.low < 0.95


def test_labels_drawn_unevenly_count_by_their_probability() -> None:
    errors = {"weighted": [], "plain": []}
    for seed in range(60):
        arm, _ = cases(seed, 1000, 1000, 0.0)
        chance = np.where(arm.labels > 0, 0.5, 0.1)
        drawn = np.random.default_rng(seed).random(1000) < chance
        labels = np.where(drawn, arm.labels, np.nan)
        for name, weights in (("weighted", 1 / chance), ("plain", np.ones(1000))):
            found = corrected_mean([arm._replace(labels=labels, weights=weights)])
            errors[name].append(found.corrected.value)
    assert abs(np.mean(errors["weighted"])) < 0.05
    assert np.mean(errors["plain"]) > 0.3


def test_strata_keep_their_shares() -> None:
    strata = np.repeat([0, 1], [900, 100])
    truth = np.where(strata == 1, 10.0, 0.0) + np.random.default_rng(0).normal(size=1000)
    labels = np.where((np.arange(1000) % 9 == 0) | (strata == 1), truth, np.nan)
    arm = Cases(np.zeros(1000), labels, np.arange(1000), np.ones(1000), strata)
    found = corrected_mean([arm])
    assert found.corrected.value == pytest.approx(1.0, abs=0.2)
    assert found.corrected.high - found.corrected.low < 0.6  # within strata only; the strata themselves are 10 apart
    with pytest.raises(ValueError, match="stratum"):
        corrected_mean([arm._replace(labels=np.where(strata == 1, np.nan, labels))])


def test_a_difference_is_paired_where_cases_are_the_same() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=300) * 3
    has = np.arange(300) < 60
    arms = []
    for shift in (0.0, 0.5):
        people = truth + shift + 0.2 * rng.normal(size=300)
        arms.append(Cases(people + rng.normal(size=300), np.where(has, people, np.nan), np.arange(300), np.ones(300)))
    paired = corrected_mean(arms).corrected
    apart = corrected_mean([arms[0], arms[1]._replace(clusters=np.arange(300) + 1000)]).corrected
    assert paired.low <= 0.5 <= paired.high
    assert (paired.high - paired.low) * 3 < apart.high - apart.low


def test_so_many_labels_halve_the_interval() -> None:
    arm, _ = cases(3, 100, 40_000, 0.8)
    found = corrected_mean([arm])
    more, _ = cases(3, 100 + found.to_halve, 40_000, 0.8)
    again = corrected_mean([more]).corrected
    width = found.corrected.high - found.corrected.low
    assert again.high - again.low == pytest.approx(width / 2, rel=0.2)


def test_where_all_is_labelled_the_judge_adds_nothing() -> None:
    arm, _ = cases(0, 400)
    found = corrected_mean([arm])
    assert found.weights == (0.0,)
    assert found.corrected == found.labels


def test_few_clusters_have_no_interval_and_no_label_is_refused() -> None:
    arm, _ = cases(0, 15, 400, 0.8, 5)
    assert corrected_mean([arm]).corrected.low is None
    with pytest.raises(ValueError, match="label"):
        corrected_mean([arm._replace(labels=np.full(400, np.nan))])


# What is watched of logs, and what of it moved.


def channels(frame: pd.DataFrame) -> dict[str, float]:
    whole = frame[frame["slice"] == "all"]
    return whole.groupby("channel")["value"].mean().to_dict()


def test_what_is_watched_of_an_answer() -> None:
    frame = pd.DataFrame(
        {
            **{"answer_id": ["a", "a", "b"], "case_id": ["a", "a", "b"], "subject": None, "group": ["x", "x", "y"]},
            **{"criterion": "", "sample": [0, 1, 0], "score": [0.0, 1.0, np.nan]},
            **{"status": ["scored", "scored", "refused"], "output_tokens": np.nan},
            "explanation": ['It says "water boils at once" here.', 'It says "never heard of that".', None],
            "answer": ["water boils at once", "water boils at once", "no"],
        }
    )
    people = pd.DataFrame({"answer_id": ["a", "a"], "criterion": "", "score": [1.0, 0.0]})
    found = channels(observed(frame, people))
    assert found == {
        **{"score": 0.5, "refused": 0.5, "answer_length": 10.5, "explanation_length": 32.5, "failed_quotes": 0.5},
        **{"disagreement": pytest.approx(np.sqrt(0.5)), "label": 0.5, "judge_bias": 0.0},
    }
    by_group = observed(frame).query("slice == 'group' and channel == 'refused'")
    assert dict(zip(by_group["value_of"], by_group["value"], strict=True)) == {"x": 0.0, "y": 1.0}


def test_other_cases_of_the_same_judge_did_not_move() -> None:
    for seed in range(5):
        found = drifted([observed(verdicts(seed))], [observed(verdicts(seed + 100, start=1000))])
        assert not found.found
        assert (found.is_paired, found.to_label) == (False, 0)


def test_the_slice_that_moved_is_named() -> None:
    groups = np.resize(["maths", "history"], 200)
    old = observed(verdicts(0, group=groups))
    new = verdicts(1, start=1000, group=groups)
    new.loc[new["group"] == "maths", "score"] -= 0.4
    moved = {(row.channel, row.slice, row.value_of) for row in drifted([old], [observed(new)]).found}
    assert ("score", "group", "maths") in moved
    assert ("score", "group", "history") not in moved


def test_another_judge_on_the_same_cases_is_compared_case_by_case() -> None:
    old = verdicts(0)
    new = old.assign(score=old["score"] + 0.03)
    found = drifted([observed(old)], [observed(new)])
    assert found.is_paired
    assert [row.channel for row in found.found] == ["score"]
    assert not drifted([observed(old)], [observed(verdicts(1, shift=0.03, start=1000))]).found


def test_a_judge_that_is_fooled_is_found_by_labels_alone() -> None:
    old, new = verdicts(0), verdicts(1, 50, start=1000)
    new["truth"] = np.clip(new["truth"] - 0.4, 0, 1)  # the judge sees nothing of it
    people = pd.concat([labels(old, 200), labels(new, 50)])
    found = drifted([observed(old, people)], [observed(new, people)])
    assert {row.channel for row in found.found} >= {"judge_bias"}
    assert found.to_label >= 50
    unlabelled = drifted([observed(old)], [observed(new)])
    assert not unlabelled.found


def test_answers_of_a_class_are_compared_within_their_question() -> None:
    case = np.repeat(["q1", "q2", "q3", "q4"], 50)
    old = verdicts(0, case_id=case)
    new = verdicts(1, start=1000, case_id=np.repeat(["q1", "q2"], 100))
    assert not drifted([observed(old)], [observed(new)]).is_paired
    assert not drifted([observed(old)], [observed(new)]).found
