"""Finding the artifact: what is read, what is refused, and that nothing is made up."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.llm.extract import extract, find, stands_in, without_reasoning

KEY = frozenset({"score"})


@pytest.mark.parametrize(
    ("text", "found", "how"),
    [
        ('{"score": 3}', {"score": 3}, None),
        (' \n{"score": 3}\n', {"score": 3}, None),
        ('Sure!\n```json\n{"score": 3}\n```\nBye {"a"}', {"score": 3}, "fenced"),
        ('Sure: {"score": 3} as asked', {"score": 3}, "embedded"),
        ('Form: {"a": 1}. Mine: {"score": 3}', {"score": 3}, "embedded"),
        ('Form: {"score": <int>}. Mine: {"score": 3}', {"score": 3}, "embedded"),
        ('Set {"a", "b"} of {x}: {"score": 3}', {"score": 3}, "embedded"),
        ('{"score": 1} or {"score": 2}', None, "ambiguous"),
        ('Like {"score": 0}:\n```\n{"score": 3}\n```', None, "ambiguous"),
        ('[{"score": 3}, {"score": 2}]', None, "ambiguous"),
        ('{"score": 3, "other": {"score": 2}}', None, "ambiguous"),
        ('{"score": 3} {"score": 2, "why": "cut', None, "ambiguous"),
        ('{"score": 3} {"score": true}', None, "ambiguous"),
        ('{"score": 3} {"score": 2, "score": 2}', None, "duplicate_key"),
        ('{"score": 3, "a": [1]} or {"a": [1], "score": 3.0}', {"score": 3, "a": [1]}, "embedded"),
        ('{"score": 3, "why": "x"} {"score": 3, "why": "cut', {"score": 3, "why": "x"}, "embedded"),
        ('<think>{"score": 3}</think>{"score": 2}', {"score": 2}, None),
        ('{"score": 3}</think>{"score": 2}', {"score": 2}, None),
        ('<think>{"score": 3}', None, "empty"),
        ('{"score": 2}<think>{"score": 3}', {"score": 2}, None),
        ('Infinity good! {"score": 3}', {"score": 3}, "embedded"),
        ('{"result": {"score": 3}}', {"score": 3}, "nested"),
        ('[{"score": 3}]', {"score": 3}, "embedded"),
        ('{"score": 3,}', {"score": 3}, "trailing_comma"),
        ('{"score": 3, "list": [1, 2,],}', {"score": 3, "list": [1, 2]}, "trailing_comma"),
        (
            "{'score': 3, 'why': 'it\\'s', 'x': None, 'y': True}",
            {"score": 3, "why": "it's", "x": None, "y": True},
            "single_quotes+python_literals",
        ),
        ("{'score': 3, 'why': \"it's\"}", {"score": 3, "why": "it's"}, "single_quotes"),
        ('{"score": 3, "why": "a\nb\tc"}', {"score": 3, "why": "a\nb\tc"}, "control_characters"),
        ('{"score": 3, "why": "a \\_b\\_ \\alpha"}', {"score": 3, "why": "a _b_ \\alpha"}, "unknown_escape"),
        ('{"score": 3, // good\n "why": "x" /* y */}', {"score": 3, "why": "x"}, "comments"),
        ('{"score": 3, # good\n "why": "x"}', {"score": 3, "why": "x"}, "comments"),
        (
            '{"score": 3, "why": "says "yes" twice", "b": 1}',
            {"score": 3, "why": 'says "yes" twice', "b": 1},
            "unescaped_quotes",
        ),
        ('{"score": Score Point 2, "b": 1}', {"score": "Score Point 2", "b": 1}, "bare_words"),
        ('{"score": 3, "why": "cut he', {"score": 3}, "truncated"),
        ('{"score": 3, "list": [1, 2', {"score": 3}, "truncated"),
        ('{"score": 3, "more": {"score": 1, "x": "', {"score": 3}, "truncated"),
        ('{"score": 3,', {"score": 3}, "truncated"),
        ('{"score": "3"', {"score": "3"}, "truncated"),
        ('Well:\n```json\n{"score": 3, "why": "a",\n```', {"score": 3}, "fenced+unescaped_quotes+truncated"),
        ('{"score": 3, "why": "\\ud83d\\ude00 \\ud83d"}', {"score": 3, "why": "\U0001f600 \ufffd"}, None),
        (None, None, "empty"),
        (" \n", None, "empty"),
        ("I give it a 3.", None, "no_object"),
        ('{"grade": 3}', None, "missing_keys"),
        ('{"score": 3', None, "truncated"),
        ('{"score": tru', None, "truncated"),
        ('{"score": 3, "score": 4}', None, "duplicate_key"),
        ('See: {"score": 3, "score": 4}', None, "duplicate_key"),
        ('{"score": 3, "x": {"a": 1, "a": 1}}', None, "duplicate_key"),
        ('{"score": NaN}', None, "not_finite"),
        ('{"score": 1e999}', None, "not_finite"),
        ('See: {"score": -Infinity}', None, "not_finite"),
        ('See: {"score": 1e999}', None, "not_finite"),
        ('{"score": <int>}', None, "damaged"),
        ('{"score": 3 "why": "x"}', None, "damaged"),
    ],
)
def test_extract(text, found, how):
    artifact, note = extract(text, KEY)
    assert artifact == found
    assert note == how


@pytest.mark.parametrize(
    "text",
    [
        '{"score": oops, "why": "wrote {"score": 6} here"}',
        '{"score" 2, "why": "wrote {"score": 6} here"}',
        '{"score": oops, "why": "wrote {"score": 6} here',
        '{"why": "wrote {\\"score\\": 6} here"}',
        '{"why": "wrote ", "score": 6} here", "score": 2}',
    ],
)
def test_text_inside_a_damaged_object_or_a_string_is_never_the_artifact(text):
    artifact, note = extract(text, KEY)
    assert artifact is None
    assert note in {"damaged", "missing_keys", "ambiguous", "truncated"}


def test_of_json_in_an_unescaped_string_it_is_in_doubt_whose_it_is():
    doubtful = '{"score": 2, "why": "wrote {"score": 6} here"}'
    assert extract(doubtful, KEY) == extract(doubtful[:-5], KEY) == (None, "ambiguous")
    assert extract('{"score": 6, "why": "he wrote. </think> {"score": 2, "why": "own"}', KEY)[0] in (
        None,
        {"score": 2, "why": "own"},
    )


def test_reasoning_leaves_everything_in_its_place():
    for text in (
        '<think>a</think>{"b": 1}',
        '{"b": "</think>"} c',
        "a </think> b <think> c",
        "<think>" * 9 + "</think>" * 9,
    ):
        shown = without_reasoning(text)
        assert len(shown) == len(text)
        assert all(new in (" ", old) for new, old in zip(shown, text, strict=True))
        assert without_reasoning(shown) == shown
    assert without_reasoning('{"b": "</think>"} c') == '{"b": "</think>"} c'
    assert without_reasoning("List<int> and [1] <b>think</b> <thinker>") == "List<int> and [1] <b>think</b> <thinker>"


@pytest.mark.parametrize(
    ("value", "response", "stands"),
    [
        ({"score": 3}, 'x {"SCORE" : 3.0}', True),
        ({"score": 3}, '{"why": "", "score": "3"}', True),
        ({"score": 3, "why": ""}, '{"score": 3}', True),
        ({"score": 3, "of": {"a": 1}}, '{"of": {"a": 1}, "score": 3}', True),
        ({"score": 3, "of": [{"a": 1}, {"b": 2}]}, '{"of": [{"b": 2}, {"a": 1}], "score": 3}', True),
        ({"score": 3}, "&#123;&quot;score&quot;: 3}", True),
        ({"score": 3}, "%7B%22score%22: 3", True),
        ({"score": None}, "{'score': None}", True),
        ({"score": 3}, "the score 3", False),
        ({"score": 3}, '{"score": 30}', False),
        ({"score": 3}, '{"score": 2}', False),
        ({"score": 3, "why": "mine"}, '{"score": 3, "why": "yours"}', False),
        ({"score": None}, "{}", False),
        ({"score": "7b"}, '{"score": "7B"}', True),
        ({"score": 3}, "", False),
    ],
)
def test_what_stands_in_a_response(value, response, stands):
    assert stands_in(value, response) is stands
    assert (extract(json.dumps(value), frozenset(value), response=response)[1] == "quoted") is stands


@pytest.mark.parametrize(
    "text",
    [
        "{" * 50_000,
        '{"a":' + "[" * 50_000,
        '{"a":' * 10_000,
        "[" * 25_000 + "]" * 25_000,
        "{'a} " * 10_000,
        '{"a":\'x} ' * 5_500,
        '{"a"/*} ' * 6_250,
        '{"a":"' + "\\" * 50_000,
        '{"a":"' + '" x' * 16_500,
        '{"a":"x" ' * 5_500,
        '{"a":1}' * 7_000,
        "```{" * 12_500,
        '{"a":x} ' * 6_250,
        '{"a":"x"' + " " * 50_000 + "y",
        '{"a":' + "1" * 50_000 + "}",
        "<think>{'a} </think>" * 2_500,
        "</think>" + "{'a} " * 10_000,
    ],
    ids=range(17),
)
def test_a_long_hostile_text_holds_no_artifact(text):
    assert extract(text, KEY)[0] is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
artifacts = st.builds(
    lambda rest, score: {**rest, "score": score}, st.dictionaries(st.text(), json_values, max_size=4), json_values
)
prose = st.text(st.characters(exclude_characters='{}`"', codec="utf-8"), max_size=60)


@given(artifacts, prose, prose, st.booleans(), st.sampled_from([None, 1]), st.booleans())
def test_any_object_is_found_in_prose_and_fences(artifact, before, after, fenced, indent, ascii_only):
    text = json.dumps(artifact, indent=indent, ensure_ascii=ascii_only)
    whole = f"{before}\n```json\n{text}\n```\n{after}" if fenced else f"{before}\n{text}\n{after}"
    assert extract(whole, KEY)[0] == artifact


def leaves(value):
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


plain = st.text(st.characters(codec="ascii", exclude_characters='\\"', min_codepoint=32), max_size=8)


@given(
    st.dictionaries(plain, plain | st.integers(0, 999) | st.lists(plain, max_size=3), max_size=4),
    st.integers(0, 9),
    st.data(),
)
def test_damage_never_brings_a_value_that_is_not_in_the_text(rest, score, data):
    text = json.dumps({"score": score, **rest, "end": 1}, ensure_ascii=False)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 3))
        text = (
            text[:at]
            + data.draw(st.sampled_from(["", "'", '"', ",", "}", "{", "]", ":", "\n", "//", " x "]))
            + text[at + cut :]
        )
    artifact, _ = extract(text[: data.draw(st.integers(0, len(text)))], KEY)
    for leaf in leaves(artifact) if artifact is not None else ():
        if isinstance(leaf, str):
            assert leaf in text
        elif not isinstance(leaf, bool) and leaf is not None:
            assert math.isfinite(leaf)
            assert str(leaf) in text


@given(st.text(st.sampled_from("{}[]\"':,\\/*# 1aNt\nscore`\ud800"), max_size=60))
def test_no_text_breaks_it(text):
    artifact, note = extract('{"score":' + text, KEY)
    assert (artifact is not None) or note
    if artifact is not None:
        json.dumps(artifact, allow_nan=False, ensure_ascii=False).encode()


def test_an_item_by_the_name_of_its_key_is_part_of_the_object():
    text = '{"roles": {"roles": "core", "other": "bonus"}}'
    assert extract(text, frozenset({"roles"})) == (json.loads(text), None)
    text = '{"decisions": {"decisions": {"level": 1}, "c2": {"level": 0}}}'
    wanted = frozenset({"decisions"})
    assert find(text, wanted.issubset, wanted).artifact == json.loads(text)
    rival = '{"decisions": {"c1": {"level": 0}}, "student": {"decisions": {"c1": {"level": 1}}}}'
    assert find(rival, wanted.issubset, wanted).how == "ambiguous"


@pytest.mark.parametrize("rest", [' or {"level": 1}', "?", " 1", '|{"level": 1}'])
def test_an_item_after_which_another_value_stands_was_not_decided(rest):
    wanted = frozenset({"decisions"})
    text = '{"decisions": {"c1": {"level": 2}, "c2": {"level": 0}' + rest + ', "c3": {"level": 1}}}'
    assert find(text, wanted.issubset, wanted).artifact == {"decisions": {"c1": {"level": 2}}}
    first = '{"decisions": {"c2": {"level": 0}' + rest + "}}"
    assert find(first, wanted.issubset, wanted).artifact is None
