"""A quote that stands in the response and says nothing of its criterion: found, counted, demoted or mended."""

import json

import numpy as np
import pytest
from builders.bundles import bundle, criterion, trait
from builders.canonical import canonical
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Repair
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backends.scripted import Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.text.tokens import tokens
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge import evidence
from rubricflow.tasks.grading.judge.evidence import Relevance, Subject
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.protocols.gradeagentops.contract import everything, read
from rubricflow.tasks.grading.judge.protocols.gradeagentops.settlement import settle
from rubricflow.tasks.grading.judge.rows import Case, Rater
from rubricflow.tasks.grading.judge.verify import verify

TEXT = "Green leaves take in the sun. The rain feeds thirsty roots. My uncle sells old cars."
LIGHT, WATER, CARS = "Green leaves take in the sun", "The rain feeds thirsty roots", "My uncle sells old cars"
TOPICS = ({"green", "leaves", "sun", "light"}, {"rain", "roots", "water"})


def encode(texts):
    """A text by its share of two topics' words."""
    rows = [[len(topic & set(tokens(text))) + 1e-3 for topic in TOPICS] for text in texts]
    return np.array([np.array(row) / np.linalg.norm(row) for row in rows])


def bundle_of(failed, **changes):
    criteria = criterion("A", text="light is needed"), criterion("B", text="water is needed")
    return bundle(*criteria, relevance={"least": -0.5, "failed": failed}, **changes)


def subject_of(of):
    return Subject(TEXT, units(TEXT), relevance=Relevance(of.criteria, -0.5, encode))


def judged(of, **said):
    decisions = {
        name: {"evidence": [{"quote": quote} for quote in quotes], "level": 1} for name, quotes in said.items()
    }
    return verify({"decisions": decisions}, of, of.criteria, subject_of(of))


def test_relevance_is_the_margin_over_the_other_criteria():
    of = bundle_of("count")
    vectors = encode([LIGHT, *(evidence.looked_for(c) for c in of.criteria)])
    expected = vectors[0] @ vectors[1] - vectors[0] @ vectors[2]
    own, other, neither = Relevance(of.criteria, 0, encode).relevances([("A", LIGHT), ("B", LIGHT), ("A", CARS)])
    assert (own, other) == pytest.approx((expected, -expected))
    assert abs(neither) < 0.1 < own


@pytest.mark.parametrize(
    ("failed", "level", "status", "violations"),
    [
        ("count", 1, "verified", ()),
        ("demote", 0, "irrelevant", ("irrelevant:B",)),
        ("repair", 0, "irrelevant", ("irrelevant:B",)),
    ],
)
def test_an_irrelevant_quote_does_as_the_bundle_says(failed, level, status, violations):
    verdict = judged(bundle_of(failed), A=[LIGHT], B=[LIGHT])
    assert [d.level for d in verdict.decisions] == [1, level]
    assert verdict.decisions[1].evidence[0]["status"] == status
    assert verdict.violations == violations
    assert verdict.signals["irrelevant"] == 1


def test_a_relevant_quote_beside_it_carries_the_level():
    verdict = judged(bundle_of("demote"), A=[LIGHT], B=[LIGHT, WATER])
    assert [d.level for d in verdict.decisions] == [1, 1]
    assert not verdict.violations


@given(
    st.dictionaries(st.sampled_from("AB"), st.lists(st.sampled_from([LIGHT, WATER, CARS, "never said"]), max_size=3)),
    st.sampled_from(["count", "demote", "repair"]),
)
def test_relevance_never_gives_credit_and_what_stands_is_settled(said, failed):
    of = bundle_of(failed)
    free = bundle_of(failed).model_copy(update={"protocol": of.protocol.model_copy(update={"relevance": None})})
    verdict, without = judged(of, **said), verify_free(free, said)
    for ours, theirs in zip(verdict.decisions, without.decisions, strict=True):
        assert (ours.level or 0) <= (theirs.level or 0)
    artifact = canonical(verdict, of.criteria, TEXT)
    assert canonical(verify(artifact, of, of.criteria, subject_of(of)), of.criteria, TEXT) == artifact


def verify_free(of, said):
    decisions = {
        name: {"evidence": [{"quote": quote} for quote in quotes], "level": 1} for name, quotes in said.items()
    }
    return verify({"decisions": decisions}, of, of.criteria, Subject(TEXT, units(TEXT)))


@pytest.mark.parametrize(("failed", "calls"), [("count", 1), ("demote", 1), ("repair", 2)])
def test_only_repair_asks_again(failed, calls, monkeypatch):
    monkeypatch.setattr(evidence, "minilm", lambda: encode)
    monkeypatch.setattr(evidence, "require_encoder", lambda why: None)
    of = bundle_of(failed, repair=Repair(contract=0, semantic=1))
    said = iter([{"A": ("sentence 1", LIGHT), "B": ("sentence 1", LIGHT)}, {"B": ("sentence 2", WATER)}])
    backend = Scripted(lambda _: Reply(text=json.dumps({"decisions": decisions(next(said))})))
    case = Case("r", "i", TEXT, tuple(units(TEXT)), "Why?", None, of, of.bundle_id)
    with ReplyStore(":memory:") as store:
        found = grade_batch([case], Rater("r", "llm", backend), store)
    attempts = found.called[0].answer.attempts
    assert len(attempts) == calls
    if calls == 2:
        assert attempts[1].request.mends == ("B",)
        assert "say nothing of it" in attempts[1].request.messages[-1].content
        assert [d.level for d in found.judged[0].decisions] == [1, 1]


def decisions(said):
    return {name: {"evidence": [{"unit": u, "quote": q}], "level": 1} for name, (u, q) in said.items()}


def test_gradeagentops_refuses_irrelevant_quotes_too():
    criteria = criterion("A", text="light is needed"), criterion("B", text="water is needed")
    of = bundle(*criteria, traits=(trait("t", source="judged"),), name="gradeagentops", relevance={"failed": "demote"})
    said = {"evidence": [{"point": n, "quote": LIGHT} for n in (1, 2)], "covered": [1, 2], "missed": [],
            "rationale": "", "subscores": {"t": 5}}  # fmt: skip
    verdict = settle(read(said, everything(of), of), of, subject_of(of))
    assert [d.level for d in verdict.decisions] == [1, 0]
    assert "irrelevant:B" in verdict.violations


def test_one_criterion_alone_has_nothing_to_compare_with():
    assert Relevance((criterion("A"),), 2, encode).relevances([("A", CARS)]) == [float("inf")]


def test_no_rule_leaves_a_bundle_s_id_alone():
    assert "relevance" not in bundle(criterion("A")).canonical()
    rule = Judge(relevance={"failed": "demote"}).as_protocol().relevance
    assert (rule.failed, rule.least) == ("demote", -0.37)
