"""Prices: by the study, by the table of the address or the provider, and unknown where nobody says."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from genai_prices import Usage, calc_price
from pydantic import ValidationError

from rubricflow.tasks.core.contracts.settings.engine import Engine, TokenPrice
from rubricflow.tasks.core.llm.prices import TokenCounts, cost_of, price_of, table_in_words
from rubricflow.tasks.core.llm.request import Reply

OPENAI = ("https://api.openai.com/v1",)


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("prompt", [1_000, 300_000])
@pytest.mark.parametrize(
    ("provider", "model"), [("openai", "gpt-5.4"), ("anthropic", "claude-opus-5"), ("gemini", "gemini-2.5-pro")]
)
def test_a_call_costs_what_the_library_computes(provider: str, model: str, prompt: int, batch: bool) -> None:
    price = price_of(Engine(model=model), provider)
    usage = Usage(input_tokens=prompt, output_tokens=700, cache_read_tokens=400, cache_write_tokens=300)
    theirs = calc_price(
        usage,
        model,
        provider_id={"gemini": "google"}.get(provider, provider),
        genai_request_timestamp=datetime.now(UTC),
        price_context={"processing": "batch"} if batch else None,
    )
    ours = cost_of(TokenCounts(prompt, 700, cached=400, written=300), price, batch)
    assert ours == pytest.approx(float(theirs.total_price), rel=1e-9)


def test_an_address_tells_the_provider_and_a_server_of_ones_own_has_no_price() -> None:
    hosted = price_of(Engine(model="gpt-5.4", urls=OPENAI))
    assert hosted is not None
    assert "openai/gpt-5.4" in hosted.in_words
    assert str(hosted.as_of) in table_in_words()
    assert price_of(Engine(model="gpt-5.4")) is None, "a server here may call its model what it likes"
    assert price_of(Engine(model="no-such-model", urls=OPENAI)) is None
    assert price_of(Engine(model="gpt-5.4", urls=(*OPENAI, "http://127.0.0.1:8000/v1"))) is None
    assert price_of(None) is None


def test_the_study_says_prices_in_its_currency_and_for_batches() -> None:
    own = TokenPrice(input=2, output=8, cached=0.5, batch=0.5, currency="EUR", usd=1.25)
    price = price_of(Engine(model="gpt-5.4", urls=OPENAI, price=own))
    called = Reply(text="{}", prompt_tokens=1_000_000, completion_tokens=500_000, cached_tokens=400_000)
    assert cost_of(called, price) == pytest.approx(1.25 * (0.6 * 2 + 0.4 * 0.5 + 0.5 * 8))
    assert cost_of(called, price, batch=True) == pytest.approx(0.5 * 1.25 * (0.6 * 2 + 0.4 * 0.5 + 0.5 * 8))
    assert price is not None
    assert "1 EUR for $1.25" in price.in_words
    assert "price" not in Engine(model="m", price=own).model_dump(), "what a call costs changes no reply"


def test_what_is_not_known_is_not_free() -> None:
    price = price_of(Engine(model="m", price=TokenPrice(input=1, output=1)))
    assert cost_of(Reply(text="{}"), price) is None
    assert cost_of(TokenCounts(10, 10), None) is None
    assert cost_of(TokenCounts(10, 10), price) == pytest.approx(float(Decimal(20) / 1_000_000))


@pytest.mark.parametrize(
    "wrong", [{"currency": "EUR"}, {"usd": 1.1}, {"batch": 0}, {"input": -1}, {"currency": "euro"}]
)
def test_prices_that_cannot_be_meant_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TokenPrice.model_validate({"input": 1, "output": 1} | wrong)
