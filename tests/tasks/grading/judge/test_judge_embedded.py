"""The embedded rater: contract-valid replies whose quotes verify, whatever the response."""

import json
import zlib
from dataclasses import replace

import jsonschema
import numpy as np
import pytest
from builders.bundles import bundle, trait
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Criterion, Protocol
from rubricflow.tasks.core.llm.encoder import Tokens, minilm
from rubricflow.tasks.core.text.fold import folded
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.embedded import (
    CENTRE,
    PENALTY_CENTRE,
    POSED,
    answer,
    compete,
    level_probabilities,
    similarity,
)
from rubricflow.tasks.grading.judge.evidence import Subject, proves, subject_of
from rubricflow.tasks.grading.judge.protocol import Question
from rubricflow.tasks.grading.judge.schema import MAX_QUOTE, checklist, stated
from rubricflow.tasks.grading.judge.verify import verify

LEVELS = ("absent", "in part", "present")
CRITERIA = (
    Criterion(id="P", trait="t", text="plants need light", levels=LEVELS),
    Criterion(id="S", trait="t", text="water helps them", levels=LEVELS, evidence="span_level"),
    Criterion(id="G", trait="t", text="calm tone", evidence="global_diagnostic"),
    Criterion(id="N", trait="t", text="complete", evidence="none"),
    Criterion(id="M", trait="t", text="plants need dark", kind="misconception", weight=-1),
)


BUNDLE = bundle(*CRITERIA, ends=(1, 5, 0.5), traits=(trait("t", 0, 5),), failed_quote="count")


class Keen:
    """An encoder to which every word is nearly the same thing, in a fixed order of nearness. It knows every word, so
    that nothing is read differently from how it is written."""

    def knows(self, word):
        return True

    def ids(self, text):
        return frozenset(zlib.crc32(word.encode("utf-8", "replace")) for word in text.split())

    def tokens(self, texts):
        return [self._read(text.split()) for text in texts]

    def _read(self, words):
        ids = np.array([zlib.crc32(word.encode("utf-8", "replace")) for word in words], int)
        vectors = np.array([np.random.default_rng(seed).normal(size=16) for seed in ids]).reshape(-1, 16) * 0.2
        vectors[:, 0] += 1.0
        return Tokens(ids, np.ones(len(ids)), vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


HOLISTIC = BUNDLE.model_copy(update={"protocol": Protocol(name="dhs", final_score="judged", signals=("score",))})


def question(text, criteria=CRITERIA):
    bundle = BUNDLE.model_copy(update={"criteria": criteria}) if criteria else HOLISTIC
    return Question(bundle, criteria, text, tuple(units(text)), "i", "What is asked?", None)


def artifact(text, criteria=CRITERIA, encoder=None):
    return json.loads(answer([question(text, criteria)], encoder or Keen())[0].text)


def replied(text):
    """The reply's text and probabilities by the fake encoder."""
    reply = answer([question(text)], Keen())[0]
    return json.loads(reply.text), reply.level_probabilities


awkward = st.lists(
    st.tuples(
        st.sampled_from(
            ["light", "Water", "plants need", "cafe\u0301", "İ", "no.", "5", "“quoted”", "...", "x" * 450, "растёт"]
        ),
        st.sampled_from([" ", ". ", "\n", "\n\n", "\u00a0", "! ", "  "]),
    ),
    min_size=1,
    max_size=30,
).map(lambda pieces: "".join(word + gap for word, gap in pieces))
with_words = st.one_of(awkward, st.text(min_size=1, max_size=80)).filter(lambda text: bool(units(text)))


@settings(max_examples=20)
@given(with_words)
@example("word")
@example("one " * 1_000)
@example("x" * 5_000)
@example("\x1f\u200b5")
def test_every_reply_keeps_the_contract(text):
    given_artifact, probabilities = replied(text)
    jsonschema.validate(given_artifact, checklist(CRITERIA))
    assert list(probabilities) == [c.id for c in CRITERIA]
    for criterion in CRITERIA:
        likely = probabilities[criterion.id]
        assert len(likely) == len(criterion.levels)
        assert min(likely) >= 0
        assert sum(likely) == pytest.approx(1)
        assert given_artifact["decisions"][criterion.id]["level"] == int(np.argmax(likely))


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_response_without_units_is_answered_without_a_quote(text):
    given_artifact, _ = replied(text)
    jsonschema.validate(given_artifact, checklist(CRITERIA))
    assert not any(decision.get("evidence") for decision in given_artifact["decisions"].values())


@settings(max_examples=20)
@given(with_words)
def test_a_holistic_reply_keeps_the_contract(text):
    jsonschema.validate(artifact(text, ()), stated(BUNDLE.scale))


@settings(max_examples=20)
@given(with_words)
def test_quotes_that_count_verify(text):
    assume(max(map(len, text.split()), default=0) <= MAX_QUOTE)
    subject = Subject(text, units(text))
    verdict = verify(artifact(text), BUNDLE, CRITERIA, subject)
    quotes = [row for d in verdict.decisions for row in d.evidence]
    for row in quotes:
        # A sentence too short to count cannot be a quote; the rater may still find it the most similar one.
        proven = proves(folded(row["quote"]), subject)
        assert row["status"] == ("verified" if proven else "too_short")


@pytest.mark.parametrize("centre", [CENTRE, PENALTY_CENTRE])
@pytest.mark.parametrize("top", [1, 2, 4])
def test_the_expected_level_rises_with_the_similarity(top, centre):
    similar = [level_probabilities(s, top, centre) for s in np.linspace(-1, 1, 101)]
    expected = np.array(similar) @ np.arange(top + 1)
    assert (np.diff(expected) > 0).all()
    assert np.allclose(np.sum(similar, axis=1), 1)
    assert np.min(similar) >= 0
    assert (similar[0].argmax(), similar[-1].argmax()) == (0, top)


def test_a_piece_counts_for_one_kind_as_it_is_closer_to_the_other():
    lowered = compete(np.array([[0.8, 0.3], [0.6, 0.5]]), np.array([True, False]))
    assert lowered == pytest.approx(np.array([[0.8, 0.1], [0.4, 0.5]]))


def test_criteria_of_one_kind_do_not_compete():
    cosine = np.array([[0.8, 0.3], [0.6, 0.5]])
    assert (compete(cosine, np.array([True, True])) == cosine).all()


def test_the_batch_does_not_change_a_reply_of_a_rater_whose_encoder_does_not():
    texts = ["Plants need light.", "Water helps them. Light too.", "word"]
    together = answer([question(text) for text in texts], Keen())
    assert together == [answer([question(text)], Keen())[0] for text in texts]


def tokens(*words, weight=1.0):
    """Words as tokens: alike only to themselves, each of the same weight."""
    ids = np.array([ord(word) for word in words], int)
    return Tokens(ids, np.full(len(ids), weight), np.eye(128)[ids])


def test_a_criterion_is_said_as_far_as_its_words_are_wherever_they_stand():
    similar, alone = similarity(tokens(*"abcd"), [tokens(*"ab"), tokens(*"bcx"), tokens()])
    assert similar == pytest.approx(3 / 4)
    assert alone == pytest.approx([2 / 4, 2 / 4, 0])


def test_what_the_question_has_counts_for_less():
    similar, _ = similarity(tokens(*"ab"), [tokens("a")], posed={ord("a")})
    assert similar == pytest.approx(POSED / (POSED + 1))


@pytest.mark.parametrize(
    ("criterion", "pieces"),
    [(tokens(), [tokens("a")]), (tokens("a"), []), (tokens("a"), [tokens()]), (tokens("a", weight=0), [tokens("a")])],
)
def test_nothing_is_said_without_words_that_say_something(criterion, pieces):
    similar, alone = similarity(criterion, pieces)
    assert similar == 0
    assert alone.tolist() == [0] * len(pieces)


word_lists = st.lists(st.sampled_from("abcdef"), max_size=6)


@given(word_lists, st.lists(word_lists, max_size=4), word_lists)
def test_saying_more_never_says_less(criterion, pieces, more):
    similar, alone = similarity(tokens(*criterion), [tokens(*piece) for piece in pieces])
    assert similar <= similarity(tokens(*criterion), [tokens(*piece) for piece in [*pieces, more]])[0]
    assert max(alone, default=0) <= similar <= 1


def test_answers_keep_the_order_of_the_questions_over_several_packs():
    texts = [f"word{n % 90} light. And {n}." for n in range(150)]
    together = answer([question(text) for text in texts], Keen())
    assert together == [answer([question(text)], Keen())[0] for text in texts]


REAL = (
    Criterion(id="leaves", trait="t", text="mRNA leaves the nucleus through a nuclear pore.", levels=LEVELS),
    Criterion(id="codons", trait="t", text="The ribosome reads the bases in groups of three.", levels=LEVELS),
)


def test_what_is_said_in_several_sentences_is_seen_and_the_sentence_that_says_most_is_quoted():
    text = "First the mRNA goes out of the nuclus. It uses a nuclear pore for that. Cells are small."
    (reply,) = answer([question(text, REAL)], minilm())
    decisions = json.loads(reply.text)["decisions"]
    assert decisions["leaves"]["level"] == 2
    assert decisions["codons"]["level"] == 0
    assert decisions["leaves"]["evidence"][0]["quote"] in text.split(" Cells")[0]


def test_a_word_of_the_question_earns_little():
    asked = "How does mRNA leave the nucleus through a nuclear pore?"
    bare, posed = (
        answer([replace(question("The nucleus has a nuclear pore.", REAL[:1]), question=text)], minilm())[0]
        for text in ("What happens?", asked)
    )
    assert posed.level_probabilities["leaves"][2] < bare.level_probabilities["leaves"][2]


STRICT = bundle(*REAL, ends=(0, 2), traits=(trait("t", 0, 2),), failed_quote="demote")


@pytest.mark.parametrize(
    "text",
    [
        REAL[0].text,
        f"I know this. {REAL[0].text} It is easy.",
        f"{REAL[0].text} {REAL[1].text}",
        f"Cells are small. {REAL[0].text.upper()}",
        "Name and describe in your own words how a protein is made in the cell.",
        "",
    ],
)
def test_what_repeats_the_rubric_or_the_question_earns_nothing(text):
    asked = "Name and describe in your own words how a protein is made in the cell."
    posed = Question(STRICT, REAL, text, tuple(units(text)), "i", asked, None)
    (reply,) = answer([posed], minilm())
    verdict = verify(json.loads(reply.text), STRICT, REAL, subject_of(posed))
    assert [decision.level for decision in verdict.decisions] == [0, 0]


def test_minilm_is_near_in_meaning():
    read = minilm()(["Plants need light to grow.", "Stocks fell on Monday.", "Light makes plants grow."])
    assert (read.dtype, read.shape) == (np.float32, (3, 384))
    assert np.allclose(np.linalg.norm(read, axis=1), 1, atol=1e-5)
    assert read[2] @ read[0] > 0.7 > 0.3 > read[2] @ read[1]
    assert minilm()([]).shape == (0, 384)


def test_minilm_reads_tokens_by_what_they_are_and_what_they_mean():
    read = minilm().tokens(["Light is a wave.", "The bag is light.", "", "!!!"])
    first, second, empty, marks = read
    assert first.vectors.shape == (5, 768)
    assert np.allclose(np.linalg.norm(first.vectors, axis=1), 1, atol=1e-5)
    assert first.ids[0] == second.ids[3]
    assert 0.5 < first.vectors[0] @ second.vectors[3] < 0.95
    assert first.weights[0] > first.weights[1] > first.weights[-1] == 0
    assert empty.vectors.shape == (0, 768)
    assert not marks.weights.any()
    assert minilm().ids("light [SEP] wave") >= {first.ids[0], first.ids[3]}
