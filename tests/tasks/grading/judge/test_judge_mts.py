"""A call per trait: what each sees, what the traits make, and what a reply that fails leaves."""

import json

import pytest
from builders.bundles import bundle, criterion, trait

from rubricflow.tasks.core.contracts.bundle import Anchor, Repair
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.request import Reply


def bundle_of(formula="trait_mean", **protocol):
    traits = (
        trait("a", 1, 5, source="judged", anchors=(Anchor(score=1, text="poor"),)),
        trait("b", 0, 3, source="judged"),
    )
    of = criterion("P", "a", text="names light"), criterion("Q", "b", text="is orderly")
    ends = (0, 10) if formula == "trait_mean" else (1, 8)
    return bundle(*of, ends=ends, traits=traits, text="THE PROSE", name="mts", final_score=formula, **protocol)


def says(**scores):
    """A script that gives each trait this score, or this reply."""

    def script(request):
        said = scores[request.data.traits[0].id]
        return said if isinstance(said, str | Reply) else json.dumps({"rationale": "because", "score": said})

    return script


def test_each_trait_is_asked_for_by_itself(case_of, grade_all):
    found = grade_all([case_of(bundle_of())], says(a=3, b=3))
    assert [a["part"] for a in found.attempts] == ["a", "b"]
    first, second = (a["system"] for a in found.attempts)
    assert ("names light" in first, "is orderly" in first, "1 = poor" in first) == (True, False, True)
    assert ("names light" in second, "is orderly" in second) == (False, True)
    assert found.judgments == []


@pytest.mark.parametrize(
    ("formula", "a", "b", "score"),
    [("trait_mean", 5, 3, 10), ("trait_mean", 1, 0, 0), ("trait_mean", 3, 3, 8), ("trait_sum", 3, 2, 5)],
)
def test_the_score_is_the_mean_of_the_shares_rounded_half_up_or_the_sum(case_of, grade_all, formula, a, b, score):
    row = grade_all([case_of(bundle_of(formula))], says(a=a, b=b)).gradings[0]
    assert (row["score"], row["trait_scores"], row["unscored_reason"]) == (score, {"a": a, "b": b}, None)
    assert row["signals"]["tie"] == ((formula, a, b) == ("trait_mean", 3, 3))  # (0.5 + 1) / 2 of ten steps is 7.5


@pytest.mark.parametrize(
    ("reply", "violation"),
    [
        ('{"score": 6}', "score_off_scale"),
        ('{"score": 2.5}', "score_off_step"),
        ('{"score": true}', "malformed_score"),
        ('{"score": null}', "malformed_score"),
        ("it is good", "unreadable:no_object"),
        ("", "unreadable:empty"),
        (Reply(error="timeout: 60 s"), "no_reply"),
    ],
)
def test_a_trait_without_a_usable_score_leaves_no_score_and_never_the_lowest(case_of, grade_all, reply, violation):
    found = grade_all([case_of(bundle_of())], says(a=reply, b=2))
    row = found.gradings[0]
    assert (row["score"], row["status"], row["unscored_reason"]) == (None, "unscored", "trait_unscored")
    assert row["trait_scores"] == {"b": 2}
    assert found.attempts[0]["violations"] == [violation]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [("none", "unreadable_reply"), ('{"score": 9}', "off_scale"), (Reply(error="down"), "no_reply")],
)
def test_traits_that_all_fail_in_one_way_give_that_reason(case_of, grade_all, reply, reason):
    row = grade_all([case_of(bundle_of())], says(a=reply, b=reply)).gradings[0]
    assert row["unscored_reason"] == reason


@pytest.mark.parametrize(
    ("unscored", "score", "low", "high"), [("null", None, None, None), ("bounds", None, 3, 8), ("zero", 3, None, None)]
)
def test_an_unscored_trait_does_as_the_protocol_says(case_of, grade_all, unscored, score, low, high):
    row = grade_all([case_of(bundle_of(unscored=unscored))], says(a="none", b=2)).gradings[0]
    assert (row["score"], row["low"], row["high"]) == (score, low, high)


def test_a_spent_budget_is_said(case_of, grade_all):
    bundle = bundle_of(repair=Repair(contract=2))
    found = grade_all([case_of(bundle)], says(a="sorry", b=2), Scripted(["1", "2", "3"], model="mender"))
    assert sum(a["role"] == "contract_repair" for a in found.attempts) == 2
    assert (found.gradings[0]["score"], found.gradings[0]["signals"]["contract_fail"]) == (None, 1)


def test_confidence_is_the_mean_probability_of_the_scores_given(case_of, grade_all):
    likely = {1: [0.1, 0.1, 0.6, 0.1, 0.1], 0: [0.0, 0.2, 0.8, 0.0]}

    def script(request):
        low = request.data.traits[0].min
        text = json.dumps({"rationale": "", "score": int(low) + 2})
        return Reply(text=text, level_probabilities={"score": likely[low]})

    row = grade_all([case_of(bundle_of())], script).gradings[0]
    assert row["confidence"] == pytest.approx((0.6 + 0.8) / 2)
