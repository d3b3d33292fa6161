"""What judging costs, before anything is asked: at most, and most likely.

At most is what `--budget-usd` reckons with, for every call that a protocol can make. What the likely cost assumes
stands in one line each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backends.scripted import Scripted
from rubricflow.tasks.core.llm.budget import most_tokens
from rubricflow.tasks.core.llm.forms import room
from rubricflow.tasks.core.llm.prices import Price, TokenCounts, cost_of, money, price_of
from rubricflow.tasks.core.llm.request import Request
from rubricflow.tasks.grading.judge.costs import CHARACTERS_PER_TOKEN, TOKENS_PER_DECISION, Row
from rubricflow.tasks.grading.judge.grade import asks_nobody, expected_requests
from rubricflow.tasks.grading.judge.mend import MAX_PREVIOUS
from rubricflow.tasks.grading.judge.rows import Case, Rater

REPAIRED = 0.1
"""Calls of which one repair is likely, as a share."""
THOUGHT = 0.125
"""Of the room for thinking, what a model is likely to use."""
CACHED_FROM = 1_024
"""Tokens of a shared beginning from which providers cache it."""
_WORDS, _WORDS_OF_DECISION = 4_000, 200
"""Bytes of what a further call says besides, and of what it says of each decision."""


@dataclass(frozen=True)
class CostRange:
    """US dollars for all calls of a judge; None where nobody says what its model costs."""

    calls: int
    """First calls."""
    most_calls: int
    """With every repair that the protocol allows."""
    price: Price | None
    likely: float | None
    likely_in_batch: float | None
    most: float | None

    @property
    def in_words(self) -> str:
        """Both costs, or that they are not known."""
        if self.price is None or self.likely is None or self.most is None:
            return "not known: nobody says what the model costs (engine.price says it)"
        return f"most likely about {money(self.likely)}, {money(self.most)} at most, at {self.price.in_words}"


def cost_range(cases: Iterable[Case], judge: Judge) -> CostRange:
    """Of cases as they are judged, every sample counted; what memory will show is counted at most alone."""
    engine = judge.engine
    assert engine is not None  # who asks nobody pays nothing
    rater = Rater("nobody", "llm", Scripted([]), sampling=judge.sampling, structured=engine.structured)
    price = price_of(engine)
    prices = [price, price_of(judge.repair_engine)] if judge.repair_engine else [price]
    calls = most_calls = 0
    likely, likely_in_batch, most = list[float | None](), list[float | None](), list[float | None]()
    seen: set[str] = set()
    for case in cases:
        said = 0  # tokens of the replies before, at most: what a call that rests on them can show of them
        for request in [] if asks_nobody(case) else expected_requests(case, rater):
            used = [*_likely(request, engine, judge.samples, seen)]
            for costs, batch in ((likely, False), (likely_in_batch, True)):
                costs += [cost_of(tokens, price, batch) for tokens in used]
            every = [*_every(request, engine, case.bundle, said if request.data.found is not None else 0)]
            said += every[0].reply
            most += [_dearest(tokens, prices) for tokens in every]
            calls, most_calls = calls + 1, most_calls + len(every)
    samples = judge.samples
    return CostRange(
        calls * samples,
        most_calls * samples,
        price,
        _total(likely, 1),
        _total(likely_in_batch, 1),
        _total(most, samples),
    )


def rows(cost: CostRange, who: str) -> Iterator[Row]:
    """The rows that people read."""
    if cost.price is None or cost.likely is None or cost.likely_in_batch is None or cost.most is None:
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
    prompt, shared = (length // CHARACTERS_PER_TOKEN for length in (request.prompt_length, len(beginning)))
    decisions = max(1, len(request.data.criteria))
    thinking = room(request, engine) - request.sampling.longest
    reply = round(
        (1 + REPAIRED) * (min(decisions * TOKENS_PER_DECISION, request.sampling.longest) + THOUGHT * thinking)
    )
    for _ in range(samples):
        cached = shared if beginning in seen and engine.caching and shared >= CACHED_FROM else 0
        written = shared if beginning not in seen and engine.caching and shared >= CACHED_FROM else 0
        seen.add(beginning)
        yield TokenCounts(round((1 + REPAIRED) * prompt), reply, cached, written)


def _every(request: Request, engine: Engine, bundle: Bundle, said: int) -> Iterator[TokenCounts]:
    """What each call takes at most that the protocol can make of a request: itself, its repairs, and the second step
    of a protocol that has one."""
    protocol, first = bundle.protocol, most_tokens(request, engine)
    memory = len(request.messages[0].content.encode("utf-8", "surrogatepass")) if protocol.rubric_memory else 0
    if earlier := protocol.consistency_memory:
        memory += earlier.exemplars * (4 * earlier.excerpt + _WORDS)
    more = 4 * MAX_PREVIOUS + _WORDS + _WORDS_OF_DECISION * len(request.data.criteria)
    repairs = protocol.repair.contract + protocol.repair.semantic if protocol.repair else 0
    prompt = first.prompt + memory + said
    for step in range(2 if request.role == "extract" else 1):
        prompt += step * (first.reply + _WORDS)
        yield TokenCounts(prompt, first.reply)
        for _ in range(repairs):
            yield TokenCounts(prompt + more, first.reply)


def _dearest(tokens: TokenCounts, prices: Sequence[Price | None]) -> float | None:
    """What a call costs at most, whoever answers it, whatever of its prompt is cached or put there."""
    whole = (tokens, tokens._replace(cached=tokens.prompt), tokens._replace(written=tokens.prompt))
    costs = [cost_of(each, price) for each in whole for price in prices]
    return None if None in costs else max(filter(None, costs), default=0.0)


def _total(costs: list[float | None], times: int) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return times * sum(known) if len(known) == len(costs) else None
