"""Why an answer waits, in words: a plain sentence for every reason, with the number that decides."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS, RouteReason
from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.display.verdict import by_scope, why_waits

OURS = ("vouch", "latent", "shard", "calibration", "clip", "label", "threshold", "precheck", "_")


def answer(**changes: object) -> dict[str, object]:
    return {"item_id": "q1", "route_reason": "risk", "risk": 0.24, "unscored_reason": None} | changes


@pytest.mark.parametrize("reason", get_args(RouteReason))
def test_every_reason_has_a_plain_sentence(reason: str) -> None:
    for words in (ROUTE_REASONS[reason], why_waits(answer(route_reason=reason), {})):
        assert len(words.split()) >= 2
        assert not any(jargon in words for jargon in OURS)
    assert ROUTE_REASONS.keys() == set(get_args(RouteReason))


def test_the_rule_of_the_question_comes_before_that_of_all() -> None:
    limits = {"all": 0.2, "q1": 0.13}
    rules = by_scope({"scope": scope, "threshold": most, "note": None} for scope, most in limits.items())
    assert why_waits(answer(), rules).endswith("risk 24%, limit 13%")
    assert why_waits(answer(item_id="q2"), rules).endswith("risk 24%, limit 20%")
    none = {"all": {"threshold": None, "note": "too few marked answers to promise anything: 45 needed, 12 here"}}
    assert why_waits(answer(route_reason="no_promise"), none) == none["all"]["note"]


@given(st.floats(0, 1), st.floats(0, 1))
def test_two_numbers_that_read_the_same_are_not_set_against_each_other(risk: float, most: float) -> None:
    words = why_waits(answer(risk=risk), {"all": {"threshold": most, "note": None}})
    estimate, _, limit = words.partition(", ")
    assert limit.removeprefix("limit ") != estimate.rpartition(" ")[2]


def test_what_has_no_score_says_why() -> None:
    for reason, words in UNSCORED_REASONS.items():
        assert why_waits(answer(route_reason="unscored", unscored_reason=reason), {}) == f"no score: {words}"
    assert why_waits(answer(route_reason="new"), {}) == "not released"
