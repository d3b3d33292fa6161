"""Damage is what it says, the same at every run, and never read as something that was not said."""

import json
import random

import pytest
from builders.damaging import Damaging
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.request import Message, Reply, Request
from rubricflow.tasks.grading.judge.simulated import WAYS, damaged

ARTIFACT = {
    "decisions": {
        "P1": {"evidence": [{"unit": "s1", "quote": 'he said "no, never" and left, twice'}], "level": 2},
        "P2": {"evidence": [], "level": 0},
    }
}
TEXT = json.dumps(ARTIFACT)
KEYS = frozenset({"decisions"})
READ = ("in_prose", "followed", "fenced", "fenced_in_prose", "trailing_comma", "single_quotes")
LOST = ("cut", "second_object", "other_keys", "prose", "empty", "fraction")


def request(subject="r1"):
    return Request(messages=(Message("user", f"grade {subject}"),), role="grade", subject=subject)


def answers(backend, count=40):
    return dict(backend.answer([request(f"r{n}") for n in range(count)]))


@pytest.mark.parametrize("way", READ)
def test_reading_alone_undoes_what_leaves_the_object_whole(way):
    for seed in range(20):
        assert extract(damaged(TEXT, way, random.Random(seed)), KEYS)[0] == ARTIFACT


@pytest.mark.parametrize("way", LOST)
def test_what_lost_the_object_is_not_made_up(way):
    for seed in range(20):
        artifact, why = extract(damaged(TEXT, way, random.Random(seed)), KEYS)
        assert artifact is None
        assert why


@st.composite
def artifacts(draw):
    quote = st.text('ab "\\\n,:{}[]é', max_size=20)
    entry = st.fixed_dictionaries({"unit": st.sampled_from(["s1", "p2"]), "quote": quote})
    decision = st.fixed_dictionaries({"evidence": st.lists(entry, max_size=2), "level": st.integers(0, 2)})
    return {"decisions": draw(st.dictionaries(st.sampled_from(["P1", "P2", "M1"]), decision, min_size=1))}


@settings(max_examples=40)
@given(
    artifacts(),
    st.sampled_from(sorted(set(WAYS) - {"raw_line_breaks", "bare_words", "unescaped_quotes"})),
    st.randoms(),
)
def test_a_damaged_artifact_is_read_as_it_was_or_not_at_all(artifact, way, luck):
    found, _ = extract(damaged(json.dumps(artifact), way, luck), KEYS)
    assert found is None or found == artifact


@given(artifacts())
def test_levels_are_never_changed_by_quotes_left_unescaped(artifact):
    found, _ = extract(damaged(json.dumps(artifact), "unescaped_quotes", random.Random(0)), KEYS)
    for name, decision in (found or {"decisions": {}})["decisions"].items():
        if isinstance(decision, dict) and "level" in decision:
            assert decision["level"] == artifact["decisions"][name]["level"]


def test_another_damage_is_another_model_and_an_error_stays_one():
    inner = Scripted(lambda _: Reply(error="timeout: nobody there"))
    one, other = Damaging(inner, ["cut"]), Damaging(inner, ["empty"])
    assert len({inner.model, one.model, other.model, Damaging(inner, ["cut"], seed=1).model}) == 4
    assert answers(one)[0].error == "timeout: nobody there"
