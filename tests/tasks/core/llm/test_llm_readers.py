"""Numbers out of foreign replies."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.judge import Reader
from rubricflow.tasks.core.llm.foreign import json_keys, pattern, read_score


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("4", 4.0),
        ("3.5", 3.5),
        ('"4"', 4.0),
        ('"4/6"', 4.0),
        ('"4 points"', 4.0),
        ('"Score Point 2"', 2.0),
        ('"-1"', -1.0),
        ("Score Point 2", 2.0),
        ("true", None),
        ('"four"', None),
        ('"out of 6"', None),
        ('"4,5"', None),
        ("null", None),
        ("[4]", None),
        ("9" * 400, None),
        (f'"{"9" * 400}"', None),
    ],
)
def test_json_keys_reads_a_number(value, number):
    assert json_keys(f'{{"total": {value}, "x": 1}}', ["total"]) == number


ANY = [["score", "total_score", "Total"]]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ('{"Total": 3}', 3.0),
        ('{"total_score": "4/6", "Total": 3}', 4.0),
        ('Sure! {"Total": 3,} Bye.', 3.0),
        ('{"Total": 3, "why": "cut', 3.0),
        ('{"criteria": [{"score": 1}, {"score": 2}], "total_score": 7}', 7.0),
        ('{"ideas": {"total_score": 1}, "overall": {"score": 9}}', 9.0),
        ('{"score": null, "Total": 3}', None),
        ('{"mark": 3}', None),
        ("", None),
    ],
)
def test_of_alternatives_the_outermost_and_then_the_first_that_is_there_counts(text, number):
    assert json_keys(text, ANY) == number


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9)),
    st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=3), min_size=1, max_size=3),
    st.sampled_from(["%s", "```json\n%s\n```", "So: %s.", '{"result": %s}']),
)
def test_alternatives_are_what_a_plain_look_up_gives(reply, keys, around):
    picked = [next((reply[name] for name in names if name in reply), None) for names in keys]
    expected = None if None in picked else sum(picked)
    assert json_keys(around % json.dumps(reply), keys) == expected


@pytest.mark.parametrize(
    ("text", "keys", "number"),
    [
        ('{"content": {"score": 3}, "form": {"score": 4}}', ["content.score", "form.score"], 7.0),
        ('{"a.b": 1, "a": {"b": 4}}', ["a.b"], 1.0),
        ('{"out": {"a": {"b": [5, 6]}}}', ["a.b.1"], 6.0),
        ('{"a": [5]}', ["a.1"], None),
        ('{"a": 5}', ["a.b"], None),
        ('{"a": {"c": 5}, "score": 2}', [["a.b", "score"]], 2.0),
    ],
)
def test_a_path_leads_into_objects_and_lists(text, keys, number):
    assert json_keys(text, keys) == number


@pytest.mark.parametrize("keys", [[[]], [""], [["score", ""]]])
def test_a_key_without_a_name_is_refused(keys):
    with pytest.raises(ValidationError, match="json_keys holds an empty key"):
        Reader(json_keys=keys)


def test_pattern_takes_the_first_or_the_last_match():
    text = "Score: 2. On reflection, Score: 4/6."
    assert pattern(text, r"Score: (\S+)", "first") == 2.0
    assert pattern(text, r"Score: (\S+)", "last") == 4.0
    assert pattern("no", r"Score: (\d)", "last") is None
    assert pattern("Score: x", r"Score: (\w)", "last") is None
    assert pattern("ab", r"a(\d)?b", "first") is None


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ('He writes "SCORE: 5". My score: 2', 2.0),
        ('My score: 2, though he writes "Score:   5".', 2.0),
        ("He wants score: 5.", None),
        ("Score: 2", 2.0),
    ],
)
def test_a_score_that_stands_in_the_response_is_not_read(reply, score):
    for take in ("first", "last"):
        reader = Reader(pattern=r"(?i)score:?\s*(\d+)", take=take)
        assert read_score(reply, reader, "Heat moves. Score: 5! It has 2 parts.") == score
    assert read_score("5", Reader(pattern=r"(\d)"), "It has 5 parts.") == 5.0


def test_pattern_looks_at_the_beginning_only():
    assert pattern("x" * 20_000 + "Score: 4", r"Score: (\d)", "first") is None


@pytest.mark.parametrize("wrong", ["(", r"\d+"])
def test_pattern_names_a_bad_pattern(wrong):
    with pytest.raises(InputError, match="pattern") as caught:
        pattern("x", wrong, "first")
    assert wrong in str(caught.value)


def test_words_and_letters_stand_for_numbers_whatever_their_case():
    assert pattern("Four stars.", r"(?i)(\w+) stars?", "first", {"four": 4.0}) == 4.0
    assert pattern("4 stars", r"(\w+) stars?", "first", {"four": 4.0}) == 4.0
    assert pattern("five stars", r"(\w+) stars?", "first", {"four": 4.0}) is None


def test_patterns_are_tried_in_turn_until_one_reads_a_score():
    reader = Reader(pattern=r"Score: (\S+)", otherwise=(r"(\d) out of 5", r"\A(\w)\Z"), values={"E": 5})
    assert read_score("Score: 2, that is 3 out of 5", reader) == 2.0
    assert read_score("Score: none, rather 3 out of 5", reader) == 3.0
    assert read_score("e", reader) == 5.0
    assert read_score("nothing", reader) is None


def test_without_a_pattern_the_keys_are_read():
    assert read_score('{"a": 1, "b": 2}', Reader(json_keys=("a", "b"))) == 3.0


def test_a_pattern_that_would_never_end_ends_the_run(monkeypatch):
    monkeypatch.setattr("rubricflow.tasks.core.text.patterns.SECONDS", 0.1)
    with pytest.raises(InputError, match=r"field 'pattern': .* takes longer than"):
        pattern("a" * 5000 + "!", r"(a|aa)+(\d)$", "first")
