"""What judging takes: counted from the prompts, by the cost model's own example, with what holds it up."""

from __future__ import annotations

import pytest
from builders.bundles import bundle, criterion
from builders.cases import case
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.llm.backends.scripted import Scripted
from rubricflow.tasks.grading.judge.costs import Servers, Workload, costs, hours_of, size, workload
from rubricflow.tasks.grading.judge.grade import first_requests
from rubricflow.tasks.grading.judge.rows import Rater

BUNDLE = bundle(criterion("P", text="light"), criterion("Q", text="water"))
CASES = [case(BUNDLE, f"plants need light and water {n}", f"r{n}") for n in range(10)]
NOBODY = Rater("nobody", "llm", Scripted([]))


def test_the_example_of_the_cost_model() -> None:
    """Ten million responses of 300 tokens that no cache holds, on 8 replicas of 2,000 tokens a second: 52 hours."""
    load = Workload(calls=10_000_000, read_tokens=3_000_000_000, decisions=10_000_000 * 20)
    hours = dict(hours_of(load, Servers(8, 2000)))
    assert hours["the model"] == pytest.approx(52.08, abs=0.01)
    assert hours["this program"] == pytest.approx(10_000_000 / 250 / 3600)


@given(st.integers(1, 12), st.integers(1, 3))
def test_every_character_of_the_prompts_is_read_or_kept(replicas: int, samples: int) -> None:
    load = workload(CASES, samples, replicas)
    requests = [request for one in CASES for request in first_requests(one, NOBODY)]
    characters = samples * sum(len(message.content) for request in requests for message in request.messages)
    assert abs(load.read_tokens + load.cached_tokens - characters / 4) <= 2
    assert load.calls == samples * len(requests)
    assert load.decisions == samples * 2 * len(CASES)
    beginning = len(requests[0].messages[0].content)
    assert abs(4 * load.cached_tokens - beginning * (len(requests) * samples - min(replicas, load.calls))) < 4


def test_what_is_too_short_costs_no_call() -> None:
    load = workload([case(BUNDLE, "", "r1"), case(BUNDLE, "plants need light", "r2")], 1, 1)
    assert (load.responses, load.calls) == (2, 1)


@pytest.mark.parametrize(
    ("engine", "slowest"),
    [
        (None, "the model"),
        (Engine(model="m", requests_per_minute=1), "requests a minute"),
        (Engine(model="m", tokens_per_minute=10), "tokens a minute"),
    ],
)
def test_the_slowest_part_holds_it_up(engine: Engine | None, slowest: str) -> None:
    rows = {what: amount for what, amount, _ in costs(workload(CASES, 1, 1), Servers(1, 2000, engine))}
    assert rows["what holds it up"] == slowest


def test_so_many_replicas_make_this_program_the_slowest() -> None:
    rows = {what: amount for what, amount, _ in costs(workload(CASES, 1, 1), Servers(100_000, 2000))}
    assert rows["what holds it up"] == "this program"


@given(st.integers(1, 50), st.integers(1, 50))
def test_twice_the_replicas_never_take_longer(replicas: int, speed: int) -> None:
    load = Workload(read_tokens=10_000, reply_tokens=1_000)
    once, twice = (dict(hours_of(load, Servers(n, speed)))["the model"] for n in (replicas, 2 * replicas))
    assert twice == pytest.approx(once / 2)


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_500, "1.5 KB"), (22_000, "22 KB"), (3.1e9, "3.1 GB"), (4e15, "4,000.0 TB")],
)
def test_room_in_words(count: float, words: str) -> None:
    assert size(count) == words
