"""What a reviewer reads of a calibrated score."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.tables.judging import UNSCORED_REASONS
from rubricflow.tasks.people.review.board import (
    NO_INTERVAL,
    PredictedScore,
    as_words,
    predicted_score,
    score_texts,
    without_score,
)

ROW = {"score": 2.0, "raw": 5.0, "low": 1.0, "high": 4.0, "risk": 0.4, "unscored_reason": None}
TEN = Scale(min=0, max=10)


def test_a_score_stands_with_its_interval_its_chance_and_the_points_it_was_made_of() -> None:
    words = as_words(predicted_score(ROW | {"level_probabilities": [0.1, 0.1, 0.45, *[0.05] * 8]}, TEN), TEN)
    assert words == {
        "value": "2",
        "sentence": "2 of 10, probably between 1 and 4",
        "points": "By the rubric's points alone: 5 of 10",
        "chance": "In about 45 of 100 such answers, a person would give exactly 2",
    }


@pytest.mark.parametrize("reason", list(UNSCORED_REASONS))
def test_without_a_score_there_is_a_reason_and_nothing_to_take(reason: str) -> None:
    words = as_words(PredictedScore(None, None, None, None, None, reason), TEN)
    assert words == without_score(UNSCORED_REASONS[reason])
    assert words["value"] is None


SCALES = st.builds(
    lambda low, step, count: Scale(min=low, max=low + step * count, step=step),
    st.integers(-3, 3).map(float),
    st.sampled_from((0.25, 0.5, 1.0, 2.0, 5.0)),
    st.integers(1, 20),
)


@given(SCALES, st.data())
def test_whatever_the_scale_the_value_is_a_vote_on_it_and_no_number_is_unreadable(
    scale: Scale, data: st.DataObject
) -> None:
    level = data.draw(st.integers(0, scale.levels - 1))
    score = scale.min + level * scale.step
    reach = data.draw(st.none() | st.floats(0, 5))
    chance = data.draw(st.none() | st.floats(0, 1))
    ends = (None, None) if reach is None else (score - reach, score + reach)
    points = data.draw(st.none() | st.floats(scale.min, scale.max))
    words = as_words(PredictedScore(score, points, *ends, chance, None), scale)
    assert words["value"] == score_texts(scale)[level]
    assert (NO_INTERVAL in words["sentence"]) == (reach is None)
    numbers = re.findall(r"-?\d[\d.e]*", " ".join(filter(None, (words["sentence"], words["points"], words["chance"]))))
    assert all(len(number) < 10 and math.isfinite(float(number.rstrip("."))) for number in numbers)
    assert "-0 " not in f"{words['sentence']} "
