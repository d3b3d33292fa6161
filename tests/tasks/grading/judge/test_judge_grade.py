"""Grading a batch with scripted replies: what is asked, what is kept, what is unscored and why."""

import json
from types import SimpleNamespace

import pytest
from builders.bundles import THREE, bundle, criterion, trait
from builders.cases import TEXT, case

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.grading.judge.grade import first_requests, grade_batch
from rubricflow.tasks.grading.judge.rows import Rater

QUOTES = {"P1": ("s1", "need light"), "P2": ("s2", "Water helps"), "M": ("s1", "Plants need")}
FORMULA = {"rulers": "trait_mean", "pointwise": "weighted_points", "dhs": "judged"}


def bundle_of(name="rulers", **protocol):
    criteria = (
        criterion("P1", "a", text="light", levels=THREE),
        criterion("P2", "b", text="water", levels=THREE),
        criterion("M", "b", text="no light needed", kind="misconception", weight=-1),
    )
    traits = trait("a", 0, 4), trait("b", 0, 4)
    return bundle(*criteria, traits=traits, text="rubric", **{"name": name, "final_score": FORMULA[name]} | protocol)


def case_of(bundle, response_id="r1", text=TEXT):
    return case(bundle, text, response_id)


def decided(**levels):
    """A reply that decides these criteria, with quotes that hold."""
    decisions = {}
    for name, level in levels.items():
        unit, quote = QUOTES[name]
        decisions[name] = {"evidence": [{"unit": unit, "quote": quote}] if level else [], "level": level}
    return json.dumps({"decisions": decisions})


def graded(bundle, script, *cases, store=None):
    """The rows of the batch's tables, held against the contract, and the backend."""
    backend = Scripted(script if callable(script) or isinstance(script, dict) else [script])
    rater = Rater("scripted:test", "llm", backend)
    with ReplyStore(":memory:") as fresh:
        found = grade_batch(cases or [case_of(bundle)], rater, fresh if store is None else store)
    tables = SimpleNamespace()
    for row, table in found.tables().items():
        records = conform(row, table).to_pylist(maps_as_pydicts="strict")
        keys = [tuple(record[name] for name in row.key) for record in records]
        assert len(set(keys)) == len(keys)
        setattr(tables, row.table, records)
    return tables, backend


def grading(bundle, script, *cases):
    return graded(bundle, script, *cases)[0].gradings[0]


def test_rulers_asks_once_and_adds_up():
    found, backend = graded(bundle_of(), decided(P1=2, P2=1, M=0))
    row = found.gradings[0]
    assert (backend.calls, [a["part"] for a in found.attempts]) == (1, ["all"])
    assert (row["score"], row["status"], row["unscored_reason"]) == (8, "scored", None)
    assert row["trait_scores"] == {"a": 4, "b": 2}
    assert [j["decision"] for j in found.judgments] == [2, 1, 0]


@pytest.mark.parametrize(("stated", "off_step", "tie"), [(7, 0, 0), (7.25, 1, 0), (7.5, 1, 1)])
def test_a_stated_score_between_the_steps_is_kept_and_said(stated, off_step, tie):
    row = grading(bundle_of("dhs"), json.dumps({"score": stated}))
    assert (row["score"], row["signals"].get("off_step", 0), row["signals"]["tie"]) == (stated, off_step, tie)


@pytest.mark.parametrize("name", ["rulers", "pointwise", "dhs"])
@pytest.mark.parametrize("text", ["", "  \n", "?!…", "\u200b"])
def test_a_response_without_words_is_settled_without_a_call(name, text):
    bundle = bundle_of(name)
    found, backend = graded(bundle, "never asked", case_of(bundle, text=text))
    row = found.gradings[0]
    assert (backend.calls, found.attempts) == (0, [])
    assert (row["status"], row["score"], row["signals"]["precheck"]) == ("precheck", 0, 1)
    assert [(j["decision"], j["stated"]) for j in found.judgments] == [(0, None)] * (0 if name == "dhs" else 3)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(error="timeout: 60 s"), "no_reply"),
        (None, "no_reply"),
        ("", "unreadable_reply"),
        ("I cannot grade this.", "unreadable_reply"),
        ('{"score": 5}', "unreadable_reply"),
        ('{"decisions": {"P1": {"level": 1}, "P1": {"level": 2}}}', "unreadable_reply"),
        ('{"decisions": []}', "invalid_reply"),
        ('{"decisions": {}}', "criterion_missing"),
    ],
)
@pytest.mark.parametrize("name", ["rulers", "pointwise"])
def test_a_reply_that_fails_as_a_whole_leaves_everything_unscored_with_one_reason(name, reply, reason):
    found, _ = graded(bundle_of(name), lambda r: reply)
    row = found.gradings[0]
    assert (row["score"], row["status"], row["unscored_reason"]) == (None, "unscored", reason)
    assert [(j["decision"], j["unscored_reason"]) for j in found.judgments] == [(None, reason)] * 3


def test_bounds_stand_where_the_bundle_asks_for_them():
    row = grading(bundle_of(unscored="bounds"), decided(P1=2, M=0))
    assert (row["score"], row["low"], row["high"]) == (None, 5, 10)


def test_zero_by_name_scores_and_gives_every_feature():
    row = grading(bundle_of(unscored="zero"), decided(P1=2, M=0))
    assert (row["score"], row["status"]) == (5, "scored")
    assert (row["signals"]["criterion.P2"], row["signals"]["mean.b"]) == (0, 0)


def test_level_probabilities_become_confidence_and_features():
    likely = {"P1": [0.0, 0.2, 0.8], "P2": [0.1, 0.6, 0.3], "M": [0.9, 0.1]}
    found, _ = graded(bundle_of(), Reply(text=decided(P1=2, P2=1, M=0), level_probabilities=likely))
    row = found.gradings[0]
    confidence = (0.8 + 0.6 + 0.9) / 3
    assert row["confidence"] == row["signals"]["confidence"] == pytest.approx(confidence)
    assert row["signals"]["uncertainty"] == pytest.approx(1 - confidence)
    assert row["signals"]["criterion.P1"] == pytest.approx((0.2 + 2 * 0.8) / 2)
    assert row["signals"]["mean.b"] == pytest.approx((0.6 + 2 * 0.3) / 2 - 0.1)
    assert [j["level_probabilities"] for j in found.judgments] == list(likely.values())


@pytest.mark.parametrize(("level", "tie"), [(1, 1.0), (2, 0.0)])
def test_a_tie_is_a_signal(level, tie):
    bundle = bundle_of()
    odd = tuple(t.model_copy(update={"max": 3.0}) for t in bundle.traits)
    row = grading(bundle.model_copy(update={"traits": odd}), decided(P1=level, P2=0, M=0))
    assert row["signals"]["tie"] == tie


@pytest.mark.parametrize("reply", ["\ud800 no", Reply(error="bad \udfff byte"), '{"decisions": {"P1\\ud800": 1}}'])
def test_half_surrogates_in_a_reply_do_not_stop_the_table(reply):
    assert grading(bundle_of(), reply)["score"] is None


def test_the_system_part_is_the_same_for_all_responses_of_an_item():
    bundle = bundle_of()
    nobody = Rater("nobody", "llm", Scripted([]))
    asked = [request for n in range(5) for request in first_requests(case_of(bundle, str(n), f"answer {n}"), nobody)]
    assert len({r.messages[0].content for r in asked}) == len({id(r.schema) for r in asked}) == 1
    assert len({r.messages[1].content for r in asked}) == 5


def test_a_rerun_asks_nothing_and_gives_the_same():
    bundle = bundle_of("pointwise")
    with ReplyStore(":memory:") as store:
        first, backend = graded(bundle, lambda r: decided(**{r.data.criteria[0].id: 1}), store=store)
        again, idle = graded(bundle, lambda r: pytest.fail("asked again"), store=store)
    assert (backend.calls, idle.calls) == (3, 0)
    assert (again.judgments, again.gradings) == (first.judgments, first.gradings)


def test_an_error_reply_is_asked_again_and_an_answer_is_not():
    bundle = bundle_of()
    cases = [case_of(bundle, "good"), case_of(bundle, "bad", TEXT + " Else.")]
    with ReplyStore(":memory:") as store:
        graded(bundle, {"good": [decided(P1=1, P2=1, M=0)]}, *cases, store=store)
        found, backend = graded(bundle, {"bad": [decided(P1=2, P2=2, M=0)]}, *cases, store=store)
    assert [r.subject for r in backend.asked] == ["bad"]
    assert [row["status"] for row in found.gradings] == ["scored", "scored"]


def test_pointwise_asks_for_each_criterion():
    replies = {"P1": decided(P1=2), "P2": decided(P2=2), "M": decided(M=1)}
    found, backend = graded(bundle_of("pointwise"), lambda r: replies[r.data.criteria[0].id])
    assert (backend.calls, [a["part"] for a in found.attempts]) == (3, ["P1", "P2", "M"])
    assert found.gradings[0]["score"] == 5  # (1 + 1 - 1) of 2 points
