"""Where keys came first and what was said twice, held against a dictionary and a set."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.grading.ingest.oddities import FirstOccurrences, Repeats, digests

KEYS = st.integers(0, 12) | st.integers(2**63, 2**64 - 1)
WORDS = st.sampled_from(["anna", "ben", ("anna", "P1"), ("anna", "P2")])


@given(st.lists(st.lists(KEYS, max_size=9), max_size=12))
def test_each_key_has_the_number_under_which_it_came_first(chunks: list[list[int]]) -> None:
    firsts, known, count = FirstOccurrences(), dict[int, int](), 0
    for chunk in chunks:
        expected = [known.setdefault(key, count + place) for place, key in enumerate(chunk)]
        assert firsts.add(np.array(chunk, np.uint64)).tolist() == expected
        count += len(chunk)


@given(st.lists(st.lists(st.tuples(st.none() | st.integers(0, 5), WORDS), max_size=6), max_size=6))
def test_what_is_said_twice_of_a_response(chunks: list[list[tuple[int | None, Hashable]]]) -> None:
    repeats, known = Repeats(), set[tuple[int, Hashable]]()
    for chunk in chunks:
        expected = []
        for place, word in chunk:
            expected.append(place is not None and (place, word) in known)
            if place is not None:
                known.add((place, word))
        assert repeats.add([place for place, _ in chunk], [word for _, word in chunk]) == expected


@given(st.lists(st.text()))
def test_equal_texts_alone_have_equal_digests(texts: list[str]) -> None:
    keys = digests(texts).tolist()
    assert len(set(keys)) == len(set(texts))
    assert keys == [digests([text])[0] for text in texts]
