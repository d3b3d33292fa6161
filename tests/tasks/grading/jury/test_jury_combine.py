"""What several jurors say of a response, as one rater's: scores under a rule, decisions with a quote that holds."""

from __future__ import annotations

from statistics import median, multimode
from typing import Any

import numpy as np
import pytest
from builders.bundles import THREE, bundle, criterion
from builders.rows import grading as scored
from builders.rows import judgment as judgment_row
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.jury.choose import chosen, unlabelled
from rubricflow.tasks.grading.jury.combine import disagreement, grading, judgment, plain, shares_of

BUNDLE = bundle(criterion("P", levels=THREE), ends=(0, 4))
QUOTE = {"unit_id": "s1", "quote": "heat moves", "start": 0, "end": 10, "status": "verified"}
LEVELS = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=2, max_size=7)


def said(level: int | None, quoted: bool = True, **changes: Any) -> list[dict[str, Any]]:
    """What one juror decided of P; above 0 with a quote that holds, or without any."""
    evidence = [QUOTE | {"quote": f"heat moves {level}"}] if level and quoted else []
    row = judgment_row("r", "P", level, evidence=evidence, verified=quoted if level else None)
    return [row | {"level_probabilities": None} | changes]


def graded_row(**changes: Any) -> dict[str, Any]:
    return scored(confidence=None, **changes)


def decided(*of_jurors: list[dict[str, Any]], rule: str = "mean") -> dict[str, Any]:
    return judgment(BUNDLE.criteria[0], BUNDLE, "b", of_jurors, plain(rule, [1.0] * len(of_jurors)))  # type: ignore[arg-type]


@given(LEVELS)
def test_equal_jurors_are_combined_as_the_standard_library_does(levels: list[float]) -> None:
    shares, equal = np.array([levels]), [1.0] * len(levels)
    assert plain("mean", equal).scores(shares) == pytest.approx(np.mean(levels))
    assert plain("median", equal).scores(shares) == pytest.approx(median(levels))
    assert plain("majority", equal).scores(shares) == pytest.approx(np.mean(multimode(levels)))
    assert disagreement(shares, np.array(equal)) == pytest.approx(np.std(levels))


@given(LEVELS, st.data())
def test_a_juror_of_weight_two_is_two_jurors(levels: list[float], data: st.DataObject) -> None:
    twice = data.draw(st.integers(0, len(levels) - 1))
    weights = [2.0 if place == twice else 1.0 for place in range(len(levels))]
    for rule in ("mean", "median", "majority"):
        doubled = plain(rule, [1.0] * (len(levels) + 1)).scores(np.array([[*levels, levels[twice]]]))  # type: ignore[arg-type]
        assert plain(rule, weights).scores(np.array([levels])) == pytest.approx(doubled)  # type: ignore[arg-type]


def test_a_missing_juror_has_no_part_and_fewer_than_half_make_no_score() -> None:
    rule, nan = plain("mean", [1, 1, 1, 1]), np.nan
    assert rule.scores(np.array([[0.2, 0.4, nan, nan]])) == pytest.approx(0.3)
    assert np.isnan(rule.scores(np.array([[0.2, nan, nan, nan], [nan] * 4]))).all()


def test_a_jury_without_enough_scores_is_unscored_with_a_reason() -> None:
    of = {"a": [graded_row(score=None)], "b": [graded_row(score=None)], "c": [graded_row(score=2.0)]}
    made = grading(of, BUNDLE, "b", plain("mean", [1.0]), float("nan"), 0.0)
    assert (made["score"], made["status"], made["unscored_reason"]) == (None, "unscored", "jurors_missing")
    del of["c"]
    assert grading(of, BUNDLE, "b", plain("mean", [1.0]), float("nan"), 0.0)["unscored_reason"] == "no_reply"


def test_samples_of_a_juror_are_one_voice() -> None:
    of = [[graded_row(score=0.0, sample=n) for n in range(3)], [graded_row(score=4.0)]]
    assert shares_of(of, BUNDLE) == [0.0, 1.0]


def test_credit_needs_a_quote_of_a_juror_who_credits_as_much() -> None:
    made = decided(said(2, quoted=False, action="none"), said(2, quoted=False, action="none"), said(0), rule="median")
    assert (made["stated"], made["decision"], made["action"], made["verified"]) == (2, 0, "demoted", False)
    made = decided(said(2, quoted=False, action="none"), said(2, quoted=False, action="none"), said(1), rule="median")
    assert (made["stated"], made["decision"], made["action"]) == (2, 1, "demoted")


def test_quotes_of_jurors_who_do_not_credit_are_left_out() -> None:
    made = decided(said(2), said(2), said(1), rule="median")
    assert made["decision"] == 2
    assert made["verified"]
    assert [quote["quote"] for quote in made["evidence"]] == ["heat moves 2"]
    assert decided(said(0), said(0), said(2), rule="median")["evidence"] == []


def test_probabilities_are_the_jurors_shares() -> None:
    assert decided(said(0), said(2), said(2), said(1))["level_probabilities"] == pytest.approx([0.25, 0.25, 0.5])


def test_an_undecided_criterion_keeps_its_reason() -> None:
    made = decided(said(None), said(None), said(1))
    assert (made["decision"], made["unscored_reason"]) == (None, "no_reply")


@given(
    arrays(float, (3, 3), elements=st.floats(0.3, 0.7)),
    arrays(float, 3, elements=st.floats(-0.3, 0.3)),
    st.integers(0, 2),
)
def test_as_columns_a_missing_juror_is_what_the_others_say_by_its_own_severity(
    quality: Floats, severity: Floats, out: int
) -> None:
    shares = quality[:, [0]] + severity  # of one mind but for how severe they are
    rule, _ = chosen("columns", {}, unlabelled(shares, ["i"] * 3, list("abc"), np.full(3, 1 / 3)))
    assert rule.scores(shares) == pytest.approx(np.clip(shares.mean(axis=1), 0, 1))
    given_ = shares[0].copy()
    given_[out] = np.nan
    share = float(rule.scores(given_[None])[0])
    of = {f"j{place}": [graded_row(score=None if np.isnan(value) else 4 * value)] for place, value in enumerate(given_)}
    made = grading(of, BUNDLE, "b", rule, share, 0.0)
    columns = np.array([made["signals"][f"juror.j{place}"] for place in range(3)])
    assert columns == pytest.approx(shares[0])
    assert made["score"] == pytest.approx(4 * shares[0].mean())


def test_as_columns_a_jury_without_a_score_has_none() -> None:
    before = np.array([[0.4, np.nan, 0.2], [0.6, np.nan, 0.2]])
    rule, _ = chosen("columns", {}, unlabelled(before, ["i"] * 2, list("abc"), np.full(3, 1 / 3)))
    of = {name: [graded_row(score=score)] for name, score in (("a", 2.0), ("b", None), ("c", None))}
    shares = np.array([shares_of(list(of.values()), BUNDLE)])
    made = grading(of, BUNDLE, "b", rule, float(rule.scores(shares)[0]), 0.0)
    assert made["score"] is None
    assert not any(name.startswith("juror.") for name in made["signals"])
