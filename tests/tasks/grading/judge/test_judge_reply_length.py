"""The room of a reply follows from what is asked, and small requests stay what they were."""

import json

import pytest
from builders.bundles import THREE, bundle, criterion, trait
from builders.cases import case

from rubricflow.tasks.core.contracts.settings.engine import ROOM, Sampling
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.request import digest
from rubricflow.tasks.grading.judge.grade import first_requests
from rubricflow.tasks.grading.judge.protocol import Opinion, needed, protocol_of
from rubricflow.tasks.grading.judge.rows import Rater

WORDS = "plants take in carbon dioxide through small openings in their leaves and give off oxygen by day "


def requests(criteria, protocol="rulers", sampling=Sampling(), **more):  # noqa: B008  it is frozen
    judged = "judged" if protocol in ("gradeagentops", "unlocked", "mts") else "derived"
    levels = (
        ("missed", "covered") if protocol == "gradeagentops" else ("no", "yes") if protocol == "checkeval" else THREE
    )
    points = (criterion(f"P{n}", levels=levels) for n in range(criteria))
    formula = "judged" if protocol in ("dhs", "autoscore") else "trait_mean"
    made = bundle(*points, traits=(trait(source=judged),), name=protocol, final_score=formula, **more)
    return first_requests(case(made, WORDS), Rater("r", "llm", Scripted([]), sampling=sampling))


@pytest.mark.parametrize("protocol", ["rulers", "checkeval", "unlocked", "dhs", "mts", "gradeagentops", "autoscore"])
@pytest.mark.parametrize("criteria", [1, 12, 60])
def test_a_full_reply_of_any_protocol_has_room(protocol, criteria):
    """Three characters a token are fewer than English has; a quote of 190 characters is a long one."""
    quote = (WORDS * 2)[:190]
    for request in requests(criteria, protocol):
        question = request.data
        opinion = Opinion(
            levels={c.id: 1 for c in question.bundle.criteria},
            evidence={c.id: [{"unit": "s1", "quote": quote}] for c in question.bundle.criteria},
            traits={t.id: 10 for t in question.bundle.traits},
            because=(WORDS * 9)[:600],
        )
        reply = json.dumps(protocol_of(protocol).artifact(question, opinion))
        assert len(reply) / 3 <= request.sampling.max_tokens


def test_a_small_request_stays_the_call_that_it_was():
    (request,) = requests(6)
    (named,) = requests(6, sampling=Sampling(max_tokens=1024))
    assert request.sampling.max_tokens == ROOM
    assert digest(request, "m") == digest(named, "m")


def test_what_the_study_names_stands():
    (request,) = requests(60, sampling=Sampling(max_tokens=99))
    assert request.sampling.max_tokens == 99


def test_more_is_asked_for_than_the_context_holds_only_up_to_half_of_it():
    (free,), (bound,), (tight,) = (requests(60, context_tokens=n) for n in (None, 8192, 1500))
    assert free.sampling.max_tokens > 4096
    assert (bound.sampling.max_tokens, tight.sampling.max_tokens) == (4096, ROOM)


def test_samplings_that_say_the_same_are_one():
    """The digests of thousands of requests remember a sampling by its identity."""
    sampling = Sampling()
    bundle_ = bundle(*(criterion(f"P{n}", levels=THREE) for n in range(20)))
    rater = Rater("r", "llm", Scripted([]), sampling=sampling)
    first, second = (first_requests(case(bundle_, text), rater)[0] for text in ("one", "two"))
    assert first.sampling is second.sampling


def test_every_shape_of_a_schema_counts():
    text = {"type": "string", "maxLength": 400}
    assert needed(text) == 104
    assert needed({"anyOf": [text, {"type": "null"}]}) == 104
    assert needed({"type": "array", "maxItems": 9, "items": text}) == 108
    assert needed({"type": "object", "properties": {"a": text, "b": {"type": "integer"}}}) == 4 + 8 + 104 + 8 + 4
