"""Limits as providers say them, and calls at once that find their level."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from builders.loopback import Time, body_of, http
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.settings.engine import Engine, Sampling
from rubricflow.tasks.core.llm.backends.openai import OpenAI
from rubricflow.tasks.core.llm.backends.pace import Allowance, Level, Pace, allowances, retry_after, spent_quota
from rubricflow.tasks.core.llm.request import Message, Request

NOW = datetime(2026, 11, 24, 9, 30, tzinfo=UTC)
LATER = (datetime.now(UTC) + timedelta(hours=9)).isoformat()


def asking(n=0):
    sampling = Sampling(max_tokens=10)
    return Request(messages=(Message("user", f"question {n}"),), role="", subject=str(n), sampling=sampling)


SAID = {
    "openai": (
        {
            "x-ratelimit-limit-requests": "60",
            "x-ratelimit-remaining-requests": "59",
            "x-ratelimit-reset-requests": "1s",
        },
        {"requests": Allowance(59, 60, 1)},
    ),
    "openai tokens": (
        {
            "x-ratelimit-limit-tokens": "150000",
            "x-ratelimit-remaining-tokens": "149984",
            "x-ratelimit-reset-tokens": "6m0s",
        },
        {"tokens": Allowance(149_984, 150_000, 360)},
    ),
    "milliseconds": (
        {"x-ratelimit-remaining-requests": "4999", "x-ratelimit-reset-requests": "12ms"},
        {"requests": Allowance(4999, None, 0.012)},
    ),
    "azure knows nothing": (
        {"x-ratelimit-limit-tokens": "-1", "x-ratelimit-remaining-tokens": "-1", "x-ratelimit-reset-tokens": "0"},
        {},
    ),
    "anthropic": (
        {"anthropic-ratelimit-input-tokens-remaining": "0", "anthropic-ratelimit-input-tokens-reset": LATER},
        {"prompt": Allowance(0, None, pytest.approx(9 * 3600, abs=3600))},
    ),
    "nothing to read": ({"x-ratelimit-remaining-requests": "many", "x-ratelimit-reset-requests": "soon"}, {}),
    "nothing": ({"retry-after": "3"}, {}),
}


@pytest.mark.parametrize("provider", SAID)
def test_what_is_left_is_read_from_headers(provider):
    headers, left = SAID[provider]
    assert dict(allowances(headers)) == left


@given(st.dictionaries(st.sampled_from([*SAID["openai"][0], "retry-after"]), st.text(max_size=9)), st.text(max_size=40))
def test_whatever_headers_say_breaks_nothing(headers, said):
    assert all(allowance.left >= 0 for _, allowance in allowances(headers))
    wait = retry_after(headers, said)
    assert wait is None or wait >= 0
    spent_quota(said, wait)


def test_a_spent_quota_is_told_from_a_busy_minute_with_the_time_when_to_go_on():
    def until(said, wait=None):
        spent = spent_quota(said, wait, lambda: NOW)
        return spent and spent.until

    assert until("Rate limit reached for requests per min (RPM)", 2.0) is None
    assert until("slow down", 1000.0) == NOW + timedelta(seconds=1000)
    assert until('"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"', 30.0) == datetime(
        2026, 11, 25, 8, tzinfo=UTC
    )
    assert spent_quota("tokens per day (TPD): Limit 1000", 8.0) is None  # it rolls on
    assert "insufficient" not in spent_quota("insufficient_quota", None).in_words
    assert spent_quota("slow down", 1000.0, lambda: NOW).in_words.endswith("go on after 2026-11-24 09:46 UTC")
    assert retry_after({}, "Please try again in 7m12.5s. Visit") == 432.5
    assert retry_after({}, '{"retryDelay": "34s"}') == 34


def test_what_a_provider_says_is_left_is_kept_to():
    time = Time()
    pace = Pace(None, None, time, time.sleep)

    async def begun(count):
        for _ in range(count):
            await pace.admit(asking())
        return time.now

    assert asyncio.run(begun(5)) == 0
    requests = {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "3",
        "x-ratelimit-reset-requests": "57s",
    }
    pace.told(requests)
    assert asyncio.run(begun(3)) == 0  # there are three
    assert asyncio.run(begun(1)) == pytest.approx(1, abs=0.1)  # one a second comes back
    pace.hold(20)
    assert asyncio.run(begun(1)) == pytest.approx(21, abs=0.2)
    assert asyncio.run(begun(500)) < 60  # after its reset nothing is known


def test_a_provider_that_says_what_is_left_refuses_hardly_anything(serve):
    """Sixty requests a minute, of which the headers tell in whole numbers: of 200 hardly one runs into them."""
    time, refused = Time(), []

    def play(n, body):
        left = min(60, bucket["left"] + time.now - bucket["at"]) - 1
        if left < 0:
            refused.append(n)
            return http(429, {"error": {"message": "slow down"}})
        bucket.update(left=left, at=time.now)
        told = [f"x-ratelimit-remaining-requests: {int(left)}", "x-ratelimit-limit-requests: 60"]
        return http(200, body_of("{}"), [*told, f"x-ratelimit-reset-requests: {60 - left:.0f}s"])

    bucket = {"left": 60.0, "at": 0.0}
    server = serve(play)
    engine = Engine(model="m", urls=(server.url,), concurrency=4)
    replies = dict(OpenAI(engine, None, time, time.sleep).answer([asking(n) for n in range(200)]))
    assert all(reply.text for reply in replies.values())
    assert len(refused) <= 4  # as many as were under way when it was told
    assert 120 <= time.now < 200


@settings(max_examples=20)
@given(st.integers(1, 64), st.integers(1, 64))
def test_calls_at_once_find_the_level_that_a_server_takes(most, taken):
    level, now = Level(most), 0.0
    served = 0
    for _ in range(400):
        now += 1
        calls = int(level.size)
        assert 1 <= calls <= most
        served += min(calls, taken)
        if calls > taken:
            level.halve(now - 0.5, now)  # of several that are refused at once, one halves
            level.halve(now - 0.5, now)
        for _ in range(min(calls, taken)):
            level.rise()
    assert served >= 400 * min(most, taken) * 0.6
    assert level.size <= most


def test_slots_go_to_whoever_waited_longest_and_a_canceled_wait_loses_none():
    async def play():
        level, order = Level(2), []

        async def call(n):
            await level.acquire()
            order.append(n)
            await asyncio.sleep(0)
            level.release()

        tasks = [asyncio.create_task(call(n)) for n in range(20)]
        await asyncio.sleep(0)
        tasks[5].cancel()
        level.halve(0.0, 0.0)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == [n for n in range(20) if n != 5]
        assert not level.locked()

    asyncio.run(play())
