"""The embedded rater: contract-valid replies whose quotes verify, whatever the response."""

from __future__ import annotations

import json
import zlib

import jsonschema
import numpy as np
import pytest
from builders.bundles import bundle, trait
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Criterion, Protocol
from rubricflow.tasks.core.llm.encoder import Tokens, minilm
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.embedded import (
    CENTRE,
    PENALTY_CENTRE,
    POSED,
    answer,
    level_probabilities,
    reader,
    similarity,
)
from rubricflow.tasks.grading.judge.evidence import subject_of
from rubricflow.tasks.grading.judge.protocol import Question
from rubricflow.tasks.grading.judge.schema import checklist, stated
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


@settings(max_examples=8)
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


@settings(max_examples=20)
@given(with_words)
def test_a_holistic_reply_keeps_the_contract(text):
    jsonschema.validate(artifact(text, ()), stated(BUNDLE.scale))


@pytest.mark.parametrize("centre", [CENTRE, PENALTY_CENTRE])
@pytest.mark.parametrize("top", [1, 2, 4])
def test_the_expected_level_rises_with_the_similarity(top, centre):
    similar = [level_probabilities(s, top, centre) for s in np.linspace(-1, 1, 101)]
    expected = np.array(similar) @ np.arange(top + 1)
    assert (np.diff(expected) > 0).all()
    assert np.allclose(np.sum(similar, axis=1), 1)
    assert np.min(similar) >= 0
    assert (similar[0].argmax(), similar[-1].argmax()) == (0, top)


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


REAL = (
    Criterion(id="leaves", trait="t", text="mRNA leaves the nucleus through a nuclear pore.", levels=LEVELS),
    Criterion(id="codons", trait="t", text="The ribosome reads the bases in groups of three.", levels=LEVELS),
)


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


# Misspelled words are read as words of the question or rubric, and nothing else is touched.


SOURCES = ("Osmosis moves water through a membrane.", "What happens to the cell?")
ENGLISH = {"watery", "embrace", "happy", "called"}
read = reader(SOURCES, ENGLISH.__contains__)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("Osmoesis mooves wather", "osmosis moves water"),  # an unknown word is the closest one of the sources
        ("watery embrace", "watery embrace"),  # the encoder knows these
        ("Photosinthesis", "Photosinthesis"),  # close to nothing
        ("teh cel 12345 mem2brane", "teh cel 12345 mem2brane"),  # short, or with digits
    ],
)
def test_a_misspelled_word_is_read_as_one_of_the_sources(written: str, told: str) -> None:
    assert read(written) == told


@given(st.text())
def test_reading_twice_is_reading_once(text: str) -> None:
    assert read(read(text)) == read(text)
