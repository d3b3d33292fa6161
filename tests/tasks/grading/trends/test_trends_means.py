"""Arms of judged answers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from trends_scene import labels, verdicts

from rubricflow.tasks.grading.trends.means import mean_rows, together


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
