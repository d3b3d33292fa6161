"""Figures of trained graders against libraries and plain loops, and their intervals against what they promise."""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from rubricflow.tasks.methods.edit.measures import BOUNDS, GraderMarks, differences, figures

DRAWS = 200
NAN = float("nan")


class Measure(NamedTuple):
    """Columns of a figure or a difference."""

    metric: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    note: str | None
    p: float | None = None


class Row(NamedTuple):
    """A marked response."""

    item: str
    top: int
    gold: int
    given: float
    closed: bool = False


def marks(rows: list[Row]) -> GraderMarks:
    tops, gold = (np.array([row[at] for row in rows], dtype=np.int64) for at in (1, 2))
    given_marks, closed = (
        np.array([row.given for row in rows], np.float64),
        np.array([row.closed for row in rows], bool),
    )
    return GraderMarks([row.item for row in rows], tops, gold, given_marks, closed)


def sure(value: float | None) -> float:
    assert value is not None
    return value


def measured(rows: list[Row], draws: int = DRAWS) -> dict[str, Measure]:
    return {one["metric"]: Measure(**one) for one in figures(marks(rows), draws)}


@st.composite
def graded(draw: st.DrawFn) -> list[Row]:
    """Some questions of their own scales, with responses in any order; some unmarked."""
    rows = []
    for item in range(draw(st.integers(1, 4))):
        top = draw(st.integers(1, 12))
        mark = st.integers(0, top)
        for gold, given_mark in draw(st.lists(st.tuples(mark, st.none() | mark), min_size=1, max_size=8)):
            rows.append(Row(f"q{item}", top, gold, NAN if given_mark is None else given_mark))
    return draw(st.permutations(rows))


@given(graded())
@settings(max_examples=15)
def test_figures_are_those_of_a_library_and_a_loop(rows: list[Row]) -> None:
    found = measured(rows, 1)
    kappas = []
    for item in {row.item for row in rows}:
        known = [row for row in rows if row.item == item and row.given == row.given]
        if len({row.gold for row in known}) > 1:
            pair = [row.gold for row in known], [int(row.given) for row in known]
            levels = list(range(known[0].top + 1))
            kappas.append(float(cohen_kappa_score(*pair, labels=levels, weights="quadratic")))
    known = [row for row in rows if row.given == row.given]
    gaps = [abs(row.gold - row.given) for row in known]
    assert found["qwk"].value == pytest.approx(fmean(kappas) if kappas else None)
    assert found["accuracy"].value == pytest.approx(sum(gap == 0 for gap in gaps) / len(rows))
    assert found["within_1"].value == pytest.approx(sum(gap <= 1 for gap in gaps) / len(rows))
    assert found["mae"].value == pytest.approx(fmean(gaps) if gaps else None)
    assert found["unmarked"].value == pytest.approx(1 - len(known) / len(rows))
    assert (found["qwk"].n, found["mae"].n, found["accuracy"].n) == (len(known), len(known), len(rows))


@given(graded())
@settings(max_examples=15)
def test_an_interval_holds_its_figure_and_keeps_to_the_range(rows: list[Row]) -> None:
    for metric, one in measured(rows, 20).items():
        low, high = BOUNDS[metric]
        if one.value is not None and one.low is not None and one.high is not None:
            assert low <= one.low <= one.value <= one.high <= high


def test_questions_with_constant_gold_marks_are_left_out_and_counted() -> None:
    varied = [Row("a", 4, 0, 0), Row("a", 4, 4, 4), Row("a", 4, 2, 1)]
    constant = [Row("b", 4, 3, 0), Row("b", 4, 3, 4), Row("c", 4, 2, 2)]
    found = measured([*varied, *constant])["qwk"]
    assert found.value == measured(varied)["qwk"].value
    assert found.note == "questions left out because their gold marks are constant: 2"
    assert measured(constant)["qwk"][1:4] == (None, None, None)


def test_who_marks_nothing_is_always_wrong_and_has_no_error() -> None:
    found = measured([Row("a", 2, gold, NAN) for gold in range(3)])
    assert [found[name].value for name in ("accuracy", "within_1", "unmarked")] == [0, 0, 1]
    assert [found[name].value for name in ("qwk", "mae")] == [None, None]
    assert {found[name].note for name in ("qwk", "mae")} == {"no response has a mark"}


def test_without_responses_nothing_is_known() -> None:
    found = measured([])
    assert {(one.value, one.low, one.n, one.note) for one in found.values()} == {(None, None, 0, "no responses")}


def test_without_draws_there_are_figures_and_no_intervals() -> None:
    found = measured([Row("a", 2, gold, gold) for gold in range(3)], 0)
    assert found["qwk"][1:4] == (1, None, None)


def test_the_same_seed_draws_the_same() -> None:
    rows = noisy(np.random.default_rng(1), 4, 20)
    assert figures(marks(rows), DRAWS, 3) == figures(marks(rows), DRAWS, 3) != figures(marks(rows), DRAWS, 4)


def test_intervals_hold_the_true_figures_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(7)
    truth = {name: one.value for name, one in measured(noisy(rng, 30, 4000), 0).items()}
    held = dict.fromkeys(("qwk", "accuracy", "mae"), 0)
    for _ in range(40):
        found = measured(noisy(rng, 30, 20))
        for name in held:
            one = found[name]
            held[name] += sure(one.low) <= sure(truth[name]) <= sure(one.high)
    assert min(held.values()) >= 34, held  # of 40 sets


def noisy(rng: np.random.Generator, items: int, each: int) -> list[Row]:
    """A grader that is right half the time, else up to two marks off."""
    gold = rng.integers(0, 5, items * each)
    given_marks = np.where(rng.random(len(gold)) < 0.5, gold, np.clip(gold + rng.integers(-2, 3, len(gold)), 0, 4))
    return [Row(f"q{at // each}", 4, int(g), float(m)) for at, (g, m) in enumerate(zip(gold, given_marks, strict=True))]


def compared(arm: list[Row], against: list[Row]) -> dict[str, Measure]:
    return {one["metric"]: Measure(**one) for one in differences(marks(arm), marks(against), DRAWS)}


def test_a_difference_is_that_of_the_figures_and_turns_its_sign() -> None:
    rng = np.random.default_rng(2)
    rows = noisy(rng, 5, 30)
    worse = [row._replace(given=float(rng.integers(0, 5))) for row in rows]
    found, turned, mine, other = compared(rows, worse), compared(worse, rows), measured(rows), measured(worse)
    for name in BOUNDS:
        assert found[name].value == pytest.approx(sure(mine[name].value) - sure(other[name].value))
        assert found[name].value == pytest.approx(-sure(turned[name].value))
        assert found[name].low == pytest.approx(-sure(turned[name].high))
    assert sure(found["qwk"].low) > 0
    assert found["qwk"].p == pytest.approx(2 / (DRAWS + 1))


def test_equal_graders_do_not_differ() -> None:
    rows = noisy(np.random.default_rng(3), 3, 10)
    assert {(*one[1:4], one.p) for one in compared(rows, rows).values()} == {(0, 0, 0, 1)}


def test_pairing_takes_out_what_both_graders_share() -> None:
    rng = np.random.default_rng(4)
    rows = noisy(rng, 10, 30)
    one_off = [row if at % 20 else row._replace(given=float(4 - row.given)) for at, row in enumerate(rows)]
    gap, alone = compared(one_off, rows)["mae"], measured(rows)["mae"]
    assert sure(gap.high) - sure(gap.low) < 0.9 * (sure(alone.high) - sure(alone.low))


def test_qwk_and_mae_compare_what_both_have_marked() -> None:
    rows = [Row("a", 4, gold, gold) for gold in range(5)]
    half = [row if row.gold < 3 else row._replace(given=NAN) for row in rows]
    found = compared(half, rows)
    assert (found["mae"].value, found["mae"].n, found["qwk"].value) == (0, 3, 0)
    assert found["accuracy"].value == pytest.approx(-0.4)
    assert found["unmarked"].value == pytest.approx(0.4)


@given(graded(), st.data())
@settings(max_examples=20)
def test_a_mark_that_was_asked_for_counts_and_its_response_is_unmarked(rows: list[Row], data: st.DataObject) -> None:
    flags = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    asked = [row._replace(closed=flag and not np.isnan(row.given)) for row, flag in zip(rows, flags, strict=True)]
    plain, found = measured(rows, 1), measured(asked, 1)
    assert [found[name] for name in found if name != "unmarked"] == [
        plain[name] for name in plain if name != "unmarked"
    ]
    without = sum(row.closed or bool(np.isnan(row.given)) for row in asked)
    assert found["unmarked"].value == pytest.approx(without / len(rows))
