"""Human scores between the steps of their scale are refused with the step that holds them, whatever the scale."""

from __future__ import annotations

from contextlib import nullcontext
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.grading.lock.people import (
    MOST_STEPS,
    Offence,
    between_steps,
    off_step,
    refuse_tolerance,
    widest_step,
)


def given_scores(*scores: float, rubric: str = "r", averaged: bool = False) -> pd.DataFrame:
    ids = [f"x{n}" for n in range(len(scores))]
    row = {"rubric_id": rubric, "rater_id": "a", "averaged": averaged}
    return pd.DataFrame({"response_id": ids, "score": np.array(scores, dtype=float)}).assign(**row)


def unfit(*scored: pd.DataFrame, top: float = 1) -> tuple[Offence, str] | None:
    return off_step(pd.concat(scored), dict.fromkeys(("r", "other"), Scale(min=0, max=top)))


def test_the_count_the_first_rows_and_the_step_are_named() -> None:
    offence, hint = unfit(given_scores(0, 0.25), given_scores(0.5, 1, 0.75, 0.25)) or pytest.fail("passed")
    assert (offence.response_id, offence.rater_id, offence.part) == ("x1", "a", None)
    assert offence.rule == (
        "4 of 6 human scores lie between the steps of rubric 'r', 0 to 1 in steps of 1: rater 'a' gave response 'x1' "
        "0.25, rater 'a' gave response 'x0' 0.5, rater 'a' gave response 'x2' 0.75, …"
    )
    assert hint.startswith("scale {min: 0, max: 1, step: 0.25} holds them all; ")


def test_the_step_holds_the_scores_of_every_rubric_on_the_scale() -> None:
    _, hint = unfit(given_scores(0.5), given_scores(1 / 3, rubric="other")) or pytest.fail("passed")
    assert "step: 0.166666666667}" in hint


def test_a_recorded_mean_may_lie_between_steps() -> None:
    assert unfit(given_scores(0.25, averaged=True), given_scores(0, 1)) is None


def test_what_no_step_holds_looks_continuous() -> None:
    scores = np.random.default_rng(0).uniform(0, 4, 50)
    _, hint = unfit(given_scores(*scores), top=4) or pytest.fail("passed")
    assert "look continuous" in hint


@given(
    low=st.integers(-5, 20),
    width=st.integers(1, 60),
    count=st.integers(1, MOST_STEPS),
    places=st.lists(st.integers(0, MOST_STEPS), min_size=1, max_size=30),
    kind=st.sampled_from([np.float64, np.float32]),
)
def test_the_proposed_step_is_a_scale_that_holds_all_and_no_wider_one_does(
    low: int, width: int, count: int, places: list[int], kind: type
) -> None:
    shares = [Fraction(min(place, count), count) for place in places]
    values = np.array([float(low + width * share) for share in shares], dtype=kind).astype(float)
    scale = Scale(min=low, max=low + width)
    step = widest_step(values, scale)
    assert step is not None
    told = Scale(min=low, max=low + width, step=float(f"{step:.12g}"))  # as the message writes it
    assert not between_steps(values, told).any()
    exact = next(n for n in range(1, count + 1) if all((share * n).denominator == 1 for share in shares))
    assert told.levels - 1 <= exact


@given(st.integers(1, 40), st.integers(1, 12), st.data())
def test_scores_on_the_steps_pass_with_the_dust_of_short_floats(top: int, parts: int, data: st.DataObject) -> None:
    scale = Scale(min=0, max=top, step=1 / parts)
    places = data.draw(st.lists(st.integers(0, top * parts), min_size=1, max_size=20))
    written = (np.array(places, dtype=np.float32) / np.float32(parts)).astype(float)
    assert not between_steps(written, scale).any()


@given(st.floats(0.01, 0.99), st.integers(0, 9))
def test_a_score_a_hundredth_of_a_step_off_is_refused(share: float, place: int) -> None:
    assert unfit(given_scores(0, 10, place + share), top=10) is not None


@pytest.mark.parametrize("levels", range(2, 12))
def test_a_tolerance_passes_only_where_some_level_is_wrong_for_another(levels: int) -> None:
    for tolerance in np.arange(0, 14, 0.5):
        some_wrong = any(abs(a - b) > tolerance for a in range(levels) for b in range(levels))
        with nullcontext() if some_wrong else pytest.raises(InputError, match="no score could be wrong"):
            refuse_tolerance(tolerance, "r", Scale(min=0, max=levels - 1))
