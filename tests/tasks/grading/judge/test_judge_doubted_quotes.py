"""One quote for many criteria: counted by span, bounded by the bundle, whatever the order and the cut of quotes."""

import json

import pytest
from builders.bundles import bundle, criterion
from builders.canonical import canonical
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Repair
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.doubted_quotes import sharers
from rubricflow.tasks.grading.judge.evidence import Subject
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.rows import Case, Decision, Rater
from rubricflow.tasks.grading.judge.verify import verify

TEXT = "Plants need light to grow. Water helps them drink. The café sells good bread."
FIRST, SECOND, THIRD = "Plants need light to grow", "Water helps them drink", "The café sells good bread"
NAMES = ("A", "B", "C", "D")
SUBJECT = Subject(TEXT, units(TEXT))
SPANS = st.tuples(st.integers(0, 30), st.integers(1, 12)).map(lambda at: (at[0], at[0] + at[1]))


def bundle_of(most=2, names=NAMES, **changes):
    return bundle(*(criterion(name) for name in names), shared_quotes=most, **changes)


def judged(said, of):
    decisions = {
        name: {"evidence": [{"quote": quote} for quote in quotes], "level": 1} for name, quotes in said.items()
    }
    return verify({"decisions": decisions}, of, of.criteria, SUBJECT)


def levels(verdict):
    return {d.criterion_id: d.level for d in verdict.decisions}


def decision(name, spans, level=1):
    rows = [{"unit_id": None, "quote": "q", "start": a, "end": b, "status": "verified"} for a, b in spans]
    return Decision(name, level, level, evidence=tuple(rows), verified=True)


@given(st.lists(st.tuples(st.lists(SPANS, max_size=3), st.integers(0, 1)), max_size=6))
def test_sharers_are_those_of_more_than_half_of_the_characters(said):
    decisions = [decision(str(i), spans, level) for i, (spans, level) in enumerate(said)]

    def quotes(decision, at):
        return decision.level and any(row["start"] <= at < row["end"] for row in decision.evidence)

    quoting = [{i for i, one in enumerate(decisions) if quotes(one, at)} for at in range(50)]
    found = sharers(decisions)
    assert len(found) == sum(len(d.evidence) for d in decisions if d.level)
    for (i, j), k in found.items():
        row = decisions[i].evidence[j]
        counts = [len(quoting[at]) for at in range(row["start"], row["end"])]
        assert k == max(n for n in range(1, 8) if sum(count >= n for count in counts) * 2 > len(counts))


def test_quotes_without_a_place_or_a_character_are_shared_by_those_with_the_same_words():
    decisions = [decision("A", [(None, None), (4, 4)]), decision("B", [(0, 0), (0, 5)]), decision("C", [], 1)]
    assert sharers(decisions) == {(0, 0): 2, (0, 1): 2, (1, 0): 2, (1, 1): 1}
    assert sharers([decision("A", [(0, 0)])]) == {(0, 0): 1}


@pytest.mark.parametrize(
    ("failed", "action", "level"), [("demote", "demoted", 0), ("drop", "dropped", 0), ("count", "counted", 1)]
)
def test_beyond_the_bound_a_quote_proves_nothing(failed, action, level):
    said = {"A": [FIRST], "B": [FIRST], "C": ["Plants need light"], "D": [SECOND]}
    verdict = judged(said, bundle_of(2, failed_quote=failed))
    assert levels(verdict) == {"A": level, "B": level, "C": level, "D": 1}
    assert [d.action for d in verdict.decisions] == [action, action, action, "none"]
    assert verdict.violations == ("shared_quote:A", "shared_quote:B", "shared_quote:C")
    expected = {"quotes": 4, "verified": 1, "shared": 3, "invalid_evidence": 3, "unsupported": 3, action: 3}
    assert verdict.signals == expected


def test_another_quote_of_its_own_carries_the_level():
    verdict = judged({"A": [FIRST, SECOND], "B": [FIRST], "C": [FIRST]}, bundle_of(2))
    assert levels(verdict) == {"A": 1, "B": 0, "C": 0, "D": None}
    assert [row["status"] for row in verdict.decisions[0].evidence] == ["shared", "verified"]


QUOTED = st.dictionaries(
    st.sampled_from(NAMES), st.lists(st.sampled_from([FIRST, SECOND, THIRD, "need light", TEXT[:50]]), max_size=3)
)


@given(QUOTED, st.permutations(NAMES), st.integers(1, 4))
def test_the_order_of_the_criteria_decides_nothing_and_the_result_is_settled(said, order, most):
    verdict, again = judged(said, bundle_of(most)), judged(said, bundle_of(most, tuple(order)))
    assert levels(verdict) == levels(again)
    assert verdict.signals == again.signals
    assert all(k <= most for k in sharers([d._replace(evidence=held(d)) for d in verdict.decisions]).values())
    of = bundle_of(most)
    artifact = canonical(verdict, of.criteria, TEXT)
    assert canonical(verify(artifact, of, of.criteria, SUBJECT), of.criteria, TEXT) == artifact


def held(decision):
    return tuple(row for row in decision.evidence if row["status"] == "verified")


def graded(of, *replies):
    said = iter(replies)
    backend = Scripted(lambda _: Reply(text=json.dumps({"decisions": next(said)})))
    case = Case("r", "i", TEXT, tuple(units(TEXT)), "Why?", None, of, of.bundle_id)
    with ReplyStore(":memory:") as store:
        return grade_batch([case], Rater("r", "llm", backend), store)


def quoting(said):
    return {name: {"evidence": [cited(quote)], "level": 1} for name, quote in said.items()}


def cited(quote):
    return {"unit": "sentence 1", "quote": quote}


def test_shared_quotes_are_mended_as_evidence_is():
    of = bundle_of(1, ("A", "B"), repair=Repair(contract=0, semantic=1))
    mended = quoting({"A": FIRST}) | {"B": {"evidence": [{"unit": "sentence 2", "quote": SECOND}], "level": 1}}
    found = graded(of, quoting({"A": FIRST, "B": FIRST}), mended)
    first, second = found.called[0].answer.attempts
    assert first.checked.violations == ("shared_quote:A", "shared_quote:B")
    assert "words of its own" in second.request.messages[-1].content
    assert (second.request.role, second.request.mends, second.checked.violations) == ("semantic_repair", ("A", "B"), ())
    assert [d.level for d in found.judged[0].decisions] == [1, 1]


def test_the_bound_holds_over_all_calls_of_a_protocol_that_asks_one_by_one():
    of = bundle_of(2, ("A", "B", "C"), name="pointwise", final_score="weighted_points")
    found = graded(of, *(quoting({name: FIRST}) for name in ("A", "B", "C")))
    assert [d.level for d in found.judged[0].decisions] == [0, 0, 0]
    assert found.gradings[0].signals["shared_quotes"] == 3
    unbound = bundle_of(None, ("A", "B", "C"), name="pointwise", final_score="weighted_points")
    free = graded(unbound, *(quoting({name: FIRST}) for name in ("A", "B", "C")))
    assert (free.gradings[0].scored.score, free.gradings[0].signals["shared_quotes"]) == (10, 3)


def test_a_study_s_bound_reaches_the_bundle_and_none_leaves_its_id_alone():
    assert Judge(shared_quotes=2).as_protocol().shared_quotes == 2
    assert "shared_quotes" not in bundle_of(None).canonical()
    assert bundle_of(None).bundle_id != bundle_of(2).bundle_id
