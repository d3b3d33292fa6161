"""Rulers without phase I: traits by the raw rubric, each score above the lowest with a quote that holds."""

import json
import math

import pytest
from builders.bundles import bundle, criterion, trait

from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.text.quotes import Match, Span
from rubricflow.tasks.grading.judge.prove import prove_bundle

ANYWHERE = Match((Span(0, 1),), "exact")
HOLDS = [{"unit": "sentence 1", "quote": "need light"}]
FORGED = [{"unit": "sentence 1", "quote": "nobody wrote this"}]


def bundle_of(**protocol):
    signals = ("trait_scores", "length", "confidence", "uncertainty", "tie")
    traits = trait("a", 1, 5, source="judged"), trait("b", 0, 2, 0.5, name="Form", source="judged")
    light = criterion("P", "a", text="names light")
    return bundle(light, traits=traits, text="THE PROSE", name="unlocked", signals=signals, **protocol)


def traits(**given):
    """trait → (score, evidence)"""
    return json.dumps(
        {"traits": {name: {"evidence": quotes, "score": score} for name, (score, quotes) in given.items()}}
    )


def test_the_raw_rubric_is_shown_and_no_checklist(case_of, grade_all):
    found = grade_all([case_of(bundle_of())], lambda r: traits(a=(5, HOLDS), b=(2, HOLDS)))
    system = found.attempts[0]["system"]
    assert ("THE PROSE" in system, "names light" in system) == (True, False)
    assert "- b (Form): a number from 0 to 2 in steps of 0.5" in system
    row = found.gradings[0]
    assert (row["score"], row["trait_scores"], found.judgments) == (10, {"a": 5, "b": 2}, [])
    assert row["signals"]["length"] == math.log1p(len("Plants need light. Water helps them grow."))
    assert (row["signals"]["quotes"], row["signals"]["verified"]) == (2, 2)


def test_the_lowest_score_needs_no_quote(case_of, grade_all):
    found = grade_all([case_of(bundle_of())], lambda r: traits(a=(1, []), b=(0, [])))
    assert (found.gradings[0]["score"], found.attempts[0]["violations"]) == (0, [])


@pytest.mark.parametrize(
    ("reply", "reason", "violations"),
    [
        (traits(a=(3, HOLDS)), "trait_unscored", ["missing_decision:b"]),
        (traits(a=(3.5, HOLDS), b=(1, HOLDS)), "trait_unscored", ["malformed_decision:a"]),
        (traits(a=(6, HOLDS), b=(1, HOLDS)), "trait_unscored", ["level_off_scale:a"]),
        (traits(a=(0, HOLDS), b=(1, HOLDS)), "trait_unscored", ["level_off_scale:a"]),
        (traits(a=(True, HOLDS), b=(1, HOLDS)), "trait_unscored", ["malformed_decision:a"]),
        (traits(a=(None, HOLDS), b=(1, HOLDS)), "trait_unscored", ["malformed_decision:a"]),
        (traits(a=("much", HOLDS), b=(1, HOLDS)), "trait_unscored", ["malformed_decision:a"]),
        ('{"traits": {"a": 3, "b": [1]}}', "trait_unscored", ["malformed_decision:a", "malformed_decision:b"]),
        ('{"traits": 3}', "trait_unscored", ["malformed_decision:*"]),
        ("fine", "unreadable_reply", ["unreadable:no_object"]),
        (Reply(error="down"), "no_reply", ["no_reply"]),
    ],
)
def test_a_trait_without_a_usable_score_leaves_no_score(case_of, grade_all, reply, reason, violations):
    found = grade_all([case_of(bundle_of())], lambda r: reply)
    assert (found.gradings[0]["score"], found.gradings[0]["unscored_reason"]) == (None, reason)
    assert found.attempts[0]["violations"] == violations


def test_confidence_is_that_of_the_scores_stated(case_of, grade_all):
    likely = {"a": [0.0, 0.1, 0.2, 0.6, 0.1], "b": [0.1, 0.1, 0.1, 0.2, 0.5]}
    reply = Reply(text=traits(a=(4, FORGED), b=(2, HOLDS)), level_probabilities=likely)
    row = grade_all([case_of(bundle_of())], lambda r: reply).gradings[0]
    assert row["confidence"] == pytest.approx((0.6 + 0.5) / 2)
    assert row["signals"]["uncertainty"] == pytest.approx(1 - (0.6 + 0.5) / 2)


def test_a_verifier_that_accepts_anything_is_named(monkeypatch):
    monkeypatch.setattr(
        "rubricflow.tasks.grading.judge.evidence.find_folded", lambda needle, region, offset=0: ANYWHERE
    )
    problems = prove_bundle(bundle_of(), "Why?", None, None)
    assert problems == [f"a fabricated quote is accepted for '{name}'" for name in "ab"]
