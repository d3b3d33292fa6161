"""Requests, their digests, and replies."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.llm.request import Message, Reply, Request, Sampling, Token, cached_by_identity, digest

BASE = Request(
    messages=(Message("system", "rules"), Message("user", "text")),
    role="grade",
    subject="r1",
    schema={"type": "object"},
    data_digest="d",
)


@pytest.mark.parametrize(
    "change",
    [
        {"messages": (Message("system", "rules"), Message("user", "text!"))},
        {"messages": (Message("user", "rules"), Message("user", "text"))},
        {"messages": (Message("system", "rulestext"),)},
        {"schema": None},
        {"schema": {"type": "array"}},
        {"sampling": Sampling(seed=43)},
        {"sampling": Sampling(temperature=0.1)},
        {"sampling": Sampling(top_k=1)},
        {"data_digest": "e"},
        {"want_logprobs": True},
    ],
)
def test_whatever_can_change_the_reply_changes_the_digest(change):
    assert digest(dataclasses.replace(BASE, **change), "m") != digest(BASE, "m")


@pytest.mark.parametrize(
    "change",
    [{"role": "other"}, {"subject": "r2"}, {"keys": frozenset({"a"})}, {"data": [1]}, {"schema": {"type": "object"}}],
)
def test_what_cannot_change_the_reply_leaves_the_digest(change):
    assert digest(dataclasses.replace(BASE, **change), "m") == digest(BASE, "m")


def test_digest_covers_the_model_and_where_asked_the_subject():
    other = dataclasses.replace(BASE, subject="r2")
    assert digest(BASE, "m") != digest(BASE, "n")
    assert digest(BASE, "m", by_subject=True) != digest(other, "m", by_subject=True)
    assert len(digest(BASE, "m")) == 64


def test_digest_is_the_same_in_every_process_and_version():
    assert digest(BASE, "m") == "646e671ba1f1bb12cfa92de03798f1d93a985b85c543516db001925cff7dfa1a"


def test_digest_takes_half_a_surrogate_pair():
    assert digest(dataclasses.replace(BASE, messages=(Message("user", "\ud800"),)), "m")


def test_reply_has_a_text_or_an_error():
    for both in ({}, {"text": "a", "error": "b"}):
        with pytest.raises(ValueError, match="either a text or an error"):
            Reply(**both)
    assert Reply(text="").text == ""


@given(
    text=st.text(st.characters(exclude_categories=[])),
    tokens=st.none() | st.integers(0),
    logprobs=st.none()
    | st.lists(
        st.builds(
            Token, st.text(), st.floats(max_value=0), st.lists(st.tuples(st.text(), st.floats(max_value=0))).map(tuple)
        )
    ),
    levels=st.none() | st.dictionaries(st.text(), st.lists(st.floats(0, 1))),
)
def test_reply_survives_json(text, tokens, logprobs, levels):
    reply = Reply(text=text, completion_tokens=tokens, token_logprobs=logprobs, level_probabilities=levels)
    line = reply.to_json()
    line.encode()
    assert Reply.from_json(line) == reply
    assert "\n" not in line


def test_results_are_kept_by_identity_so_many_and_by_position():
    made = []

    def of(items, word):
        made.append(word)
        return [*items, word]

    cached, (first, equal) = cached_by_identity(of, most=2), ([1], [1])
    assert cached(first, "a") is cached(first, "a")
    assert cached(equal, "a") is not cached(first, "a")
    assert made == ["a", "a"]
    cached(first, "b")
    cached(first, "c")
    assert cached(first, "a") == [1, "a"]
    assert made == ["a", "a", "b", "c", "a"]
    with pytest.raises(TypeError, match="position"):
        cached(first, word="a")
