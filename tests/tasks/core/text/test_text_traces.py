"""Traces: any turns become a text and come back from it, and every form of a trace is read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.tables.data import TURN_KINDS
from rubricflow.tasks.core.text.traces import (
    STEPS,
    Turn,
    heading_at,
    headings,
    of_trace,
    trace_text,
    trace_units,
    turns,
    written,
)
from tests.builders.traces import as_said

HOSTILE = [
    "[turn 2, user]\n",
    "\n\n[step 3, call `search`]\n",
    "\\",
    "[",
    "\uff3bturn 4",
    "\u200b[Turn 9",
    "step 7",
    "\n",
    "\r",
]
HOSTILE += ["\r\n", "\u2028", "\x85", "\x0b", " ", "turn", "1", ", ", "]", "`", "| ", "=====END", "a. b? c"]
TEXTS = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=4), max_size=12).map("".join)
TURNS = st.lists(
    st.builds(Turn, st.sampled_from(sorted(TURN_KINDS)), TEXTS, st.none() | TEXTS).map(
        lambda turn: turn if turn.kind in STEPS else turn._replace(tool=None)
    ),
    max_size=6,
)


@given(TURNS)
def test_what_is_said_and_done_comes_back_to_the_letter(said: list[Turn]) -> None:
    text = written(said)
    found = of_trace(trace_units(text))
    assert [unit.kind for unit in found] == [turn.kind for turn in said]
    assert [unit.unit_id[1:] for unit in found] == [str(number) for number in range(1, len(said) + 1)]
    assert [unit.unit_id[0] == "a" for unit in found] == [turn.kind in STEPS for turn in said]
    kept = [turn.text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for turn in said]
    assert [as_said(text[unit.start : unit.end]) for unit in found] == kept
    for unit in found:
        assert heading_at(text, unit.start).startswith(("step " if unit.kind in STEPS else "turn ") + unit.unit_id[1:])


@given(TURNS)
def test_no_sentence_leaves_its_turn_and_all_that_can_be_seen_is_in_one(said: list[Turn]) -> None:
    text = written(said)
    cut = trace_units(text)
    found, sentences = of_trace(cut), [unit for unit in cut if unit.kind == "sentence"]
    inside = {place for unit in found for place in range(unit.start, unit.end)}
    covered = [place for unit in sentences for place in range(unit.start, unit.end)]
    assert len(covered) == len(set(covered))
    assert {place for place in inside if not text[place].isspace()} <= set(covered) <= inside
    outside = {place for start, end in headings(text) for place in range(start, end)}
    assert not outside & inside
    assert all(text[place] == "\n" for place in set(range(len(text))) - inside - outside)
    for sentence in sentences:
        assert sum(unit.start <= sentence.start and sentence.end <= unit.end for unit in found) == 1


CALL = {"id": "c", "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}}
SAID = [
    Turn("user", "Find it."),
    Turn("call", 'search {"q": 1}', "search", "c"),
    Turn("result", "found", "search", "c"),
]
SAID += [Turn("assistant", "Here.")]
OPENAI = [
    {"role": "user", "content": [{"type": "text", "text": "Find it."}]},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "found"},
    {"role": "assistant", "content": "Here.", "refusal": None},
]
RESPONSES = [
    {"role": "user", "content": [{"type": "input_text", "text": "Find it."}]},
    {"type": "function_call", "call_id": "c", "id": "fc", "name": "search", "arguments": '{"q": 1}'},
    {"type": "function_call_output", "call_id": "c", "output": "found"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Here."}]},
]
BLOCKS = [
    {"role": "user", "content": "Find it."},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "search", "input": {"q": 1}}]},
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "found"}]}],
    },
    {"role": "assistant", "content": [{"type": "text", "text": "Here."}]},
]
INSPECT = [
    {"role": "user", "content": "Find it.", "id": "1"},
    {"role": "assistant", "content": "", "id": "2"}
    | {"tool_calls": [{"id": "c", "function": "search", "arguments": {"q": 1}, "type": "function"}]},
    {"role": "tool", "content": "found", "id": "3", "tool_call_id": "c", "function": "search", "error": None},
    {"role": "assistant", "content": [{"type": "text", "text": "Here."}], "id": "4"},
]
EVENTS = [
    {"event": "sample_init", "state": {}},
    {"event": "model", "input": INSPECT[:1], "output": {"choices": [{"message": INSPECT[1]}]}},
    {"event": "tool", "id": "c", "function": "search", "arguments": {"q": 1}, "result": "found", "error": None},
    {"event": "model", "input": INSPECT[:3], "output": {"choices": [{"message": INSPECT[3]}]}},
]
PARTS = [
    {"role": "user", "parts": [{"type": "text", "content": "Find it."}]},
    {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "search", "arguments": {"q": 1}}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "found"}]},
    {"role": "assistant", "parts": [{"type": "text", "content": "Here."}], "finish_reason": "stop"},
]


def spans(*times: tuple[int, list, list]) -> list[dict]:
    """Spans of chats as the SDK of Python writes them."""
    keys = ("gen_ai.input.messages", "gen_ai.output.messages")
    return [
        {
            "name": "chat",
            "start_time": f"2026-01-01T00:00:0{at}Z",
            "attributes": dict(zip(keys, map(json.dumps, both), strict=True)),
        }
        for at, *both in times
    ]


CHATS = spans((2, PARTS[:3], PARTS[3:]), (1, PARTS[:1], PARTS[1:2]))
TOOL = {
    "gen_ai.tool.name": "search",
    "gen_ai.tool.call.id": "c",
    "gen_ai.tool.call.arguments": '{"q": 1}',
    "gen_ai.tool.call.result": "found",
}
OF_EVENTS = {
    "name": "chat",
    "attributes": {},
    "events": [
        {"name": "gen_ai.user.message", "attributes": {"content": "Find it."}},
        {"name": "gen_ai.assistant.message", "attributes": {"tool_calls": json.dumps([CALL])}},
        {"name": "gen_ai.tool.message", "attributes": {"id": "c", "content": "found"}},
        {
            "name": "gen_ai.choice",
            "attributes": {"index": 0, "message": json.dumps({"role": "assistant", "content": "Here."})},
        },
    ],
}
DETAILS = {"name": "gen_ai.client.inference.operation.details", "attributes": CHATS[0]["attributes"]}


def otlp(span: dict) -> dict:
    """A span as OTLP's JSON has it."""
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in span["attributes"].items()]
    return {"name": span["name"], "startTimeUnixNano": span["start_time"], "attributes": attributes}


@pytest.mark.parametrize(
    "trace",
    [
        *(OPENAI, RESPONSES, BLOCKS, INSPECT, EVENTS, EVENTS[:2] + EVENTS[3:], EVENTS[1:], CHATS, CHATS[:1]),
        {"messages": OPENAI, "score": 1},
        [*CHATS, {"name": "execute_tool", "start_time": "2026-01-01T00:00:01.5Z", "attributes": TOOL}],
        {"resourceSpans": [{"scopeSpans": [{"spans": list(map(otlp, CHATS))}]}]},
        [OF_EVENTS],
        [{"name": "chat", "attributes": {}, "events": [DETAILS]}],
    ],
)
def test_every_form_says_the_same(trace: object) -> None:
    plain = [turn._replace(text=turn.text.replace('{"q": 1}', "")) for turn in turns(json.dumps(trace))]
    assert plain == [turn._replace(text=turn.text.replace('{"q": 1}', "")) for turn in SAID]
    assert trace_text(trace) == trace_text(json.dumps(trace)) == written(SAID)


def test_what_is_said_twice_stays_twice() -> None:
    yes = {"role": "user", "parts": [{"type": "text", "content": "Yes."}]}
    more = {"role": "assistant", "parts": [{"type": "text", "content": "More?"}]}
    told = spans((1, [yes], [more]), (2, [yes, more, yes], [more]))
    assert [turn.text for turn in turns(told)] == ["Yes.", "More?", "Yes.", "More?"]


def test_thoughts_errors_pictures_and_silence_are_kept() -> None:
    said = turns(
        [
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}, "look"]},
            {
                "role": "assistant",
                "reasoning_content": "a cat",
                "content": [{"type": "thinking", "thinking": "or two"}],
            },
            {"role": "tool", "name": "zoom", "content": None, "error": {"type": "timeout", "message": "too slow"}},
            {"role": "tool", "name": "zoom", "content": []},
            {"role": "assistant", "content": ""},
        ]
    )
    kinds = ["system", "user", "thought", "thought", "result", "result", "assistant"]
    assert [turn.kind for turn in said] == kinds
    assert [turn.text for turn in said][1:] == ["[image_url]\nlook", "a cat", "or two", "error: too slow", "", ""]


@pytest.mark.parametrize(
    ("trace", "rule"),
    [
        ("no trace", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("17", "no list"),
        ([1], "no list"),
        ([{"role": "cat", "content": "miaow"}], 'message 1 has the role "cat"'),
        ([OPENAI[0], {"role": "assistant", "content": 3}], "message 2 has a form"),
        ([{"role": "assistant", "tool_calls": [3]}], "message 1 has a form"),
        (spans((1, [], [])), "without any message"),
    ],
)
def test_what_is_no_trace_is_refused(trace: object, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        turns(trace)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda of: (
            st.lists(of, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "role",
                        "content",
                        "type",
                        "tool_calls",
                        "event",
                        "input",
                        "output",
                        "attributes",
                        "parts",
                        "events",
                    ]
                ),
                of,
                max_size=3,
            )
        ),
        max_leaves=12,
    )
)
def test_nothing_but_a_trace_or_a_reason_comes_of_anything(value: object) -> None:
    try:
        said = turns(value)
    except ValueError:
        return
    assert len(of_trace(trace_units(written(said)))) == len(said)
