"""What tokens cost, by the study or by the table of the library genai-prices; it needs no network."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.llm.schema import JsonDict

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

_TABLE = "genai-prices"
_NAMES = {"gemini": "google", "vertex": "google", "bedrock": "aws"}
"""Our providers → what the table calls them, where that is something else."""
_MILLION = 1_000_000


class Rates(NamedTuple):
    """US dollars per million tokens."""

    input: float
    cached: float
    """Of the input, what the provider's cache held."""
    cache_write: float
    """Of the input, what it put there."""
    output: float
    above: int = 0
    """They hold for prompts of more tokens than this."""


@dataclass(frozen=True)
class Price:
    """What a model costs."""

    live: tuple[Rates, ...]
    """By the length of prompts, shortest first."""
    batch: tuple[Rates, ...]
    """In a batch; as live where no discount is known."""
    source: str
    """Who says so, and of which model."""
    as_of: date | None
    """It is no older than this; None where the study does not say."""

    def rates(self, prompt_tokens: int, batch: bool = False) -> Rates:
        """For a prompt of so many tokens."""
        return [rates for rates in (self.batch if batch else self.live) if rates.above < max(1, prompt_tokens)][-1]

    @property
    def in_words(self) -> str:
        """The prices of short prompts, and who says so."""
        rates = self.live[0]
        dated = f" of {self.as_of}" if self.as_of else ""
        batch = (
            f", in a batch ${self.batch[0].input:g} and ${self.batch[0].output:g}" if self.batch != self.live else ""
        )
        return f"${rates.input:g} a million tokens read, ${rates.output:g} written{batch} ({self.source}{dated})"


class TokenCounts(NamedTuple):
    """What calls took."""

    prompt: int
    """All of the prompts, with what is cached."""
    reply: int
    """With what the model thought."""
    cached: int = 0
    """Of the prompts, from the provider's cache."""
    written: int = 0
    """Of the prompts, put into it."""


def tokens_of(reply: Reply) -> TokenCounts | None:
    """What a reply took; None where nobody counted."""
    if reply.prompt_tokens is None or reply.completion_tokens is None:
        return None
    return TokenCounts(
        reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens or 0, reply.written_tokens or 0
    )


def cost_of(used: Reply | TokenCounts | None, price: Price | None, batch: bool = False) -> float | None:
    """US dollars for one call; None where the price or the tokens are not known."""
    tokens = tokens_of(used) if isinstance(used, Reply) else used
    if tokens is None or price is None:
        return None
    rates = price.rates(tokens.prompt, batch)
    plain = max(0, tokens.prompt - tokens.cached - tokens.written)
    parts = (plain, tokens.cached, tokens.written, tokens.reply)
    return sum(count * rate for count, rate in zip(parts, rates, strict=False)) / _MILLION


def price_of(engine: Engine | None, provider: str | None = None) -> Price | None:
    """What an engine's model costs; None where nobody says, and never 0 for that.

    provider: who is asked, by the name in our settings; where not given, whom the engine names or its address tells.
    """
    if engine is None:
        return None
    if (own := engine.price) is not None:
        usd = own.usd
        cached = own.input if own.cached is None else own.cached
        cache_write = own.input if own.cache_write is None else own.cache_write
        rates = Rates(own.input * usd, cached * usd, cache_write * usd, own.output * usd)
        source = "the study" if own.currency == "USD" else f"the study, 1 {own.currency} for ${own.usd:g}"
        in_batch = Rates._make([*(rate * own.batch for rate in rates[:4]), rates.above])
        return Price((rates,), (in_batch,), source, own.as_of)
    who = provider or engine.provider
    found = {_listed(engine.model, None if who == "compatible" else who, url) for url in engine.urls}
    return found.pop() if len(found) == 1 else None


def price_rows(model: str, price: Price) -> list[JsonDict]:
    rows = []
    for in_batch, tiers in ((False, price.live), (True, price.batch)):
        for rates, after in zip(tiers, [*tiers[1:], None], strict=True):
            row = {"model": model, "in_batch": in_batch, "up_to": after and after.above, **rates._asdict()}
            rows.append(row | {"source": price.source, "as_of": price.as_of and price.as_of.isoformat()})
    return rows


def money(usd: float, currency: str = "USD", rate: float = 1.0) -> str:
    """US dollars as people say them: two digits of a small amount, cents of a large one. rate: dollars for one unit of
    the currency."""
    amount = usd / rate
    shown = f"{amount:,.2f}" if amount >= 0.1 or not amount else f"{amount:.2g}"
    return f"${shown}" if currency == "USD" else f"{shown} {currency}"


def table_in_words() -> str:
    """The table's name, version and date, for the record."""
    return f"{_TABLE} {importlib.metadata.version(_TABLE)} of {_table_date()}"


# The table of genai-prices.


@lru_cache(maxsize=256)
def _listed(model: str, provider: str | None, url: str) -> Price | None:
    from genai_prices.data_snapshot import get_snapshot

    try:
        # A server that the table does not know has no price there, whatever it calls its model.
        where = {"provider_id": _NAMES.get(provider, provider), "provider_api_url": None} if provider else {}
        whose = where or {"provider_id": None, "provider_api_url": url}
        known, entry = get_snapshot().find_provider_model(model, None, **whose)
    except LookupError:
        return None
    live = _dearest(entry, None)
    batch = _dearest(entry, {"processing": "batch"})
    if live is None or batch is None:
        return None
    version = importlib.metadata.version(_TABLE)
    return Price(live, batch, f"{_TABLE} {version}, {known.id}/{entry.id}", _table_date())


def _dearest(entry: ModelInfo, context: dict[str, str] | None) -> tuple[Rates, ...] | None:
    """The rates by length; where they change with the hour, the dearest of the next day: a budget rests on them."""
    begin = datetime.now(UTC)
    hours = [entry.get_prices(begin + timedelta(hours=hour), context) for hour in range(24)]
    if any(prices.input_mtok is None or prices.output_mtok is None for prices in hours):
        return None
    values = [value for prices in hours for value in (prices.input_mtok, prices.output_mtok)]
    starts = {0, *(tier.start for value in values for tier in getattr(value, "tiers", ()))}
    return tuple(
        Rates._make([*map(max, zip(*(_of_length(prices, start) for prices in hours), strict=True)), start])
        for start in sorted(starts)
    )


def _of_length(prices: ModelPrice, above: int) -> Iterator[float]:
    """Input, cached, cache write and output for prompts of more tokens than `above`."""
    dearer: JsonDict = {"cache_read_mtok": prices.input_mtok, "cache_write_mtok": prices.input_mtok}
    for name in ("input_mtok", "cache_read_mtok", "cache_write_mtok", "output_mtok"):
        value = getattr(prices, name) if getattr(prices, name) is not None else dearer[name]
        tiers = [tier.price for tier in getattr(value, "tiers", ()) if tier.start <= above]
        yield float(tiers[-1] if tiers else getattr(value, "base", value))


@lru_cache(maxsize=1)
def _table_date() -> date:
    """From when the newest price that holds now holds: the table is no older."""
    from genai_prices.data import providers
    from genai_prices.types import StartDateConstraint

    entries: list[ModelInfo] = [entry for provider in providers for entry in provider.models]
    dated = [price.constraint for entry in entries if isinstance(entry.prices, list) for price in entry.prices]
    dated += [variant.constraint for entry in entries for variant in entry.price_variants or ()]
    starts = {constraint.start_date for constraint in dated if isinstance(constraint, StartDateConstraint)}
    return max(start for start in starts if start <= datetime.now(UTC).date())
