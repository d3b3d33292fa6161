"""Conversations and agents' trajectories as one text of turns and steps, and the turns and steps of such a text.

A trace is a list of OpenAI's messages (of chat completions or of responses, with the content blocks of other providers
too), a transcript of inspect, or OpenTelemetry's spans of generative AI with their content in attributes or in events.
What somebody says is a turn, a tool's call or its result a step; they are numbered together, each under a heading:

    [turn 1, user]
    Is the 9:40 to Bern on time?

    [step 2, call `departures`]
    departures {"station":"Zürich HB"}

What stands under a heading is what was said or done, character for character, but for a line that reads like the
beginning of a heading: it gets a backslash, so that nobody's words are ever taken for another turn.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.text.digest import without_half_pairs
from rubricflow.tasks.core.text.units import Unit, units

STEPS = ("call", "result")
"""Kinds of steps; all others are turns."""
_KINDS = {"developer": "system", "system": "system", "user": "user", "assistant": "assistant"}
_HEADING = re.compile(
    r"(?:\A|\n\n)\[(?P<label>(?P<word>turn|step) (?P<number>[1-9]\d*), "
    r"(?P<kind>system|user|assistant|thought|call|result)(?: `[^`\n]*`)?)\](?:\n|\Z)"
)
_LIKE_HEADING = re.compile(r"\s*[\[({<|]*\s*(?:turn|step)\s*\d", re.IGNORECASE)
_OPENING = 40
"""Characters of a line that are read to tell whether it is like a heading."""
_NOT_OF_NAME = re.compile(r"[^\w.:/-]")
_LONGEST_TOOL = 60
_NO_TEXT = ("image", "audio", "video", "file", "document", "blob", "uri", "data")
"""What the type of a part names that holds no text."""
_OF_CALL = ("function_call", "custom_tool_call", "tool_use", "tool_call")
_OF_RESULT = ("function_call_output", "custom_tool_call_output", "tool_result", "tool_call_response")
_OF_THOUGHT = ("reasoning", "thinking", "redacted_thinking")
_EVENTS = {f"gen_ai.{role}.message": role for role in ("system", "user", "assistant", "tool")}


class Turn(NamedTuple):
    """A turn or a step."""

    kind: str
    """A key of TURN_KINDS."""
    text: str
    tool: str | None = None
    """Of a step: the tool, where that is told."""
    call_id: str | None = None
    """Of a step: what joins a call and its result."""


def trace_text(value: object) -> str:
    """The text of a trace, given as JSON or as what JSON holds; ValueError says why it is none."""
    return written(turns(value))


def written(said: Iterable[Turn]) -> str:
    """Turns and steps as one text."""
    parts = []
    for number, turn in enumerate(said, 1):
        tool = f" `{_NOT_OF_NAME.sub('_', turn.tool)[:_LONGEST_TOOL]}`" if turn.tool else ""
        word = "step" if turn.kind in STEPS else "turn"
        lines = (f"\\{line}" if reads_like_heading(line) else line for line in turn.text.splitlines(keepends=True))
        parts.append(f"[{word} {number}, {turn.kind}{tool}]\n{''.join(lines)}")
    return without_half_pairs("\n\n".join(parts))


def reads_like_heading(line: str) -> bool:
    """Whether a line could be taken for a heading, as `written` hinders by a backslash more."""
    opening = unicodedata.normalize("NFKC", line.lstrip("\\")[:_OPENING])
    return bool(_LIKE_HEADING.match("".join(c for c in opening if unicodedata.category(c) != "Cf")))


# The turns and steps of a text.


def trace_units(text: str) -> list[Unit]:
    """The turns (t1, t3, …) and steps (a2, …) of a trace's text, numbered together, without their headings; and then
    the sentences (s1, s2, …), none of which reaches from one into another. Spans count code points."""
    marks = list(_HEADING.finditer(text))
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    found = []
    sentences = []
    for mark, end in zip(marks, ends, strict=False):
        start = mark.end()
        letter = "t" if mark["word"] == "turn" else "a"
        found.append(Unit(f"{letter}{mark['number']}", mark["kind"], start, end))
        within = (unit for unit in units(text[start:end]) if unit.kind == "sentence")
        sentences += [(start + unit.start, start + unit.end) for unit in within]
    return found + [Unit(f"s{number}", "sentence", *span) for number, span in enumerate(sentences, 1)]


def of_trace(cut: Iterable[Unit]) -> list[Unit]:
    """The turns and steps among units, in order; none where the text is no trace."""
    return [unit for unit in cut if unit.kind not in ("sentence", "paragraph")]


def headings(text: str) -> list[tuple[int, int]]:
    """Where the headings of a trace's text stand, brackets included."""
    return [(mark.start("label") - 1, mark.end("label") + 1) for mark in _HEADING.finditer(text)]


def heading_at(text: str, place: int) -> str:
    """What the heading says under which a character of a trace's text stands: step 2, call `departures`; '' above the
    first."""
    return next((text[start + 1 : end - 1] for start, end in reversed(headings(text)) if start <= place), "")


# Reading traces.


def turns(value: object) -> list[Turn]:
    """The turns and steps of a trace, given as JSON or as what JSON holds; ValueError says why it is none."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError("is no JSON, so no list of messages and no trace") from error
    if isinstance(value, dict):
        value = next((value[key] for key in ("messages", "events", "spans") if value.get(key)), [value])
    entries = [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
    if not isinstance(value, list) or len(entries) < len(value):
        raise ValueError("is no list of messages, no transcript and no list of spans")
    try:
        if any("resourceSpans" in entry for entry in entries):
            scopes = [scope for entry in entries for of in entry["resourceSpans"] for scope in of.get("scopeSpans", ())]
            return _of_spans([span for scope in scopes for span in scope.get("spans", ())])
        if any(isinstance(entry.get("event"), str) for entry in entries):
            return _of_events(entries)
        if entries and all("attributes" in entry and "role" not in entry for entry in entries):
            return _of_spans(entries)
        return _of_messages(entries)
    except (AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("has a form that is not known") from error


def _of_messages(messages: Sequence[Fields]) -> list[Turn]:
    said = []
    tools = {}
    for place, message in enumerate(messages, 1):
        try:
            for turn in _of_message(message):
                if turn.kind == "call" and turn.call_id and turn.tool:
                    tools[turn.call_id] = turn.tool
                said.append(turn if turn.tool else turn._replace(tool=tools.get(turn.call_id or "")))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"message {place} has a form that is not known") from error
        except ValueError as error:
            raise ValueError(f"message {place} {error}") from error
    return said


def _of_message(message: Fields) -> Iterator[Turn]:
    """What a message says, thinks and does, in this order unless its content has another."""
    kind, role = message.get("type"), message.get("role")
    if role is None and kind in (*_OF_CALL, *_OF_RESULT, *_OF_THOUGHT):  # an item of OpenAI's responses
        yield from _of_part(message, "assistant")
        return
    if role in ("tool", "function"):
        parts = list(_of_parts(message.get("content", message.get("parts")), "result"))
        error = message.get("error")
        if error:
            parts.append(Turn("result", f"error: {_text(error.get('message') if isinstance(error, dict) else error)}"))
        named = message.get("name") or message.get("function")
        call = message.get("tool_call_id") or message.get("id")
        for turn in parts or [Turn("result", "")]:
            own = turn.call_id or call
            yield turn._replace(tool=turn.tool or (named if isinstance(named, str) else None), call_id=own)
        return
    if role not in _KINDS:
        raise ValueError(f"has the role {json.dumps(role)[:40]}; there are {', '.join((*_KINDS, 'tool'))}")
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str):
        yield Turn("thought", thought)
    said = list(_of_parts(message.get("content", message.get("parts")), _KINDS[role]))
    said += [Turn("assistant", message["refusal"])] if isinstance(message.get("refusal"), str) else []
    called = [*(message.get("tool_calls") or ()), *filter(None, [message.get("function_call")])]
    if said or not (called or thought):
        yield from said or [Turn(_KINDS[role], "")]
    for call in called:
        yield _of_call(call)


def _of_parts(content: Any, kind: str) -> Iterator[Turn]:
    """A content, text or parts; texts one after the other are one turn."""
    plain = []
    for part in content if isinstance(content, list) else [content]:
        found = [Turn(kind, part)] if isinstance(part, str) else list(_of_part(part, kind)) if part else []
        for turn in found:
            if turn.kind == kind and turn.call_id is None:
                plain.append(turn.text)
                continue
            yield from [Turn(kind, "\n".join(plain))] if any(plain) else ()
            plain.clear()
            yield turn
    yield from [Turn(kind, "\n".join(plain))] if any(plain) else ()


def _of_part(part: Fields, kind: str) -> Iterator[Turn]:
    type_ = part.get("type") or "text"
    call = part.get("tool_use_id") or part.get("call_id") or part.get("id")
    if type_ in _OF_CALL:
        yield _of_call(part)
        if part.get("result") is not None or part.get("error"):  # a tool of the provider, whose result comes with it
            result = _text(part.get("result") or part.get("error"))
            yield Turn("result", result, _text(part.get("name")), call)
    elif type_ in _OF_RESULT:
        given = next((part[key] for key in ("content", "response", "output", "result") if key in part), None)
        is_parts = isinstance(given, list) and all(isinstance(one, dict) and "type" in one for one in given)
        texts = [turn.text for turn in _of_parts(given, "result")] if is_parts else [_text(given)]
        yield Turn("result", "\n".join(texts), None, call)
    elif type_ in _OF_THOUGHT:
        own = next((part[key] for key in ("reasoning", "thinking", "content", "summary", "text") if part.get(key)), "")
        texts = own if isinstance(own, list) else [own]
        yield Turn("thought", "\n".join(_text(one.get("text") if isinstance(one, dict) else one) for one in texts))
    else:
        said = next((part[key] for key in ("text", "content", "refusal") if isinstance(part.get(key), str)), None)
        has_none = any(word in type_ for word in _NO_TEXT)
        yield Turn(kind, said if said is not None else f"[{type_}]" if has_none else _text(part))


def _of_call(call: Fields) -> Turn:
    """OpenAI's {function: {name, arguments}} or {custom: {name, input}}, inspect's {function: name, arguments}, and
    {name, input or arguments or args}."""
    of = next((call[key] for key in ("function", "custom") if isinstance(call.get(key), dict)), call)
    name = of.get("name") or of.get("function") or "tool"
    given = next((of[key] for key in ("arguments", "input", "args") if of.get(key) is not None), None)
    told = "" if given is None else f" {_text(given)}"
    return Turn("call", f"{_text(name)}{told}", _text(name), call.get("call_id") or call.get("id"))


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _merged(lists: Iterable[Sequence[Turn]]) -> list[Turn]:
    """Histories that grow, as one: what an earlier one said as often is not said again."""
    merged = []
    known = Counter[tuple[str, str]]()
    for said in lists:
        seen = Counter[tuple[str, str]]()
        for turn in said:
            key = (turn.kind, turn.call_id or turn.text)
            seen[key] += 1
            if seen[key] > known[key]:
                known[key] += 1
                merged.append(turn)
    tools = {turn.call_id: turn.tool for turn in merged if turn.call_id and turn.tool}
    return [turn if turn.tool else turn._replace(tool=tools.get(turn.call_id or "")) for turn in merged]


def _of_events(events: Sequence[Fields]) -> list[Turn]:
    """A transcript of inspect: what its calls of models were given and gave, and what tools did."""
    lists = []
    for event in events:
        if event["event"] == "model":
            choices = (event.get("output") or {}).get("choices") or ()
            answer = [choice["message"] for choice in choices[:1] if choice.get("message")]
            lists.append(_of_messages([*(event.get("input") or ()), *answer]))
        elif event["event"] == "tool":
            result = {"role": "tool", "tool_call_id": event.get("id"), "function": event.get("function")}
            result |= {"content": _text(event.get("result")), "error": event.get("error")}
            lists.append([_of_call(event), *_of_messages([result])])
    return _merged(lists)


def _of_spans(spans: Sequence[Fields]) -> list[Turn]:
    """Spans in the order of their beginning: attributes `gen_ai.input.messages` and `gen_ai.output.messages`, on spans
    or on their events; events of a message each; and what `execute_tool` was given and gave."""
    lists = []
    for span in sorted(spans, key=_beginning):
        own = _attributes(span)
        events = [
            (event.get("name") or event.get("event_name"), _attributes(event)) for event in span.get("events") or ()
        ]
        for told in (own, *(attributes for _, attributes in events)):
            system = {"role": "system", "parts": _parsed(told.get("gen_ai.system_instructions"))}
            both = [_parsed(told.get(f"gen_ai.{end}.messages")) or [] for end in ("input", "output")]
            lists.append(_of_messages([*([system] if system["parts"] else []), *both[0], *both[1]]))
        lists.append(_of_messages([message for name, told in events if (message := _event(name, told))]))
        if tool := own.get("gen_ai.tool.name"):
            call = {"name": tool, "id": own.get("gen_ai.tool.call.id")}
            given, gave = (own.get(f"gen_ai.tool.call.{part}") for part in ("arguments", "result"))
            done = [_of_call(call | {"arguments": given})] if given is not None else []
            lists.append([*done, *([Turn("result", _text(gave), tool, call["id"])] if gave is not None else [])])
    merged = _merged(lists)
    if not merged:
        raise ValueError("holds spans without any message: exporters leave the content out unless they are told to")
    return merged


def _beginning(span: Fields) -> str:
    """When a span began: nanoseconds or an ISO time, in an order of texts."""
    at = _text(span.get("startTimeUnixNano") or span.get("start_time"))
    return at.zfill(20) if at.isdigit() else at.rstrip("Z")


def _event(name: object, told: Fields) -> Fields | None:
    """The message of an event of one, as the conventions had it before attributes held them."""
    body = {key: _parsed(value) for key, value in told.items()}
    if name == "gen_ai.choice":
        message = body.get("message")
        return {"role": "assistant", **(message if isinstance(message, dict) else body)}
    role = _EVENTS.get(str(name))
    return {"role": role, **body} if role else None


def _attributes(of: Fields) -> Record:
    """Attributes of a span or an event, and the body of an event, as a mapping: OTLP has a list of keys and values."""
    given = [_plain(of.get("attributes")), _plain(of.get("body"))]
    return {key: value for mapping in given if isinstance(mapping, dict) for key, value in mapping.items()}


def _plain(value: Any) -> Any:
    """A value of OTLP's JSON as JSON has it; what is none stays as it is."""
    if (
        isinstance(value, list)
        and value
        and all(isinstance(one, dict) and one.keys() == {"key", "value"} for one in value)
    ):
        return {one["key"]: _plain(one["value"]) for one in value}
    if isinstance(value, dict) and len(value) == 1:
        (kind, held), *_ = value.items()
        if kind == "kvlistValue":
            return _plain(held.get("values") or [])
        if kind == "arrayValue":
            return [_plain(one) for one in held.get("values") or ()]
        if kind in ("stringValue", "intValue", "doubleValue", "boolValue", "bytesValue"):
            return held
    return value


def _parsed(value: object) -> Any:
    """What a text of JSON holds; another text, and what is none, as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value
