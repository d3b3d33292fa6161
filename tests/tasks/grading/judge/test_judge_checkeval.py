"""Yes or no to every criterion: what counts, and what an answer that is missing leaves."""

import json

import pytest
from builders.bundles import bundle, criterion

from rubricflow.tasks.core.llm.request import Reply

WEIGHTS = {"A": 1.0, "B": 2.0, "C": 1.0, "M": -1.0}


def bundle_of(weights=WEIGHTS, ends=(0, 8), **protocol):
    asked = (criterion(name, weight=weight, levels=("no", "yes"), evidence="none") for name, weight in weights.items())
    return bundle(*asked, ends=ends, name="checkeval", final_score="weighted_points", **protocol)


def answers(**given):
    return json.dumps({"answers": given})


def test_one_call_asks_for_all_and_shows_no_levels(case_of, grade_all):
    found = grade_all([case_of(bundle_of())], lambda r: answers(A="yes", B="no", C="no", M="no"))
    assert [a["part"] for a in found.attempts] == ["all"]
    assert "- B: names B" in found.attempts[0]["system"]
    assert "levels" not in found.attempts[0]["system"]


@pytest.mark.parametrize(
    ("given", "expected"), [("yyyn", 8), ("nnnn", 0), ("ynnn", 2), ("nynn", 4), ("yyyy", 6), ("nnny", 0), ("ynny", 0)]
)
def test_the_score_is_the_weighted_share_of_yes_and_misconceptions_subtract(case_of, grade_all, given, expected):
    said = {name: "yes" if one == "y" else "no" for name, one in zip(WEIGHTS, given, strict=True)}
    found = grade_all([case_of(bundle_of())], lambda r: answers(**said))
    assert found.gradings[0]["score"] == expected
    assert [j["decision"] for j in found.judgments] == [int(one == "y") for one in given]


@pytest.mark.parametrize(
    ("reply", "decisions", "violations"),
    [
        (answers(A="YES", B=" no ", C="Yes", M="no"), [1, 0, 1, 0], []),
        (answers(A="yes", B="no", M="no"), [1, 0, None, 0], ["missing_answer:C"]),
        (answers(A="yes", B="now", C="no", M="no"), [1, None, 0, 0], ["malformed_answer:B"]),
        (answers(A=True, B="no", C="no", M=1), [None, 0, 0, None], ["malformed_answer:A", "malformed_answer:M"]),
        (answers(A=None, B="no", C="no", M="no"), [None, 0, 0, 0], ["missing_answer:A"]),
        (answers(A="unknown", B="none", C="not", M="y"), [None] * 4, [f"malformed_answer:{n}" for n in "ABCM"]),
        ('{"answers": ["yes", "yes", "yes", "yes"]}', [None] * 4, ["malformed_answer:*"]),
        ("A: yes\nB: yes", [None] * 4, ["unreadable:no_object"]),
        (Reply(error="down"), [None] * 4, ["no_reply"]),
    ],
)
def test_what_is_no_answer_is_unscored_and_never_no(case_of, grade_all, reply, decisions, violations):
    found = grade_all([case_of(bundle_of())], lambda r: reply)
    assert [j["decision"] for j in found.judgments] == decisions
    assert found.attempts[0]["violations"] == violations
    assert (found.gradings[0]["score"] is None) == (None in decisions)
