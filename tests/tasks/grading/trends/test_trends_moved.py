"""What is watched of logs, and what of it moved."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from trends_scene import labels, verdicts

from rubricflow.tasks.grading.trends.moved import drifted, observed


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
