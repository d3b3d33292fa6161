"""Probabilities of values from token log-probabilities, against an oracle that knows the whole distribution."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.llm.choices import aligned, distribution, level_probabilities, offsets
from rubricflow.tasks.core.llm.request import Reply, Token


def token(text, *top, p=1.0):
    """A token drawn with probability p; `top`: (text, probability)."""
    return Token(text, math.log(p), tuple((other, math.log(q)) for other, q in top))


def chances(*tokens, at, values=("0", "1", "2")):
    text = "".join(one.token for one in tokens)
    return distribution(text, aligned(text, tokens), at, values)


# --- worked examples


def test_what_the_text_drew_counts_even_where_it_is_not_among_the_likeliest():
    found = chances(token("{"), token("0", ("1", 0.5), ("2", 0.3), p=0.1), at=1)
    assert found == pytest.approx([1 / 9, 5 / 9, 3 / 9])


def test_alternatives_may_bring_more_than_the_value():
    found = chances(token("1", ("1", 0.4), ("2}", 0.3), ("2,", 0.1), ("10", 0.1), ("1.5", 0.1), p=0.4), at=0)
    assert found == pytest.approx([0, 0.5, 0.5])


def test_a_token_may_begin_before_the_value():
    found = chances(token('"a":1', ('"a":1', 0.5), ('"a":0', 0.25), ('"b":2', 0.25), p=0.5), token("}"), at=4)
    assert found == pytest.approx([1 / 3, 2 / 3, 0])


def test_an_alternative_of_an_earlier_token_may_reach_into_the_value():
    # ':' then '1' was drawn, where ':2' could have been: 0.5 · 0.8 against 0.5
    found = chances(token(":", (":", 0.5), (":2", 0.5), p=0.5), token("1", ("1", 0.8), ("0", 0.2), p=0.8), at=1)
    assert found == pytest.approx([0.1, 0.4, 0.5])


def test_strings_are_spelled_with_their_quotes():
    values = ('"no"', '"yes"')
    spelled = (token(":"), token('"', p=1.0), token("yes", ("yes", 0.7), ("no", 0.3), p=0.7), token('"'))
    assert chances(*spelled, at=1, values=values) == pytest.approx([0.3, 0.7])
    together = (token(':"', (':"', 1.0)), token('yes"', ('yes"', 0.6), ('no"', 0.4), p=0.6))
    assert chances(*together, at=1, values=values) == pytest.approx([0.4, 0.6])


def test_digits_multiply_where_the_reply_went_that_way():
    tenths = tuple(str(i) for i in range(11))
    first = token("1", ("1", 0.5), ("7", 0.5), p=0.5)
    ended = chances(first, token("}", ("}", 0.8), ("0", 0.2), p=0.8), at=0, values=tenths)
    assert ended == pytest.approx([0, 0.4, 0, 0, 0, 0, 0, 0.5, 0, 0, 0.1])
    ten = chances(first, token("0", ("}", 0.8), ("0", 0.2), p=0.2), token("}"), at=0, values=tenths)
    assert ten == pytest.approx(ended)


def test_a_beginning_that_only_one_value_has_is_that_value():
    found = chances(token("true", ("true", 0.5), ("fal", 0.5), p=0.5), at=0, values=("false", "true"))
    assert found == pytest.approx([0.5, 0.5])


def test_a_beginning_that_several_have_and_the_reply_did_not_take_is_not_known():
    found = chances(token("7", ("7", 0.5), ("1", 0.5), p=0.5), token("}"), at=0, values=("1", "7", "10"))
    assert found == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "tokens", "at"),
    [
        ("1", [], 0),
        ("1", [token("2")], 0),
        ("5", [token("5")], 0),
        ("1.5", [token("1"), token(".5")], 0),
        ("12", [token("12")], 0),
    ],
    ids=["no tokens", "tokens of another text", "another value", "a fraction", "a longer number"],
)
def test_what_is_not_known_is_none(text, tokens, at):
    assert distribution(text, aligned(text, tokens), at, ("0", "1", "2")) is None


def test_a_value_of_no_probability_is_not_known():
    assert distribution("1", aligned("1", [Token("1", -math.inf, ())]), 0, ("0", "1")) is None


def test_thoughts_before_and_the_end_of_turn_after_the_text_do_not_matter():
    tokens = [token("1 or 2?"), token("</think>"), token("1", ("1", 0.9), ("2", 0.1), p=0.9), token("<|end|>")]
    assert distribution("1", aligned("1", tokens), 0, ("0", "1", "2")) == pytest.approx([0, 0.9, 0.1])


# --- against an oracle


@st.composite
def tokenised(draw):
    """A text of a value between two pieces, its values with probabilities, and one way to cut it into tokens. The
    oracle: a model that writes `before`, a value with its probability, `after`, always in the given cuts."""
    values = draw(st.lists(st.integers(0, 120).map(str), min_size=2, max_size=6, unique=True))
    weights = draw(st.lists(st.floats(0.01, 1), min_size=len(values), max_size=len(values)))
    before, after = draw(st.sampled_from(['{"a":', "é:", " "])), draw(st.sampled_from(["}", ",", '}"']))
    return values, [w / sum(weights) for w in weights], before, after, draw(st.integers(0, len(values) - 1))


def one_character_a_token(values, weights, before, after, chosen):
    """The reply of the oracle, cut into characters, with all alternatives of each place and their probabilities."""
    wholes = [before + value + after for value in values]
    drawn, tokens = wholes[chosen], []
    for i, character in enumerate(drawn):
        alive = [(w, p) for w, p in zip(wholes, weights, strict=True) if w.startswith(drawn[:i])]
        total = sum(p for _, p in alive)
        likely = {}
        for whole, p in alive:
            likely[whole[i]] = likely.get(whole[i], 0) + p / total
        tokens.append(Token(character, math.log(likely[character]), tuple((c, math.log(q)) for c, q in likely.items())))
    return drawn, tokens


@given(tokenised())
def test_the_oracle_s_distribution_comes_back_where_the_reply_went_every_way(case):
    """Only branches that the reply took are known, so values are compared that part from the drawn one there."""
    values, weights, before, _, chosen = case
    text, tokens = one_character_a_token(*case)
    found = distribution(text, aligned(text, tokens), len(before), values)
    assert sum(found) == pytest.approx(1)
    for i in range(len(values)):
        if found[i]:
            assert found[i] / found[chosen] == pytest.approx(weights[i] / weights[chosen])


@given(tokenised())
def test_values_of_one_token_come_back_whole(case):
    values, weights, before, after, chosen = case
    alternatives = tuple((value, math.log(p)) for value, p in zip(values, weights, strict=True))
    tokens = [Token(before, 0.0, ()), Token(values[chosen], math.log(weights[chosen]), alternatives)]
    ended = [*tokens, Token(after, 0.0, ((after, 0.0),))]
    text = before + values[chosen] + after
    found = distribution(text, aligned(text, ended), len(before), values)
    apart = [i for i, v in enumerate(values) if not any(o != v and o.startswith(v) for o in values)]
    for i in apart:
        assert found[i] / found[chosen] == pytest.approx(weights[i] / weights[chosen])


# --- places


def leaves(value, path=()):
    yield path, value
    for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from leaves(child, (*path, key))


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=5), TREES, max_size=4), st.sampled_from([None, 1]), st.booleans())
def test_every_value_stands_where_its_offset_says(tree, indent, ascii_only):
    text = "Here it is: " + json.dumps(tree, indent=indent, ensure_ascii=ascii_only) + " done"
    found = offsets(text, text.index("{"))
    known = [(path, value) for path, value in leaves(tree) if len(path) <= 8]
    assert set(found) == {path for path, _ in known}
    for path, value in known:
        assert json.JSONDecoder().raw_decode(text, found[path])[0] == value


@pytest.mark.parametrize("text", ["", "no object", "{", '{"a":}', '{"a" 1}', "{a:1}", '{"a":[1}', "[1]" * 3])
def test_what_is_no_object_has_no_places(text):
    assert offsets(text) == {}


def test_of_a_key_given_twice_the_last_one_counts():
    assert offsets('{"a":1,"a":2}')[("a",)] == 11


def test_nesting_without_end_is_no_trouble():
    assert len(offsets('{"a":' * 5_000)) <= 9


def test_of_an_object_that_is_cut_off_the_whole_values_have_places():
    text = json.dumps({"a": {"level": 10, "b": "x"}, "c": [1, "yes", {"d": None}], "e": 2})
    whole = offsets(text)
    for at in range(len(text)):
        for path, start in offsets(text[:at]).items():
            value, end = json.JSONDecoder().raw_decode(text, start)
            assert whole[path] == start
            assert end <= at or isinstance(value, dict | list), text[:at]
    cut = text[: text.index('"e"') + 5]
    assert {("a", "level"), ("a", "b"), ("c", 1), ("c", 2, "d")} <= offsets(cut).keys()


def test_a_reply_without_tokens_has_no_probabilities():
    assert level_probabilities(Reply(text="1"), {"P1": (0, ("0", "1"))}) == {}


def test_keys_whose_value_is_not_known_are_left_out():
    reply = Reply(text="13", token_logprobs=[token("1", p=0.5), token("3", ("3", 0.5), ("4", 0.5), p=0.5)])
    assert level_probabilities(reply, {"a": (0, ("0", "1")), "b": (1, ("3", "4"))}) == {"b": pytest.approx([0.5, 0.5])}


def test_an_integer_of_thousands_of_digits_hides_no_other_value():
    text = '{"level": 2, "x": ' + "1" * 5000 + "}"
    assert offsets(text) == offsets(text.replace("1" * 5000, "1"))
