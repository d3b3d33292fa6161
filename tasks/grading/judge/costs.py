"""What judging a study takes: calls, tokens, hours, room on disk, and which part holds the others up; asks no model.

Everything is counted from the study's own prompts; what is assumed besides stands in one line each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backends.scripted import Scripted
from rubricflow.tasks.core.llm.calls import in_words
from rubricflow.tasks.grading.judge.grade import asks_nobody, expected_requests
from rubricflow.tasks.grading.judge.rows import Case, Rater

CHARACTERS_PER_TOKEN = 4
TOKENS_PER_DECISION = 60
"""Of a reply: a level and its quote, as JSON."""
OWN_S_PER_DECISION = 0.0002
"""Processor time of building, verifying and writing one decision: 4 ms a response of 20 criteria were measured."""
BYTES_PER_CALL = 2_200
"""Of a reply as it is stored, as measured."""
BYTES_PER_DECISION = 200
"""Of the tables, compressed, as in the demo."""
COPIES_OF_TEXT = 3
"""Responses, units and prompts, each compressed to about half."""
_NOBODY = Rater("nobody", "llm", Scripted([]))
Row = tuple[str, str, str]
"""What, how much of it, and what that rests on."""


@dataclass(frozen=True)
class Workload:
    """What a judge is asked about a study, every repetition counted."""

    responses: int = 0
    calls: int = 0
    decisions: int = 0
    read_tokens: int = 0
    """Of prompts that no server has read before."""
    cached_tokens: int = 0
    """Of the beginnings that a server has kept of earlier prompts."""
    reply_tokens: int = 0
    text_bytes: int = 0


class Servers(NamedTuple):
    """The model's servers."""

    replicas: int
    tokens_per_second: float
    """That each reads and writes together."""
    limits: Engine | None = None
    """Whose limits hold for all replicas together."""


def workload(cases: Iterable[Case], samples: int, replicas: int) -> Workload:
    """What is asked about cases; repairs are not known before, nor what a call rests on that needs all of another's
    answer."""
    responses = text_bytes = 0
    beginnings: dict[str, int] = {}
    requests = calls = decisions = rest = 0
    for case in cases:
        responses += 1
        text_bytes += len(case.text.encode("utf-8", "surrogatepass"))
        asked = [] if asks_nobody(case) else expected_requests(case, _NOBODY)
        for request in asked:
            beginning = request.messages[0].content
            beginnings[beginning] = beginnings.get(beginning, 0) + 1
            rest += sum(len(message.content) for message in request.messages[1:])
            decisions += max(1, len(request.data.criteria))
            requests += 1
    calls = requests * samples
    once = sum(len(text) * min(replicas, count * samples) for text, count in beginnings.items())
    every = sum(len(text) * count * samples for text, count in beginnings.items())
    return Workload(
        responses=responses,
        calls=calls,
        decisions=decisions * samples,
        read_tokens=(once + rest * samples) // CHARACTERS_PER_TOKEN,
        cached_tokens=(every - once) // CHARACTERS_PER_TOKEN,
        reply_tokens=decisions * samples * TOKENS_PER_DECISION,
        text_bytes=text_bytes,
    )


def costs(load: Workload, servers: Servers) -> Iterator[Row]:
    """The rows that people read."""
    shared = f"{CHARACTERS_PER_TOKEN} characters a token; what prompts share is read once by each replica"
    tables = f"{BYTES_PER_DECISION} bytes a decision, and {COPIES_OF_TEXT} copies of the texts at half their length"
    table_bytes = load.decisions * BYTES_PER_DECISION + load.text_bytes * COPIES_OF_TEXT / 2
    yield "responses", f"{load.responses:,}", "the study's data"
    yield "calls", f"{load.calls:,}", "first calls; repairs come on top and are not known before"
    yield "prompt tokens to read", f"{load.read_tokens:,}", shared
    yield "prompt tokens kept", f"{load.cached_tokens:,}", "servers keep the beginnings of prompts (prefix cache)"
    yield "reply tokens", f"{load.reply_tokens:,}", f"{TOKENS_PER_DECISION} for each of {load.decisions:,} decisions"
    yield "room for replies", size(load.calls * BYTES_PER_CALL), f"{BYTES_PER_CALL:,} bytes a call"
    yield "room for tables", size(table_bytes), tables
    hours = dict(hours_of(load, servers))
    without_cache = replace(load, read_tokens=load.read_tokens + load.cached_tokens, cached_tokens=0)
    uncached = dict(hours_of(without_cache, servers))
    bases = {
        "the model": f"{servers.replicas} replicas of {servers.tokens_per_second:,.0f} tokens/s, read and written",
        "this program": f"one processor, {1000 * OWN_S_PER_DECISION:g} ms a decision; workers divide it",
    }
    for part, needed in hours.items():
        yield part, in_words(3600 * needed), bases.get(part, "judge.engine of the study, all workers together")
    yield "the model without that cache", in_words(3600 * uncached["the model"]), "every prompt is read from its start"
    slowest = max(hours, key=lambda part: hours[part])
    yield "what holds it up", slowest, f"{in_words(3600 * hours[slowest])} at least; the other parts go on beside it"


def hours_of(load: Workload, servers: Servers) -> list[tuple[str, float]]:
    """Part of the work → hours that it takes by itself; the parts go on side by side."""
    tokens = load.read_tokens + load.reply_tokens
    hours = [
        ("the model", tokens / (servers.replicas * servers.tokens_per_second) / 3600),
        ("this program", load.decisions * OWN_S_PER_DECISION / 3600),
    ]
    limits = servers.limits
    if limits and limits.requests_per_minute:
        hours.append(("requests a minute", load.calls / limits.requests_per_minute / 60))
    if limits and limits.tokens_per_minute:
        counted = tokens + load.cached_tokens
        hours.append(("tokens a minute", counted / limits.tokens_per_minute / 60))
    return hours


def size(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if count >= 10 or unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
