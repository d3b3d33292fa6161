"""What judging takes, before anything is asked: calls, tokens, hours, room on disk, US dollars, and which part holds
the others up.

Everything is counted from the study's own prompts; what is assumed besides stands in one line each. The most that
judging costs is what `--budget-usd` reckons with, for every call that a protocol can make.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.budget import most_tokens
from rubricflow.tasks.core.llm.calls import in_words
from rubricflow.tasks.core.llm.forms import room
from rubricflow.tasks.core.llm.prices import Price, TokenCounts, cost_of, money, price_of
from rubricflow.tasks.core.llm.request import Request
from rubricflow.tasks.grading.judge.grade import asked_about, expected_requests
from rubricflow.tasks.grading.judge.mend import MAX_PREVIOUS
from rubricflow.tasks.grading.judge.protocol import CHARACTERS_PER_TOKEN
from rubricflow.tasks.grading.judge.rows import Case, Rater

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
NOBODY = Rater("nobody", "llm", Scripted([]))
"""Who is asked nothing: by it requests are made to be counted."""
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
    judged = list(cases)
    beginnings = Counter[str]()
    decisions = 0
    rest = 0
    for case in asked_about(judged):
        for request in expected_requests(case, NOBODY):
            beginning = request.messages[0].content
            beginnings[beginning] += samples
            rest += request.prompt_length - len(beginning)
            decisions += max(1, len(request.data.criteria))
    once = sum(len(text) * min(replicas, count) for text, count in beginnings.items())
    every = sum(len(text) * count for text, count in beginnings.items())
    return Workload(
        responses=len(judged),
        calls=beginnings.total(),
        decisions=decisions * samples,
        read_tokens=(once + rest * samples) // CHARACTERS_PER_TOKEN,
        cached_tokens=(every - once) // CHARACTERS_PER_TOKEN,
        reply_tokens=decisions * samples * TOKENS_PER_DECISION,
        text_bytes=sum(len(case.text.encode("utf-8", "surrogatepass")) for case in judged),
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
    hours = hours_of(load, servers)
    bases = {
        "the model": f"{servers.replicas} replicas of {servers.tokens_per_second:,.0f} tokens/s, read and written",
        "this program": f"one processor, {1000 * OWN_S_PER_DECISION:g} ms a decision; workers divide it",
    }
    for part, needed in hours.items():
        yield part, in_words(3600 * needed), bases.get(part, "judge.engine of the study, all workers together")
    uncached = hours_of(replace(load, read_tokens=load.read_tokens + load.cached_tokens), servers)["the model"]
    yield "the model without that cache", in_words(3600 * uncached), "every prompt is read from its start"
    slowest = max(hours, key=lambda part: hours[part])
    yield "what holds it up", slowest, f"{in_words(3600 * hours[slowest])} at least; the other parts run meanwhile"


def hours_of(load: Workload, servers: Servers) -> dict[str, float]:
    """Part of the work → hours that it takes by itself; the parts go on side by side."""
    tokens = load.read_tokens + load.reply_tokens
    limits = servers.limits
    hours = {
        "the model": tokens / (servers.replicas * servers.tokens_per_second) / 3600,
        "this program": load.decisions * OWN_S_PER_DECISION / 3600,
    }
    if limits and limits.requests_per_minute:
        hours["requests a minute"] = load.calls / limits.requests_per_minute / 60
    if limits and limits.tokens_per_minute:
        hours["tokens a minute"] = (tokens + load.cached_tokens) / limits.tokens_per_minute / 60
    return hours


def size(count: float) -> str:
    """Bytes as people say them."""
    for unit in ("bytes", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if count >= 10 or unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


# US dollars, at most and most likely.

REPAIRED = 0.1
"""Calls of which one repair is likely, as a share."""
THOUGHT = 0.125
"""Of the room for thinking, what a model is likely to use."""
CACHED_FROM = 1_024
"""Tokens of a shared beginning from which providers cache it."""
_WORDS, _WORDS_OF_DECISION = 4_000, 200
"""Bytes of what a further call says besides, and of what it says of each decision."""


class CostRange(NamedTuple):
    """US dollars for all calls of a judge; None where nobody says what its model costs."""

    calls: int
    """First calls."""
    most_calls: int
    """With every repair that the protocol allows."""
    price: Price | None
    likely: float | None
    likely_in_batch: float | None
    most: float | None


def cost_range(cases: Iterable[Case], judge: Judge) -> CostRange:
    """Of cases as they are judged, every sample counted; what memory will show is counted at most alone."""
    engine, samples = judge.engine, judge.samples
    assert engine is not None  # who asks nobody pays nothing
    rater = replace(NOBODY, sampling=judge.sampling, structured=engine.structured)
    price = price_of(engine)
    seen = set[str]()
    prices = [price, price_of(judge.repair_engine)] if judge.repair_engine else [price]
    calls = most_calls = 0
    likely = in_batch = most = 0.0
    for case in asked_about(cases):
        said = 0  # tokens of the replies before, at most: what a call that rests on them can show of them
        for request in expected_requests(case, rater):
            for tokens in _likely(request, engine, samples, seen):
                likely += cost_of(tokens, price) or 0.0
                in_batch += cost_of(tokens, price, batch=True) or 0.0
            every = [*_every(request, engine, said if request.data.found is not None else 0)]
            for tokens in every:  # whoever answers, whatever of the prompt is cached or put there
                ways = (tokens, tokens._replace(cached=tokens.prompt), tokens._replace(written=tokens.prompt))
                most += max(cost_of(way, paid) or 0.0 for way in ways for paid in prices)
            calls, most_calls, said = calls + 1, most_calls + len(every), said + every[0].reply
    return CostRange(
        calls=calls * samples,
        most_calls=most_calls * samples,
        price=price,
        likely=likely if price else None,
        likely_in_batch=in_batch if price else None,
        most=None if None in prices else samples * most,
    )


def cost_rows(cost: CostRange, who: str) -> Iterator[Row]:
    """The rows that people read."""
    if cost.price is None or cost.most is None or cost.likely is None or cost.likely_in_batch is None:
        yield f"cost of {who}", "not known", "nobody says what the model costs; engine.price of the study says it"
        return
    assumed = f"beginnings cached, {REPAIRED:.0%} of calls repaired"
    yield f"cost of {who}, most likely", money(cost.likely), f"{assumed}; {cost.price.in_words}"
    if cost.price.batch != cost.price.live:
        yield f"cost of {who}, in batches", money(cost.likely_in_batch), "the same at the prices of batches"
    yield f"cost of {who}, at most", money(cost.most), f"{cost.most_calls:,} calls, each as long as it can be"


def _likely(request: Request, engine: Engine, samples: int, seen: set[str]) -> Iterator[TokenCounts]:
    """What the samples of a request are likely to take; one in some is repaired. seen: the beginnings of prompts."""
    beginning = request.messages[0].content
    longest = request.sampling.longest
    prompt, shared = (length // CHARACTERS_PER_TOKEN for length in (request.prompt_length, len(beginning)))
    decided = min(max(1, len(request.data.criteria)) * TOKENS_PER_DECISION, longest)
    reply = round((1 + REPAIRED) * (decided + THOUGHT * (room(request, engine) - longest)))
    kept = shared if engine.caching and shared >= CACHED_FROM else 0
    for _ in range(samples):
        is_known = beginning in seen
        seen.add(beginning)
        yield TokenCounts(round((1 + REPAIRED) * prompt), reply, kept if is_known else 0, 0 if is_known else kept)


def _every(request: Request, engine: Engine, said: int) -> Iterator[TokenCounts]:
    """What each call takes at most that the protocol can make of a request: itself, its repairs, and the second step
    of a protocol that has one."""
    protocol = request.data.bundle.protocol
    first = most_tokens(request, engine)
    memory = len(request.messages[0].content.encode("utf-8", "surrogatepass")) if protocol.rubric_memory else 0
    if earlier := protocol.consistency_memory:
        memory += earlier.exemplars * (4 * earlier.excerpt + _WORDS)
    more = 4 * MAX_PREVIOUS + _WORDS + _WORDS_OF_DECISION * len(request.data.criteria)
    repairs = protocol.repair.contract + protocol.repair.semantic if protocol.repair else 0
    prompt = first.prompt + memory + said
    for step in range(2 if request.role == "extract" else 1):
        prompt += step * (first.reply + _WORDS)
        yield TokenCounts(prompt, first.reply)
        yield from [TokenCounts(prompt + more, first.reply)] * repairs
