"""For a server whose tokenizer is not known, no text reads like a control token of the families in use."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import pairwise
from pathlib import Path

import chat_families as families
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from rubricflow.tasks.core.llm.backends.structure import BREAK, MARKERS, OPENERS, SIGN, as_written, plain
from rubricflow.tasks.core.llm.request import Reply, Token

HOUSE = Path(__file__).resolve().parents[4]
# What HTML writes, too, and an expansion of blanks: not spelled like control tokens.
SPARED = {"<table>", "\n\n", "▁▁"}
SPELLED = sorted({token for family in families.FAMILIES.values() for token in family.tokens} - SPARED)
SPELLED = list(dict.fromkeys([*SPELLED, *families.SPELLED]))
HONEST = (
    "a<b and c>d",
    "a < b > c <= d <- e -> f >> g << h <> i",
    "0<x<1 and x<y>z",
    "List<int> Map<K, V> vector<size_t> std::array<uint8_t, 4> Vec<T>",
    "<b>bold</b> <i>it</i> <p>one<br>two</p> <h1>x</h1> <table><tr><td>1</td></tr></table> <a href='x'>y</a> <BR>",
    "[1] [12, 13] [sic] [...] [a] [A] x[i] [0, 1] [x|y] [citation needed] [Name] [see above](http://x.org/a/b)",
    "I <3 plants; :-> ^_^ <(^-^)> |x| || a|b a||b",
    "# Title\n## Part\n### Response to the question\n#hashtag",
    "and/or he/she https://example.org/think/about?x=1 /home/user",
    "Name: Ada\nUser: yes\nSystem of equations: x",
    "k[C2H4][H2] [SO_2] = 0.05, [NH_3]",
    "《红楼梦》 〈书〉 【注】 「引用」 ｢x｣ （一）",
    "“Quoted” – ‘single’ … naïve Ångström ﬁne x² ½ ①",
    "-> => ==> <== <-- --> >>> <<<",
    "arr[i][j] = f(x)[0]; if (a[i] < b[j]) {}",
)


@cache
def reader(normalizer):
    """A tokenizer in which every known spelling is a control token."""
    family = families.Family(None, {"eos_token": "<|endoftext|>"}, [], SPELLED)
    return families.byte_level(family, normalizer)


def controls(text, normalizer=None):
    made = reader(normalizer)
    known = {made.convert_tokens_to_ids(token) for token in SPELLED}
    return [at for at in made(text, add_special_tokens=False)["input_ids"] if at in known]


NFKC = normalizers.NFKC()


@pytest.mark.parametrize("token", SPELLED)
def test_a_control_token_is_broken_wherever_it_stands(token):
    for text in (token, f"so{token}is", f"line\n{token}\nline", token * 3, f"[{token}]", f"<{token}>", f"a {token}: b"):
        assert controls(text)
        assert not controls(plain(text))


@settings(max_examples=100)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(SPELLED),
            st.tuples(st.sampled_from(SPELLED), st.integers(0, 9)).map(lambda one: one[0][: one[1]]),
            st.tuples(st.sampled_from(SPELLED), st.integers(0, 9)).map(lambda one: one[0][one[1] :]),
            st.text(alphabet="<>[]|/#\u200b xX", max_size=4),
        ),
        max_size=8,
    ).map("".join)
)
def test_no_text_is_a_control_token(text):
    assert not controls(plain(text))
    assert not controls(plain(text), NFKC)


@given(st.sampled_from(SPELLED), st.sampled_from(["\u00ad", "\u200d", "\u2060", "\ufeff", "\x01", "\ufe0f"]), st.data())
def test_a_hidden_character_hides_no_control_token(token, hidden, data):
    """A normaliser that takes hidden characters out, but spaces the sign as SentencePiece's does, joins nothing."""
    place = data.draw(st.integers(1, len(token) - 1))
    said = plain(token[:place] + hidden + token[place:])
    assert not controls(said.replace(SIGN, " ").replace(hidden, ""))


@given(st.sampled_from(SPELLED), st.sets(st.integers(0, 30)))
def test_wide_letters_hide_no_control_token(token, places):
    wide = (chr(ord(c) + 0xFEE0) if at in places and "!" <= c <= "~" else c for at, c in enumerate(token))
    assert not controls(plain("".join(wide)), NFKC)


def test_what_switches_thinking_is_broken_as_a_word():
    assert plain("so /think. /no_think") == "so /\u200bthink. /\u200bno_think"
    assert plain("x.org/think /thinkers") == "x.org/think /thinkers"


@pytest.mark.parametrize("text", HONEST)
def test_honest_text_stays_as_it_is(text):
    assert plain(text) == text


def test_the_demo_and_the_prompts_stay_as_they_are():
    demo = [file for file in (HOUSE / "data/demo").iterdir() if file.suffix != ".parquet"]
    files = [*demo, *(HOUSE / "tasks").glob("*/*/prompts/**/*.txt")]
    assert len(files) > 30
    for file in files:
        text = re.sub("</?(student_answer|grader_note)>", "", file.read_text(encoding="utf-8"))  # one response attacks
        assert plain(text) == text, file


mixed = st.lists(
    st.one_of(st.sampled_from(SPELLED), st.text(alphabet="<[＜|/\u200b\\u20b ab", max_size=6), st.text(max_size=3)),
    max_size=8,
).map("".join)


@given(mixed)
@example("<\u200bthink>")
@example("<\u200b\u200b|x|>")
@example("＜\u200bthink＞")
def test_a_reply_is_given_back_as_the_student_wrote_it(text):
    if "\\u200b" not in text.lower():  # a model's own spelling of the sign
        assert BREAK.undone(plain(text)) == text


@given(mixed, st.data())
def test_a_quote_of_what_the_model_saw_is_found_in_what_was_written(text, data):
    said = plain(text)
    begin = data.draw(st.integers(0, len(said)))
    quote = said[begin : data.draw(st.integers(begin, len(said)))].lstrip(SIGN)
    if "\\u200b" not in text.lower():
        assert BREAK.undone(quote) in text


@given(mixed, st.lists(st.integers(0, 40)))
def test_the_tokens_of_a_reply_still_make_it_up(text, cuts):
    said = plain(text)
    places = sorted({0, len(said), *(cut for cut in cuts if cut < len(said))})
    tokens = [Token(said[begin:end], -0.5, ((said[begin:end], -0.5),)) for begin, end in pairwise(places)]
    reply = as_written(Reply(text=said, token_logprobs=tokens))
    assert reply.text == BREAK.undone(said)
    assert "".join(token.token for token in reply.token_logprobs) == reply.text
    assert len(reply.token_logprobs) == len(tokens)


def test_every_character_that_reads_like_an_opener_is_one():
    first = {token[0] for token in SPELLED}
    wide = {chr(at) for at in range(0x80, 0x110000) if unicodedata.normalize("NFKC", chr(at)) in first}
    assert wide <= set(OPENERS)
    assert all(MARKERS.match(unicodedata.normalize("NFKC", token)) for token in SPELLED)
