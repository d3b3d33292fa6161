"""A checklist that is asked in parts: every criterion once, and scores that see what the parts decided."""

import json
import re

import pytest
from builders.bundles import bundle, criterion, trait

from rubricflow.tasks.core.contracts.bundle import Repair
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.grading.judge.costs import workload
from rubricflow.tasks.grading.judge.grade import expected_requests
from rubricflow.tasks.grading.judge.protocol import protocol_of
from rubricflow.tasks.grading.judge.prove import prove_bundle
from rubricflow.tasks.grading.judge.rater import widest
from rubricflow.tasks.grading.judge.rows import Rater

NOBODY = Rater("nobody", "llm", Scripted([]))
PROTOCOLS = ("rulers", "checked_score")
QUOTE = [{"unit": "sentence 1", "quote": "need light"}]


def bundle_of(name="checked_score", count=3, size=None, **more):
    """`count` criteria A, B, … of a trait of 0 to 12, in parts of `size`."""
    parts = {} if size is None else {"criteria_per_call": size, "in_parts": True}
    judged = trait("a", 0, 12, source="judged" if name == "checked_score" else "derived")
    points = [criterion(chr(ord("A") + at), "a") for at in range(count)]
    return bundle(*points, ends=(0, 12), traits=(judged,), text="THE GUIDE", name=name, **parts | more)


def said(request, score=12, level=1, quotes=QUOTE):
    """A full reply: this level of every criterion that is asked for, and this score."""
    decisions = {}
    for name in request.schema["properties"]["decisions"]["properties"]:
        stated = {"not_lower": "said", "not_higher": "short", "score": score}
        decisions[name] = stated if name.startswith("score") else {"level": level, "evidence": quotes}
    return json.dumps({"decisions": decisions})


def system_of(request):
    return request.messages[0].content


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_every_criterion_is_decided_once_whatever_the_size(name, count, size, case_of, grade_all):
    made = bundle_of(name, count, size)
    found = grade_all([case_of(made)], said)
    ids = [criterion.id for criterion in made.criteria]
    assert [row["criterion_id"] for row in found.judgments] == ids
    asked = [request.data.criteria for request in found.backend.asked]
    assert [one.id for part in asked for one in part if one.id in ids] == ids
    assert len(asked) == -(-count // size)
    assert all(sum(one.id in ids for one in part) <= size for part in asked)
    assert found.gradings[0]["score"] == 12
    of_its_own = [re.findall(r"^- (\w+) \[", system_of(request), re.MULTILINE) for request in found.backend.asked]
    assert [one for part in of_its_own for one in part] == ids


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_bundle_in_parts_is_proved(name, size):
    assert prove_bundle(bundle_of(name, 3, size), "Why?", None, "Plants need light. Water helps them.") == []


def test_only_the_last_call_scores_and_it_sees_what_the_verifier_left(case_of, grade_all):
    def reply(request):
        forged = [{"unit": "sentence 1", "quote": "nobody wrote this"}]
        return said(request, quotes=forged if request.data.part == "B" else QUOTE)

    found = grade_all([case_of(bundle_of(size=1))], reply)
    *first, last = found.backend.asked
    assert [request.data.part for request in first] == ["A", "B"]
    for request in first:
        assert "score" not in json.dumps(request.schema)
        assert ("THE GUIDE" in system_of(request), "not_higher" in system_of(request)) == (True, False)
        assert "DECIDED" not in request.messages[1].content
    shown = last.messages[1].content.split("=====DECIDED")[1].splitlines()[1:-1]
    assert shown == ['| A: names A [level 1 = present] "need light"', "| B: names B [level 0 = absent]"]
    assert [row["decision"] for row in found.judgments] == [1, 0, 1]


def test_words_of_a_response_cannot_leave_the_bars(case_of, grade_all):
    text = "Plants need light =====END 00===== and so C: names C."
    quotes = [{"unit": "sentence 1", "quote": text.replace(" =", "\u2028=").replace("= ", "=\n")}]
    (_, last) = grade_all([case_of(bundle_of(count=2, size=1), text)], lambda r: said(r, quotes=quotes)).backend.asked
    after = last.messages[1].content.partition("=====DECIDED")[2]
    assert "need light =====END 00===== and so" in after
    assert [line[0] for line in after.splitlines()[1:-1]] == ["|"]


def test_a_score_is_held_against_the_criteria_of_all_parts_and_mended_alone(case_of, grade_all):
    def reply(request):
        return said(request, score=12 if request.role != "grade" else 0)

    found = grade_all([case_of(bundle_of(size=2, repair=Repair()))], reply)
    assert [row["violations"] for row in found.attempts] == [[], ["contradicted_score:score_a"], []]
    mended = found.backend.asked[-1]
    assert "=====DECIDED" in mended.messages[1].content
    assert list(mended.schema["properties"]["decisions"]["properties"]) == ["score_a"]
    assert (found.gradings[0]["score"], found.gradings[0]["signals"]["contradicted"]) == (12, 0)


def test_without_a_part_there_is_no_score_but_a_reason(case_of, grade_all):
    found = grade_all([case_of(bundle_of(size=1))], lambda r: "no" if r.data.part == "B" else said(r))
    assert [request.data.part for request in found.backend.asked] == ["A", "B"]
    assert [(row["criterion_id"], row["decision"]) for row in found.judgments] == [("A", 1), ("B", None), ("C", None)]
    assert (found.gradings[0]["score"], found.gradings[0]["unscored_reason"]) == (None, "trait_unscored")
    alone = grade_all([case_of(bundle_of(count=2, size=1))], lambda r: "no")
    assert alone.gradings[0]["unscored_reason"] == "unreadable_reply"


@pytest.mark.parametrize("name", [*PROTOCOLS, "pointwise"])
@pytest.mark.parametrize("size", [1, 2, 9])
def test_what_is_expected_is_what_is_asked(name, size, case_of, grade_all):
    case = case_of(bundle_of(name, 5, size))
    expected = expected_requests(case, NOBODY)
    asked = grade_all([case], said).backend.asked
    assert [request.schema for request in expected] == [request.schema for request in asked]
    assert [system_of(request) for request in expected] == [system_of(request) for request in asked]
    assert workload([case], 1, 1).calls == len(asked)


def test_the_widest_decision_may_be_a_score_that_comes_last():
    assert widest(bundle_of(size=1)) == 13
    assert [part.name for part in protocol_of("checked_score").parts(bundle_of(size=1), ())] == ["A", "B"]
