"""Misspelled words are read as words of the question or rubric, and nothing else is touched."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.grading.judge.embedded import reader

SOURCES = ("Osmosis moves water through a membrane.", "What happens to the cell?")
ENGLISH = {"watery", "embrace", "happy", "called"}
read = reader(SOURCES, ENGLISH.__contains__)


def test_an_unknown_word_is_read_as_the_closest_word_of_the_sources() -> None:
    assert read("Osmoesis mooves wather") == "osmosis moves water"


def test_a_word_that_the_encoder_knows_stays() -> None:
    assert read("watery embrace") == "watery embrace"


def test_a_word_that_is_close_to_nothing_stays() -> None:
    assert read("Photosinthesis") == "Photosinthesis"


def test_short_words_and_numbers_stay() -> None:
    assert read("teh cel 12345 mem2brane") == "teh cel 12345 mem2brane"


@given(st.text())
def test_reading_twice_is_reading_once(text: str) -> None:
    assert read(read(text)) == read(text)


@given(st.lists(st.sampled_from(" ".join(SOURCES).split())))
def test_words_of_the_sources_are_never_changed(words: list[str]) -> None:
    assert read(" ".join(words)) == " ".join(words)
