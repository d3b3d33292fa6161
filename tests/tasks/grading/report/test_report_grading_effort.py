"""What the report says of calls, tokens and criteria that exclude each other."""

from __future__ import annotations

import random

import pytest
from builders.rows import attempt, connected

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.catalogue import TABLES
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Prices
from rubricflow.tasks.core.llm.prices import Price, Rates, TokenCounts, cost_of, price_rows
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.counts import QUERIES
from rubricflow.tasks.grading.report.evidence import action_counts
from rubricflow.tasks.grading.report.money import cost_facts
from rubricflow.tasks.grading.report.provenance import cost_section
from rubricflow.tasks.grading.report.raters import RankedRater

CALL = {"role": "grade", "model": "m", "stored": False, "failed": False, "violated": False, "latency_s": 1.0}
CALL |= {"calls": 2, "prompt_tokens": 2_000, "completion_tokens": 80, "cached_tokens": None, "cacheable_tokens": None}
CALL |= {"bundle": 3_000, "memory": None, "response": 1_000, "repair": None}


def told(*attempts: dict[str, object]) -> dict[str, str]:
    return dict(cost_section(attempts, 2, 0, 0, ()).facts)


def test_tokens_of_a_prompt_are_shared_out_by_characters() -> None:
    assert told(CALL)["Tokens of a prompt"].startswith("bundle 750, response 250 a call")


def test_repairs_are_calls_of_their_own() -> None:
    mending = CALL | {"role": "semantic_repair", "calls": 1, "repair": 500}
    assert told(CALL, mending)["Calls"] == "3: 2 to grade, 1 to repair the evidence"


@pytest.mark.parametrize(("held", "said"), [(None, "not known"), (500, "25% of the prompts' tokens")])
def test_the_prefix_cache_is_known_where_the_engine_tells(held: int | None, said: str) -> None:
    assert (
        told(CALL | {"cached_tokens": held, "cacheable_tokens": held and 2_000})["Held by the engine's prefix cache"]
        == said
    )


def test_tokens_that_nobody_counts_are_not_known() -> None:
    found = told(CALL | {"prompt_tokens": None, "completion_tokens": None})
    assert found["Tokens"] == found["Tokens of a prompt"] == "not known: the backend counts none"


def test_responses_with_criteria_that_exclude_each_other_are_said() -> None:
    decided = [{"action": "none", "ungrounded": False, "unscored": False, "n": 8}]
    quiet, said = (action_counts(decided, rows, 4) for rows in ([], [{"n": 1}]))
    (line,) = set(said) - set(quiet)
    what = "Responses in which criteria that exclude each other were found; not both count"
    assert line == (what, 1, 0.25)


# Money.


def test_the_view_of_costs_adds_up_as_the_prices_say() -> None:
    """Tiers, batches, caches, shared and stored replies, errors, and calls of unknown cost, against plain Python."""
    chance = random.Random(5)
    tiers = (Rates(2, 0.2, 2.5, 10), Rates(4, 0.4, 5, 15, above=1_000))
    price = Price(tiers, tuple(Rates(*(rate / 2 for rate in rates[:4]), rates.above) for rates in tiers), "it", None)
    rows, expected, unknown = [], 0.0, 0
    for n in range(300):
        prompt = chance.choice([None, 0, 999, 1_000, 1_001, 5_000])
        cached, written = ((prompt or 0) // chance.randint(3, 9) for _ in range(2))
        provider, model = chance.choice([None, "openai", "plain"]), chance.choice(["m", "m", "unpriced"])
        error = chance.choice([None, None, "too_long: no", "deadline: late"])
        counts = {"prompt_tokens": prompt, "completion_tokens": None if prompt is None else 70}
        counts |= {"cached_tokens": cached, "written_tokens": written, "provider": provider, "model": model}
        rows += [attempt(f"r{n}", error=error, **counts), attempt(f"again {n}", request_digest=f"d-r{n}", stored=True)]
        if error == "too_long: no":
            continue
        used = None if prompt is None else TokenCounts(prompt, 70, cached, written)
        cost = cost_of(used, price, provider == "openai") if model == "m" and provider != "plain" else None
        expected, unknown = expected + (cost or 0.0), unknown + (cost is None)
    tables = {row: conform(row, []) for row in TABLES}
    tables |= {Attempts: conform(Attempts, rows), Prices: conform(Prices, price_rows("m", price))}
    with connected(tables) as connection:
        found = connection.sql(QUERIES["costs"]).to_arrow_table()
    assert sum(filter(None, found["usd"].to_pylist())) == pytest.approx(expected)
    assert sum(found["unknown"].to_pylist()) == unknown
    assert sum(found["calls"].to_pylist()) == 600


RANKING = [
    RankedRater(name, by, Estimate(value), Estimate(value))
    for name, by, value in (("judge + words", "m", 0.75), ("words, no judge", "", 0.55), ("length alone", "", 0.3))
]
KNOWN = [{"model": "m", "usd": 6.0, "calls": 100, "unknown": 0}]
COSTS = {"costs": {"prices": {"m": "$2 a million"}, "minutes": 3.0, "currency": "EUR", "usd": 1.2}}


def test_costs_are_by_response_hour_and_point_in_the_currency_of_the_study() -> None:
    facts = dict(cost_facts(KNOWN, 100, 50, RANKING, COSTS))
    assert facts["Cost"] == "5.00 EUR ($2 a million)"
    assert facts["A response"] == "0.05 EUR"
    assert facts["A released response"] == "0.1 EUR"
    assert facts["An hour of a person's time saved"] == "2.00 EUR, at 3 minutes a response"
    assert facts["A point of agreement more than the baseline"].startswith("0.25 EUR, 20.0 points of QWK more")


def test_what_is_not_known_of_costs_is_said() -> None:
    nothing = dict(cost_facts([KNOWN[0] | {"usd": None, "unknown": 100}], 100, 50, RANKING, COSTS))
    assert list(nothing) == ["Cost"]
    assert "not known" in nothing["Cost"]
    part = dict(cost_facts([KNOWN[0] | {"unknown": 1}], 100, 0, [RANKING[1]], {}))
    assert "at least; 1 call of unknown cost" in part["Cost"]
    assert part["A released response"] == "none was released"
    assert "money.minutes" in part["An hour of a person's time saved"]
    worse = [RANKING[0]._replace(mean=Estimate(0.5)), RANKING[1]]
    assert dict(cost_facts(KNOWN, 1, 1, worse, {}))["A point of agreement more than the baseline"].startswith("none")
