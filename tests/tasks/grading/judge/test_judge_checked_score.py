"""The checked score: a checklist with evidence, and then scores by the guide, which the checklist audits."""

import json

import pytest
from builders.bundles import bundle, criterion, trait
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Repair
from rubricflow.tasks.grading.judge.grade import first_requests
from rubricflow.tasks.grading.judge.protocols.checked_score import contradicted
from rubricflow.tasks.grading.judge.rows import Rater
from rubricflow.tasks.grading.judge.score import score

QUOTE = [{"unit": "sentence 1", "quote": "need light"}]
FORGED = [{"unit": "sentence 1", "quote": "nobody wrote this"}]
POINTS = (criterion("A", "a", text="names light"), criterion("B", "a", text="names water", weight=3.0))
TRAITS = (trait("a", 0, 4, source="judged"), trait("b", 0, 2, 0.5, name="Form", source="judged"))


def bundle_of(*criteria, traits=TRAITS, **protocol):
    named = {"signals": ("trait_scores", "contradicted"), "name": "checked_score", **protocol}
    return bundle(*(criteria or POINTS), traits=traits, text="THE GUIDE", **named)


def reply(a=(1, QUOTE), b=(1, QUOTE), **scores):
    points = {name: {"level": level, "evidence": quotes} for name, (level, quotes) in (("A", a), ("B", b))}
    stated = {name: {"not_lower": "said", "not_higher": "short", "score": value} for name, value in scores.items()}
    return json.dumps({"decisions": points | stated})


def test_the_stated_scores_count_and_the_checklist_is_kept(case_of, grade_all):
    found = grade_all([case_of(bundle_of())], lambda r: reply(score_a=3, score_b=1.5))
    row = found.gradings[0]
    assert (row["trait_scores"], row["signals"]["contradicted"], row["signals"]["mean.a"]) == ({"a": 3, "b": 1.5}, 0, 1)
    assert row["score"] == 8  # the mean of 3 of 4 and 1.5 of 2, on 0 to 10, half up
    assert [(one["criterion_id"], one["decision"]) for one in found.judgments] == [("A", 1), ("B", 1)]
    system = found.attempts[0]["system"]
    assert "THE GUIDE" in system
    assert "- b (Form): a number from 0 to 2 in steps of 0.5" in system


def test_a_score_that_its_verified_points_contradict_is_flagged(case_of, grade_all):
    row = grade_all([case_of(bundle_of())], lambda r: reply(b=(1, FORGED), score_a=3, score_b=0)).gradings[0]
    assert (row["trait_scores"]["a"], row["signals"]["mean.a"], row["signals"]["contradicted"]) == (3, 0.25, 1)


def test_a_contradicted_score_alone_is_asked_for_once_more(case_of, grade_all):
    mended = {"decisions": {"score_a": {"not_lower": "x", "not_higher": "y", "score": 4}}}
    script = [reply(score_a=0, score_b=2), json.dumps(mended)]
    found = grade_all([case_of(bundle_of(repair=Repair()))], script)
    assert [one["violations"] for one in found.attempts] == [["contradicted_score:score_a"], []]
    assert "Decide exactly these again: score_a." in found.attempts[1]["prompt"]
    assert "withdraw" not in found.attempts[1]["prompt"]
    assert (found.gradings[0]["trait_scores"]["a"], found.gradings[0]["signals"]["contradicted"]) == (4, 0)


def test_who_stands_by_a_contradicted_score_is_believed_and_flagged(case_of, grade_all):
    found = grade_all([case_of(bundle_of(repair=Repair()))], lambda r: reply(score_a=0, score_b=2))
    row = found.gradings[0]
    assert (len(found.attempts), row["trait_scores"]["a"], row["signals"]["contradicted"]) == (2, 0, 1)


@pytest.mark.parametrize("names", [["score_a", "score_b"], ["B", "score_b"], ["A", "B", "score_a", "score_b"]])
def test_items_next_to_the_decisions_count_like_those_among_them(case_of, grade_all, names):
    among = reply(score_a=3, score_b=1.5)
    artifact = json.loads(among)
    artifact |= {name: artifact["decisions"].pop(name) for name in names}
    texts = among, json.dumps(artifact)
    whole, moved = (grade_all([case_of(bundle_of())], lambda r, text=text: text) for text in texts)
    assert moved.judgments == whole.judgments
    assert [row["trait_scores"] for row in moved.gradings] == [{"a": 3, "b": 1.5}]


def test_a_criterion_named_like_a_score_is_no_score(case_of, grade_all):
    odd = bundle_of(criterion("score_a", "a", text="names light"))
    request = first_requests(case_of(odd), Rater("r", "llm", None))[0]
    assert list(request.schema["properties"]["decisions"]["properties"]) == ["score_a", "_score_a", "score_b"]


@given(levels=st.tuples(*[st.integers(0, 2)] * 3), stated=st.integers(0, 6))
def test_contradicted_is_further_than_a_step_from_the_sum_of_points(levels, stated):
    names, middle = ("x", "y", "z"), (0.75, 0.5, 0.2)
    points = [
        criterion(n, "a", levels=("no", "half", "yes"), weight=w, earns=(0, m, 1))
        for n, w, m in zip(names, (1, 2, -1), middle, strict=True)
    ]
    derived, judged = trait("a", 0, 6), trait("a", 0, 6, source="judged")
    decided = dict(zip(names, levels, strict=True))
    summed = score(bundle(*points, traits=(derived,), name="rulers"), decided).traits["a"]
    x, y, z = ((0, m, 1)[decided[n]] for n, m in zip(names, middle, strict=True))
    assert summed == int(6 * min(1, max(0, (x + 2 * y - z) / 3)) + 0.5 + 1e-9)
    audited = contradicted(bundle_of(*points, traits=(judged,)), decided, {"a": stated})
    assert audited == (["a"] if abs(summed - stated) > 1 else [])
