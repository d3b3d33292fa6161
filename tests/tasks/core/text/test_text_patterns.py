"""A study's pattern matches as `re` matches it, ends within seconds, and is named when it is wrong."""

from __future__ import annotations

import re
import warnings
from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.text import patterns
from rubricflow.tasks.core.text.patterns import begins, matches

PLAIN = ["a", "b", "(a)", "(?:ab)", "[ab]", "[^a]", r"\d", r"\s", r"\w", r"\b", ".", "^", "$", r"\Z", "(a|b)", "(?=a)"]
ODD = [
    "{",
    "}",
    "{e}",
    "{s<=1}",
    "{,}",
    "{1,2}",
    "{2}",
    "[[:alpha:]]",
    "[]a]",
    "[[a]",
    "[a||b]",
    r"\{",
    "4",
    ":",
    "é",
    "ß",
]
MORE = [r"\\boxed{(\d+)}", "(?P<n>a)", "(?<!a)", "*", "+?", "?", "++", "(?i:B)", "(?i:ß)", "ß", "İ"]
ATOMS = st.sampled_from([*PLAIN, *ODD, *MORE])
PATTERNS = st.lists(ATOMS, max_size=6).map("".join)
TEXTS = st.text(st.sampled_from("aAbB 4{}[]:,els<=1\n\\boxedéßsıİ"), max_size=20)


@given(PATTERNS, TEXTS)
def test_a_pattern_matches_as_re_matches_it(pattern: str, text: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = [(match.span(), match.groups()) for match in re.finditer(pattern, text)]
    except re.error:
        assume(False)
        return
    assert [(match.span(), match.groups()) for match in matches(pattern, text, "f")] == wanted
    assert begins(pattern, text, "f") == bool(re.match(pattern, text))


HOSTILE = [
    (r"(a|aa)+$", "a" * 20_000 + "!"),
    (r"(a|a)+b(\d)", "a" * 40),
    (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 60),
    (r"(\w+\s?)*x(\d)\Z", "word " * 4_000),
    (r"((a|aa)+)+(\d)z", "a" * 60 + "1"),
    (r"(.|\s)*?(x|\w)*?=(\d)=$", "ab \n" * 5_000),
]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 0.1)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("pattern", "text"), HOSTILE)
def test_a_pattern_that_would_never_end_does(pattern: str, text: str) -> None:
    for act in (matches, begins):
        with suppress(InputError):
            assert not act(pattern, text, "f")


@pytest.mark.usefixtures("impatient")
def test_what_takes_too_long_is_named_with_what_to_do() -> None:
    with pytest.raises(InputError, match=r"field 'f': '\(a\|aa\)\+\$' takes longer than 0.1 s .*\(leave out repeats"):
        matches(r"(a|aa)+$", "a" * 20_000 + "!", "f")


@pytest.mark.parametrize("wrong", ["(", "a**", r"\p{L}", "[b-a]", "(?R)", "(?<n>a)", r"\L<x>", "a{2,1}", "(" * 200])
def test_what_is_no_pattern_of_re_is_named(wrong: str) -> None:
    with pytest.raises(InputError, match="field 'f'") as caught:
        matches(wrong, "x", "f")
    assert wrong in str(caught.value)
