"""Tables → labels: marks and trait scores become levels, scores become grades."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders.bundles import bundle as locked
from builders.bundles import criterion, trait
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.methods import Bottleneck
from rubricflow.tasks.methods.bottleneck.class_set import (
    common_bundle,
    given_levels,
    grade_classes,
    grades_of,
    labelled,
    levels_of,
    marks_of,
)
from rubricflow.tasks.methods.bottleneck.data import MISSING

IDS = ["r1", "r2", "r3"]


CRITERIA = (
    criterion("ideas", levels=("a", "b", "c", "d")),
    criterion("order", "u"),
    criterion("words", "u"),
    criterion("depth", "v", levels=tuple("012345")),
)


def bundle(*criteria: Criterion, **changes: Any) -> Bundle:
    of = {
        "traits": (trait("t", 1, 4, name="Ideas"), trait("u"), trait("v", 0, 200, 40, name="Depth")),
        "name": "concepts",
    }
    return locked(*criteria or CRITERIA, **of | changes)


def judgments(*rows: tuple[str, str, str, int | None]) -> pa.Table:
    names = ("response_id", "criterion_id", "rater_id", "decision")
    return pa.table({name: pa.array([row[at] for row in rows]) for at, name in enumerate(names)})


def gradings(*rows: tuple[str, str, dict[str, float]]) -> pa.Table:
    traits = pa.array([list(row[2].items()) for row in rows], pa.map_(pa.string(), pa.float64()))
    columns = {name: [row[at] for row in rows] for at, name in enumerate(("response_id", "rater_id"))}
    return pa.table(columns | {"trait_scores": traits})


def test_a_trait_of_one_concept_labels_it_and_a_mark_wins() -> None:
    found = marks_of(
        judgments(("r1", "order", "anna", 1), ("r1", "ideas", "anna", 0), ("r9", "order", "anna", 1)),
        gradings(("r1", "anna", {"t": 4.0, "u": 9.0, "v": 120.0}), ("r2", "ben", {"t": 1.0})),
        bundle(),
        IDS,
    )
    assert found["anna"][0].tolist()[:2] == [
        0,
        1,
    ]  # its mark, not its trait's 4; the trait of two concepts says nothing
    assert math.isnan(found["anna"][0, 2])
    assert found["anna"][0, 3] == 3
    assert found["ben"][1, 0] == 0
    assert np.isnan(found["ben"]).sum() == 11


def test_the_mean_of_persons_is_rounded_half_up_and_gaps_stay_gaps() -> None:
    marks = {"a": np.array([[1.0, np.nan]]), "b": np.array([[2.0, np.nan]]), "machine": np.array([[9.0, 9.0]])}
    found = levels_of(marks, "mean", ["a", "b", "nobody"])
    assert found[0, 0] == 2
    assert math.isnan(found[0, 1])
    assert levels_of(marks, "machine", ["a"]) is marks["machine"]


@pytest.mark.parametrize(("whose", "persons", "rule"), [("c", ["a"], "marked no concept"), ("mean", [], "no person")])
def test_labels_of_nobody_are_refused(whose: str, persons: list[str], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        levels_of({"a": np.zeros((1, 1))}, whose, persons)


@given(st.integers(2, 40), st.data())
def test_bands_are_equal_rising_and_hold_the_score_they_stand_for(levels: int, data: st.DataObject) -> None:
    bands, low = data.draw(st.integers(2, levels)), data.draw(st.integers(-5, 5))
    scale = Scale(min=low, max=low + levels - 1)
    scores = low + np.arange(levels, dtype=np.float64)
    classes, stands = grades_of(scores, scale, bands), grade_classes(scale, bands)
    assert (np.diff(classes) >= 0).all()
    sizes = np.bincount(classes, minlength=bands)
    assert len(sizes) == bands
    assert sizes.max() - sizes.min() <= 1
    assert grades_of(stands, scale, bands).tolist() == list(range(bands))


def test_scores_are_rounded_half_up_onto_the_scale() -> None:
    scale = Scale(min=0, max=5)
    assert grades_of(np.array([2.5, 2.49, np.nan, 7.0, -1.0]), scale, None).tolist() == [3, 2, MISSING, 5, 0]
    assert grade_classes(Scale(min=0, max=1, step=0.5), None).tolist() == [0, 0.5, 1]
    with pytest.raises(InputError, match="7 bands of 6 scores"):
        grade_classes(scale, 7)


def test_rows_are_those_of_the_responses() -> None:
    responses = pa.table({"response_id": IDS, "split": ["train", "test", "calibration"]})
    levels = np.array([[1, 0, 1, 5], [np.nan] * 4, [2, 1, 0, 0]])
    found = labelled(responses, bundle(), levels, np.array([10.0, np.nan, 0.0]), 2)
    assert found.levels[1].tolist() == [MISSING] * 4
    assert found.grades.tolist() == [1, MISSING, 0]
    assert found.concepts.tops.tolist() == [3, 1, 1, 5]
    assert found.concepts.names == ("Ideas", "Order", "Words", "Depth")
    assert found.rows("test").tolist() == [1]


def test_rubrics_that_word_a_concept_differently_are_one_bottleneck() -> None:
    other = bundle(*(c.model_copy(update={"text": f"{c.text} Here."}) for c in CRITERIA))
    assert common_bundle({"a": bundle(), "b": other}).text == ""


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        (bundle(ends=(0, 9)), "'a' and 'b' differ"),
        (bundle(*CRITERIA[:3]), "'a' and 'b' differ"),
        (bundle(*CRITERIA[:3], criterion("bias", "v")), "'a' and 'b' differ"),
    ],
)
def test_rubrics_that_differ_make_no_bottleneck(changed: Bundle, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        common_bundle({"a": bundle(), "b": changed})


def test_no_concept_is_called_bias() -> None:
    with pytest.raises(InputError, match="no concept can be called 'bias'"):
        common_bundle({"a": bundle(criterion("bias", "v"))})
    with pytest.raises(InputError, match="there is no rubric"):
        common_bundle({})


def test_noise_is_told_apart_only_where_several_marked() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 4, (60, 1)).astype(float)
    marks = {name: np.clip(truth + rng.integers(-1, 2, truth.shape), 0, 3) for name in "abc"}
    plan = Bottleneck(rater_noise=True)
    levels, weights = given_levels(plan, bundle(criterion("c", "u", levels=tuple("0123"))), marks, list("abc"), 60)
    assert levels.shape == weights.shape == (60, 1)
    assert ((weights > 0) & (weights <= 1)).all()
    with pytest.raises(InputError, match="at least two persons"):
        given_levels(plan, bundle(criterion("c", "u", levels=tuple("0123"))), marks, ["a"], 60)
