"""Prose that was cut short ends with a whole sentence and a mark."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.text.units import MARK, whole_sentences

LONG = "It names light. It says nothing of water, which the key wants. What it says of soil is wr"


@pytest.mark.parametrize(
    ("text", "longest", "kept"),
    [
        (" It names light. ", 600, "It names light."),
        (LONG, len(LONG), "It names light. It says nothing of water, which the key wants. […]"),
        (LONG, 40, "It names light. […]"),
        ("It names light.", 15, "It names light."),
        ("It names light", 14, "It names […]"),
        ("Das ist alles. Mehr steht da nicht, denn", 40, "Das ist alles. […]"),
        ("x" * 50, 20, "x" * 15 + " […]"),
    ],
)
def test_what_was_cut_ends_with_a_whole_sentence(text, longest, kept):
    assert whole_sentences(text, longest) == kept


@given(st.text(st.sampled_from('ab .!?\n…。"”)é')), st.integers(12, 60))
def test_nothing_is_added_but_the_mark_and_twice_is_once(text, longest):
    made = whole_sentences(text, longest)
    assert whole_sentences(made, longest) == made
    assert len(made) <= longest
    assert text.strip().startswith(made.removesuffix(MARK).rstrip())
    assert made.endswith(MARK) or made == text.strip()
