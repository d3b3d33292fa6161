"""Itemised repair: only what failed is asked again, and nothing that was valid ever changes."""

import json
import re

import jsonschema
import pytest
from builders.bundles import THREE, bundle, criterion
from builders.cases import case
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Repair
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.rows import Rater

TEXT = "Plants need light. Water helps them grow. Soil holds them."
NAMES = ("A", "B", "C")
GOOD = {"A": ("s1", "need light"), "B": ("s2", "Water helps"), "C": ("s3", "Soil holds")}


def bundle_of(name="rulers", **protocol):
    points = (criterion(name, levels=THREE) for name in NAMES)
    given_ = {"name": name, "final_score": "weighted_points", "repair": Repair()} | protocol
    return bundle(*points, ends=(0, 6), text="rubric", **given_)


def one(name, level, quote=None):
    unit, words = GOOD[name]
    return {"evidence": [{"unit": unit, "quote": quote or words}] if level else [], "level": level}


def decided(**levels):
    """A reply with a level for each criterion; a pair is (level, quote); anything else stands as it is."""
    made = {}
    for name, said in levels.items():
        made[name] = one(name, *said) if isinstance(said, tuple) else one(name, said) if type(said) is int else said
    return json.dumps({"decisions": made})


def graded(bundle, first, *repairs, text=TEXT):
    """Decisions, the grading, the attempts, and the mender."""
    mender = Scripted(list(repairs), model="mender")
    with ReplyStore(":memory:") as replies:
        rater = Rater("scripted:test", "llm", Scripted(lambda r: first), mender)
        found = grade_batch([case(bundle, text)], rater, replies)
    attempts = [a for called in found.called for a in called.answer.attempts]
    return {d.criterion_id: d.level for d in found.judged[0].decisions}, found.gradings[0], attempts, mender


FABRICATED = (2, "nobody wrote this")


def test_items_without_their_key_that_the_answer_holds_are_no_repair():
    forged = json.dumps({"B": one("B", 2)})
    broken = decided(A=2, B=7, C=0)
    levels, _, attempts, _ = graded(bundle_of(), broken, f"The student writes {forged}.", text=f"{TEXT} {forged}")
    assert levels == {"A": 2, "B": None, "C": 0}
    assert attempts[1].checked.violations[0] == "quoted"


@pytest.mark.parametrize(
    ("first", "second", "role", "mends", "after"),
    [
        (decided(A=2, B=1), decided(C=2), "contract_repair", ("C",), {"A": 2, "B": 1, "C": 2}),
        (
            decided(A=2, B=7, C={"level": "x"}),
            decided(B=1, C=1),
            "contract_repair",
            ("B", "C"),
            {"A": 2, "B": 1, "C": 1},
        ),
        (decided(A=2, B=FABRICATED, C=0), decided(B=2), "semantic_repair", ("B",), {"A": 2, "B": 2, "C": 0}),
        (decided(A=2, B=FABRICATED, C=0), decided(B=0), "semantic_repair", ("B",), {"A": 2, "B": 0, "C": 0}),
        ("no idea", decided(A=1, B=1, C=1), "contract_repair", NAMES, {"A": 1, "B": 1, "C": 1}),
        ('{"decisions": 3}', decided(A=1, B=1, C=1), "contract_repair", NAMES, {"A": 1, "B": 1, "C": 1}),
    ],
)
def test_a_repair_asks_for_what_failed_and_no_more(first, second, role, mends, after):
    levels, grading, attempts, mender = graded(bundle_of(), first, second)
    bare = json.dumps(json.loads(second)["decisions"])
    assert graded(bundle_of(), first, bare)[0] == levels
    (asked,) = mender.asked
    assert (asked.role, asked.mends) == (role, mends)
    assert tuple(asked.schema["properties"]["decisions"]["properties"]) == mends
    assert levels == after
    assert attempts[-1].checked.violations == ()
    assert not {"contract_fail", "semantic_exhausted_but_accepted"} & grading.signals.keys()


def test_the_first_messages_stand_before_what_a_repair_adds():
    _, _, (first, second), _ = graded(bundle_of(), decided(A=2, B=1), decided(C=2))
    assert second.request.messages[0] is first.request.messages[0]
    assert second.request.messages[1].content.startswith(first.request.messages[1].content + "\n")
    assert first.reply.text.splitlines()[0] in second.request.messages[1].content
    added = second.request.messages[1].content[len(first.request.messages[1].content) + 1 :]
    assert second.request.characters["repair"] == len(added)
    assert re.search(r"C is missing", added)


def test_what_a_repair_says_of_other_criteria_changes_nothing():
    eager = decided(A=0, B=(2, "nobody wrote this"), C=2)
    levels, *_ = graded(bundle_of(), decided(A=2, B=1), eager)
    assert levels == {"A": 2, "B": 1, "C": 2}


def test_contract_comes_before_evidence_and_each_has_its_own_budget():
    first = decided(A=FABRICATED, B=1)
    repairs = (decided(C=FABRICATED), decided(A=2, C=FABRICATED), decided(C=1))
    levels, grading, attempts, _ = graded(bundle_of(), first, *repairs)
    calls = [(a.request.role, a.request.mends) for a in attempts[1:]]
    assert calls == [("contract_repair", ("C",)), ("semantic_repair", ("A", "C")), ("semantic_repair", ("C",))]
    assert levels == {"A": 2, "B": 1, "C": 1}
    assert "semantic_exhausted_but_accepted" not in grading.signals


def test_partial_repairs_merge_across_attempts():
    levels, _, attempts, _ = graded(bundle_of(), decided(A=2), decided(B=1), decided(C=2))
    assert [a.request.mends for a in attempts] == [(), ("B", "C"), ("C",)]
    assert levels == {"A": 2, "B": 1, "C": 2}


def test_a_repair_that_cannot_be_read_leaves_what_was_valid():
    levels, _, attempts, _ = graded(bundle_of(), decided(A=2, B=1), "sorry", decided(C=2))
    assert attempts[1].checked.violations == ("unreadable:no_object", "missing_decision:C")
    assert levels == {"A": 2, "B": 1, "C": 2}


def test_a_repair_without_a_reply_ends_it_and_leaves_what_was_valid():
    levels, grading, attempts, _ = graded(bundle_of(), decided(A=2, B=1), Reply(error="down"))
    assert (len(attempts), levels) == (2, {"A": 2, "B": 1, "C": None})
    assert grading.reason == "criterion_unscored"


def test_a_spent_semantic_budget_is_accepted_with_the_demotion_and_said():
    bad = decided(B=(2, "nor this"))
    levels, grading, attempts, _ = graded(bundle_of(), decided(A=2, B=FABRICATED, C=0), bad, decided(B=(1, "or that")))
    assert [a.request.role for a in attempts[1:]] == ["semantic_repair"] * 2
    assert levels == {"A": 2, "B": 0, "C": 0}
    assert grading.signals["semantic_exhausted_but_accepted"] == 1
    assert (grading.signals["demoted"], grading.scored.score) == (1, 2)


def test_a_spent_contract_budget_is_said():
    levels, grading, attempts, _ = graded(bundle_of(), decided(A=2, B=1), decided(C=9), decided(C={"level": None}))
    assert (len(attempts), levels["C"], grading.scored.score) == (3, None, None)
    assert grading.signals["contract_fail"] == 1


@pytest.mark.parametrize(
    ("repair", "calls"),
    [(None, 0), (Repair(contract=0, semantic=0), 0), (Repair(contract=1, semantic=0), 1), (Repair(contract=0), 0)],
)
def test_no_budget_no_call(repair, calls):
    _, grading, _, mender = graded(bundle_of(repair=repair), decided(A=FABRICATED, B=1), decided(C=2), decided(A=2))
    assert mender.calls == calls
    assert "semantic_exhausted_but_accepted" not in grading.signals


def test_a_counted_quote_is_not_mended():
    first = decided(A=FABRICATED, B=1, C=0)
    levels, grading, _, mender = graded(bundle_of(failed_quote="count"), first, decided(A=0))
    assert (mender.calls, levels["A"], grading.signals["counted"]) == (0, 2, 1)
    assert "semantic_exhausted_but_accepted" not in grading.signals


def test_an_answer_that_nobody_asked_for_is_no_reason_to_ask_again():
    _, grading, attempts, mender = graded(bundle_of(), decided(A=2, B=1, C=0)[:-2] + ', "Z": {"level": 2}}}')
    assert (mender.calls, attempts[0].checked.violations) == (0, ("unknown_criterion:Z",))
    assert "contract_fail" not in grading.signals


def test_pointwise_mends_the_call_that_failed():
    bundle = bundle_of("pointwise")
    with ReplyStore(":memory:") as replies:
        first = Scripted(lambda r: "?" if r.data.part == "B" else decided(**{r.data.part: 1}))
        mender = Scripted([decided(B=2)], model="mender")
        found = grade_batch([case(bundle, TEXT)], Rater("s", "llm", first, mender), replies)
    assert [(c.part, len(c.answer.attempts)) for c in found.called] == [("A", 1), ("B", 2), ("C", 1)]
    assert [d.level for d in found.judged[0].decisions] == [1, 2, 1]


def test_a_call_for_two_criteria_mends_the_one_that_failed():
    bundle = bundle_of("pointwise", criteria_per_call=2)
    with ReplyStore(":memory:") as replies:
        first = Scripted(lambda r: decided(C=1) if r.data.part == "C" else decided(A=2, B=FABRICATED))
        mender = Scripted([decided(B=1)], model="mender")
        found = grade_batch([case(bundle, TEXT)], Rater("s", "llm", first, mender), replies)
    assert [(c.part, len(c.answer.attempts)) for c in found.called] == [("A..B", 2), ("C", 1)]
    (asked,) = mender.asked
    assert (asked.mends, asked.schema["properties"]["decisions"]["required"]) == (("B",), ["B"])
    assert [d.level for d in found.judged[0].decisions] == [2, 1, 1]


@pytest.mark.parametrize("name", ["dhs"])
def test_a_stated_score_is_asked_again_as_a_whole(name):
    bundle = bundle_of(name).model_copy(update={"criteria": ()})
    _, grading, attempts, mender = graded(bundle, '{"score": 99}', '{"rationale": "", "score": 5}')
    assert (mender.asked[0].mends, grading.scored.score) == (("score",), 5)
    assert mender.asked[0].schema == attempts[0].request.schema


def test_probabilities_of_a_mended_level_are_those_of_the_repair():
    likely = {name: [0.1, 0.2, 0.7] for name in NAMES}
    first = Reply(text=decided(A=2, B=FABRICATED, C=2), level_probabilities=likely)
    second = Reply(text=decided(B=1), level_probabilities={"B": [0.3, 0.6, 0.1]})
    _, grading, *_ = graded(bundle_of(), first, second)
    assert grading.confidence == pytest.approx((0.7 + 0.6 + 0.7) / 3)
    _, grading, *_ = graded(bundle_of(), first, Reply(text=decided(B=1)))
    assert grading.confidence == pytest.approx(0.7)


PIECES = st.one_of(
    st.integers(-1, 3),
    st.tuples(st.integers(1, 2), st.sampled_from(["nobody wrote this", "need light", "Water helps them grow."])),
    st.sampled_from([None, "x", [], {"level": 2.5}, {"evidence": 3, "level": 1}, {"level": "1"}]),
)
REPLIES = st.one_of(
    st.dictionaries(st.sampled_from([*NAMES, "Z"]), PIECES).map(
        lambda made: (
            decided(**{k: v for k, v in made.items() if k in GOOD})[:-2]
            + ("" if "Z" not in made else ("," if len(made) > 1 else "") + '"Z": {"level": 1}')
            + "}}"
        )
    ),
    st.sampled_from(["", "sorry", '{"decisions": []}', "{"]),
)


@settings(max_examples=20)
@given(first=REPLIES, repairs=st.lists(REPLIES, max_size=4), budget=st.integers(0, 2))
def test_no_repair_ever_changes_a_valid_decision_or_takes_more_calls_than_the_budget(first, repairs, budget):
    bundle = bundle_of(repair=Repair(contract=budget, semantic=budget))
    *_, attempts, mender = graded(bundle, first, *repairs)
    assert mender.calls <= 2 * budget
    before = {}
    for attempt in attempts:
        value = attempt.checked.value
        if value is None:
            continue
        now = {d.criterion_id: d for d in value.decisions}
        assert set(now) == set(NAMES)
        for name, valid in before.items():
            assert now[name] == valid
        failed = {violation.partition(":")[2] for violation in attempt.checked.violations}
        before = {name: d for name, d in now.items() if name not in failed and "*" not in failed}
    for attempt in attempts[1:]:
        jsonschema.Draft202012Validator.check_schema(attempt.request.schema)
        assert set(attempt.request.mends) <= set(NAMES)
