"""What repeats the question or the rubric is no evidence; what has its author's own words is."""

from itertools import chain

import pytest
from builders.bundles import bundle, criterion, trait
from builders.canonical import canonical
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Anchor
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.doubted_quotes import INSIDE, RUN, SHARE, wording
from rubricflow.tasks.grading.judge.evidence import ground, subject_of
from rubricflow.tasks.grading.judge.protocol import Question
from rubricflow.tasks.grading.judge.verify import verify

QUESTION = "Why does a slice of potato become soft in salt water?"
CONTEXT = "The tank held forty litres of sea water that had been filtered twice that morning."
POINT = "Water leaves the cells because the solution outside them is more concentrated."
PROSE = "A full answer names the membrane that lets water pass and keeps the salt back."
LEVEL = "the direction of the water is given and the reason for that direction as well"
ANCHOR = "The answer follows the water all the way from the cell to the dish."


def bundle_of(echo="refused", source="response", evidence="local_quote"):
    of = criterion(
        "P1", text=POINT, levels=("not said", "said in part", LEVEL), evidence=evidence, evidence_from=source
    )
    return bundle(of, traits=(trait(anchors=(Anchor(score=10, text=ANCHOR),)),), text=PROSE, echo=echo)


def status_of(quote, response=None, context=CONTEXT, **rubric):
    text = response or quote
    of = bundle_of(**rubric)
    question = Question(of, of.criteria, text, tuple(units(text)), "i", QUESTION, context)
    return ground(quote, None, of.criteria[0], subject_of(question))[0]


@pytest.mark.parametrize("source", [POINT, PROSE, LEVEL, ANCHOR, QUESTION, CONTEXT])
@pytest.mark.parametrize("change", [str, str.upper, lambda s: s.replace(" the ", "  the, "), "“{}”".format])
def test_every_source_is_an_echo_however_it_is_written(source, change):
    assert status_of(change(source)) == "echo"


@pytest.mark.parametrize("source", [POINT, PROSE, LEVEL, ANCHOR])
def test_the_rubric_may_be_repeated_where_the_protocol_allows_it_but_the_question_never(source):
    assert status_of(source, echo="allowed") == "verified"
    assert status_of(QUESTION, echo="allowed") == "echo"


def test_the_context_counts_where_the_criterion_takes_evidence_from_it():
    assert status_of(CONTEXT, source="response_and_context") == "verified"
    assert status_of(CONTEXT, "I know it.", source="response_and_context") == "context"
    assert status_of(QUESTION, source="response_and_context") == "echo"


@pytest.mark.parametrize(
    "own",
    [
        "the salt pulls water out of the potato until it hangs limp",
        "water leaves the cells and so they shrink",
        "The solution outside them is more salty, so water goes out.",
        "Water leaves the cells because the solution outside is stronger, which we saw with raisins",
    ],
)
def test_own_words_stand_also_where_they_share_some_with_the_key(own):
    assert status_of(own) == "verified"


def test_a_mixed_quote_stands_by_its_own_words():
    mixed = f"{POINT} I saw this when I salted a cucumber for my grandmother."
    assert status_of(mixed) == "verified"


@pytest.mark.parametrize("piece", ["the cells because", "outside them is", "concentrated"])
def test_a_few_words_out_of_a_copied_sentence_are_an_echo_too(piece):
    response = f"My answer. {POINT} That is all."
    assert status_of(piece, response) == "echo"


def test_the_same_few_words_in_a_sentence_of_ones_own_are_evidence():
    assert status_of("the cells because", "Salt empties the cells because it draws water.") == "verified"


def test_fragments_around_an_ellipsis_are_looked_at_each():
    response = f"{POINT} {PROSE}"
    quote = (
        "Water leaves the cells because the solution outside them ... membrane that lets water pass and keeps the salt"
    )
    assert status_of(quote, response) == "echo"
    own = f"{POINT} Bananas are yellow in my house."
    assert status_of("Water leaves the cells … are yellow in my house", own) == "verified"


@pytest.mark.parametrize("copied", ["the ce lls because the solution", "thecells because", "the cells, because"])
def test_no_spelling_hides_an_echo(copied):
    assert status_of(copied, f"My answer. {POINT} That is all.") == "echo"


def test_an_echo_is_refused_counts_as_invalid_and_demotes():
    of = bundle_of()
    question = Question(of, of.criteria, POINT, tuple(units(POINT)), "i", QUESTION, None)
    given_artifact = {"decisions": {"P1": {"evidence": [{"unit": "s1", "quote": POINT}], "level": 2}}}
    verdict = verify(given_artifact, of, of.criteria, subject_of(question))
    (decision,) = verdict.decisions
    assert (decision.level, decision.verified, decision.action) == (0, False, "demoted")
    assert decision.evidence[0]["status"] == "echo"
    assert verdict.signals["echo"] == verdict.signals["invalid_evidence"] == 1


def brute(said, before, after, sources):
    """Whether the definition calls it a repetition, by looking at every run of the response in every source."""
    whole = before + said + after
    copied = set()
    for source in sources:
        for low in range(len(whole)):
            for high in range(low + RUN, len(whole) + 1):
                run = whole[low:high]
                if any(source[at : at + len(run)] == run for at in range(len(source) - len(run) + 1)):
                    copied |= set(range(low, high))
    inside = len(said) >= INSIDE and any(
        sources[0][at : at + len(said)] == said for at in range(len(sources[0]) - len(said) + 1)
    )
    mine = sum(len(before) <= place < len(before) + len(said) for place in copied)
    return inside or mine >= SHARE * len(said)


LETTERS = st.lists(st.sampled_from("abc"), min_size=0, max_size=6)


@settings(max_examples=20)
@given(st.data())
def test_the_rule_is_its_definition(data):
    source = data.draw(st.lists(st.sampled_from("abc"), min_size=8, max_size=20))
    cut = st.tuples(st.integers(0, len(source)), st.integers(0, len(source))).map(lambda ab: source[min(ab) : max(ab)])
    said = data.draw(st.lists(st.one_of(cut, LETTERS), min_size=1, max_size=3).map(lambda parts: [*chain(*parts)]))
    before, after = data.draw(cut)[-6:], data.draw(cut)[:6]
    if len(said) < 2:
        return
    of = bundle_of().model_copy(update={"text": " ".join(source)})
    rule = wording(of, QUESTION, None)
    text = " ".join([*before, *said, *after])
    start = len(" ".join(before)) + 1 if before else 0
    needle = " ".join(said)
    assert rule.is_in(needle, text, (start, start + len(needle))) is brute(said, before, after, [["?"], source])


PARTS = [POINT, PROSE, LEVEL, QUESTION, CONTEXT, "My own words about it. ", "the cells because", "salt"]
TEXTS = st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map(" ".join)


@settings(max_examples=20)
@given(
    TEXTS,
    st.lists(st.tuples(st.sampled_from(["s1", "s2", "p1", None]), TEXTS), max_size=4),
    st.sampled_from(["local_quote", "span_level", "weakly_groundable"]),
    st.sampled_from(["response", "response_and_context"]),
)
def test_verifying_the_canonical_artifact_finds_no_echo_and_changes_nothing(text, quotes, evidence, source):
    of = bundle_of(source=source, evidence=evidence)
    subject = subject_of(Question(of, of.criteria, text, tuple(units(text)), "i", QUESTION, CONTEXT))
    entries = [{"unit": unit, "quote": quote} for unit, quote in quotes]
    first = verify({"decisions": {"P1": {"evidence": entries, "level": 2}}}, of, of.criteria, subject)
    left = canonical(first, of.criteria, text)
    again = verify(left, of, of.criteria, subject)
    assert canonical(again, of.criteria, text) == left
    assert [d.level for d in again.decisions] == [d.level for d in first.decisions]
    assert again.signals["echo"] == 0


def test_a_repair_is_told_that_the_quote_was_an_echo():
    of, response = bundle_of(), f"{POINT} It wilts."
    question = Question(of, of.criteria, response, tuple(units(response)), "i", QUESTION, CONTEXT)
    decision = {"level": 2, "evidence": [{"unit": "s1", "quote": POINT}]}
    assert verify({"decisions": {"P1": decision}}, of, of.criteria, subject_of(question)).violations == ("echo:P1",)
