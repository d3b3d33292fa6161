"""What repeats the question or the rubric is no evidence; what has its author's own words is."""

from itertools import chain

import pytest
from builders.bundles import bundle, criterion, trait
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Anchor
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.doubted_quotes import INSIDE, RUN, SHARE, wording
from rubricflow.tasks.grading.judge.evidence import ground, subject_of
from rubricflow.tasks.grading.judge.protocol import Question

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


@pytest.mark.parametrize("piece", ["the cells because", "outside them is", "concentrated"])
def test_a_few_words_out_of_a_copied_sentence_are_an_echo_too(piece):
    response = f"My answer. {POINT} That is all."
    assert status_of(piece, response) == "echo"


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
