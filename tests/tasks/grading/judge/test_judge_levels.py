"""Which decisions of a contract have probabilities, and which rater a study with a language model names."""

import json
import math

import pytest
from builders.bundles import bundle, criterion, trait
from builders.cases import case

from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply, Token
from rubricflow.tasks.grading.judge.grade import first_requests, grade_batch
from rubricflow.tasks.grading.judge.protocol import protocol_of
from rubricflow.tasks.grading.judge.rater import Levelled, levelled, rater
from rubricflow.tasks.grading.judge.rows import Rater

TEXT = "Heat is the motion of particles."


def case_of(protocol, **more):
    points = (criterion(name, levels=("no", "some", "yes")) for name in "ab")
    judged = "judged" if protocol in ("mts", "unlocked", "gradeagentops") else "derived"
    formula = "judged" if protocol == "dhs" else "trait_mean"
    return case(bundle(*points, traits=(trait(source=judged),), name=protocol, final_score=formula, **more), TEXT)


def characters(text, alternatives):
    """A reply's text a character a token; `alternatives`: place → (text, probability)."""
    return [
        Token(c, math.log(dict(alternatives[i])[c]) if i in alternatives else 0.0, logs(alternatives.get(i, ())))
        for i, c in enumerate(text)
    ]


def logs(likely):
    return tuple((text, math.log(p)) for text, p in likely)


def checklist():
    evidence = [{"unit": "s1", "quote": 'the "level": 0 of heat'}]
    decisions = {"a": {"evidence": evidence, "level": 2}, "b": {"evidence": [], "level": 0}}
    return json.dumps({"decisions": decisions}, indent=1)


@pytest.mark.parametrize("structured", [True, False])
def test_each_criterion_has_its_levels_and_what_a_quote_says_is_none(structured):
    case, text = case_of("rulers"), checklist()
    request = first_requests(case, Rater("r", "llm", Scripted([]), structured=structured))[0]
    assert (request.schema is None) != structured
    first, second = text.index('"level": 2') + 9, text.rindex('"level": 0') + 9
    alternatives = {first: (("2", 0.5), ("1", 0.3), ("0", 0.2)), second: (("0", 0.9), ("1", 0.1))}
    made = levelled(request, Reply(text=text, token_logprobs=characters(text, alternatives)))
    assert made.level_probabilities == {"a": pytest.approx([0.2, 0.3, 0.5]), "b": pytest.approx([0.9, 0.1, 0])}
    assert made.token_logprobs is None


def test_each_criterion_of_a_call_for_several_has_its_levels():
    case, text = case_of("pointwise", criteria_per_call=2), checklist()
    (request,) = first_requests(case, Rater("r", "llm", Scripted([])))
    at = text.rindex('"level": 0') + 9
    made = levelled(request, Reply(text=text, token_logprobs=characters(text, {at: (("0", 0.9), ("1", 0.1))})))
    assert made.level_probabilities["b"] == pytest.approx([0.9, 0.1, 0])
    assert made.level_probabilities.keys() == {"a", "b"}


def test_a_holistic_score_of_two_digits():
    case, text = case_of("dhs"), '{"rationale": "", "score": 10}'
    request = first_requests(case, Rater("r", "llm", Scripted([])))[0]
    at = text.index("10")
    alternatives = {at: (("1", 0.6), ("7", 0.4)), at + 1: (("0", 0.5), ("}", 0.5))}
    made = levelled(request, Reply(text=text, token_logprobs=characters(text, alternatives)))
    expected = [0, 0.3, 0, 0, 0, 0, 0, 0.4, 0, 0, 0.3]
    assert made.level_probabilities == {"score": pytest.approx(expected)}


@pytest.mark.parametrize(
    "protocol", ["rulers", "dhs", "pointwise", "mts", "unlocked", "checkeval", "gradeagentops", "concepts"]
)
def test_every_protocol_s_contract_has_decisions_with_values(protocol):
    """The keys are criteria, traits or 'score', whatever the contract looks like."""
    case = case_of(protocol)
    for request in first_requests(case, Rater("r", "llm", Scripted([]))):
        whole = protocol_of(protocol).schema(case.bundle, protocol_of(protocol).parts(case.bundle, ())[0])
        assert "properties" in whole
        text = json.dumps(_lowest(request.schema))
        made = levelled(request, Reply(text=text, token_logprobs=[Token(c, 0.0, ((c, 0.0),)) for c in text]))
        assert made.level_probabilities
        assert all(max(likely) == 1 and len(likely) > 1 for likely in made.level_probabilities.values())


def _lowest(schema):
    """The first value that a contract admits."""
    if "anyOf" in schema:
        return _lowest(schema["anyOf"][0])
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        return {name: _lowest(of) for name, of in schema["properties"].items()}
    return {"integer": int(schema.get("minimum", 0)), "array": [], "string": "x"}.get(schema.get("type"))


def test_the_store_keeps_probabilities_and_no_tokens_and_decisions_have_them():
    case, text = case_of("rulers"), checklist()
    second = text.rindex('"level": 0') + 9
    reply = Reply(text=text, token_logprobs=characters(text, {second: (("0", 0.75), ("1", 0.25))}))
    who = Rater("r", "llm", Levelled(Scripted([reply])), want_logprobs=True)
    with ReplyStore(":memory:") as store:
        grade_batch([case], who, store)
        graded = grade_batch([case], who, store)  # from the store
        assert graded.called[0].answer.attempts[0].reply.token_logprobs is None
    assert graded.judged[0].probabilities["b"] == pytest.approx([0.75, 0.25, 0])


# --- raters


def language_model(tmp_path, **judge):
    plan = {"backend": "openai", "engine": {"model": "org/small"}} | judge
    with ReplyStore(":memory:") as store:
        return rater(Judge.model_validate(plan), tmp_path, store, lambda name: None)


def test_a_rater_is_named_by_kind_model_and_protocol(tmp_path):
    who = language_model(tmp_path)
    assert (who.rater_id, who.kind, who.mender) == ("openai:org/small:checked_score", "llm", None)


def test_a_rater_s_name_holds_no_path(tmp_path):
    who = language_model(tmp_path, engine={"model": "/some/where/small"})
    assert who.rater_id.startswith("openai:small@")
    assert "where" not in who.rater_id


def test_a_second_model_mends(tmp_path):
    who = language_model(tmp_path, repair_engine={"model": "org/large"})
    assert who.rater_id == "openai:org/small+org/large:checked_score"
    assert who.mender.model == "org/large"


def test_how_replies_are_drawn_is_asked_for(tmp_path):
    engine = {"model": "m", "logprobs": 5, "structured": False}
    who = language_model(tmp_path, engine=engine, sampling={"temperature": 0.5, "seed": 9})
    assert (who.sampling.temperature, who.sampling.seed, who.want_logprobs, who.structured) == (0.5, 9, True, False)
    assert not language_model(tmp_path).want_logprobs


def test_recorded_replies_of_a_model_are_asked_for_as_it_was(tmp_path):
    """Otherwise no recorded reply would be found."""
    plan = {"backend": "replay", "model": "org/small", "sampling": {"seed": 9}, "engine": {"model": "m", "logprobs": 3}}
    who = language_model(tmp_path, **plan)
    assert (who.sampling.seed, who.want_logprobs, who.kind) == (9, True, "replayed")
