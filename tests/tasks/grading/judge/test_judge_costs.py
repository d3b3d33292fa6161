"""What judging takes: counted from the prompts, by the cost model's own example, with what holds it up."""

from __future__ import annotations

import pytest
from builders.bundles import bundle, criterion
from builders.cases import case
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.protocols import Repair
from rubricflow.tasks.core.contracts.settings.engine import Engine, TokenPrice
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.budget import most_tokens
from rubricflow.tasks.core.llm.prices import TokenCounts, cost_of, money, price_of
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.grading.judge.costs import (
    Servers,
    Workload,
    cost_range,
    cost_rows,
    costs,
    hours_of,
    size,
    workload,
)
from rubricflow.tasks.grading.judge.grade import first_requests, grade_batch
from rubricflow.tasks.grading.judge.rater import repeated
from rubricflow.tasks.grading.judge.rows import Rater

BUNDLE = bundle(criterion("P", text="light"), criterion("Q", text="water"))
CASES = [case(BUNDLE, f"plants need light and water {n}", f"r{n}") for n in range(10)]
NOBODY = Rater("nobody", "llm", Scripted([]))


def test_the_example_of_the_cost_model() -> None:
    """Ten million responses of 300 tokens that no cache holds, on 8 replicas of 2,000 tokens a second: 52 hours."""
    load = Workload(calls=10_000_000, read_tokens=3_000_000_000, decisions=10_000_000 * 20)
    hours = hours_of(load, Servers(8, 2000))
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


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_500, "1.5 KB"), (22_000, "22 KB"), (3.1e9, "3.1 GB"), (4e15, "4,000.0 TB")],
)
def test_room_in_words(count: float, words: str) -> None:
    assert size(count) == words


PRICED = Engine(model="m", price=TokenPrice(input=3, output=15, cached=0.3, cache_write=3.75, batch=0.5))


@pytest.mark.parametrize(
    "protocol",
    [
        {"name": "rulers"},
        {"name": "pointwise"},
        {"name": "rulers", "consistency_memory": {"min_tokens": 1}},
        {"name": "autoscore", "final_score": "judged"},
        {"name": "rulers", "in_parts": True},
    ],
    ids=lambda protocol: "-".join(protocol) + protocol["name"],
)
@pytest.mark.parametrize("says", ["nonsense", '{"P":1}', '{"components":{"P":"words","Q":"more"}}', "x" * 30_000])
def test_no_run_costs_more_than_was_said_however_bad_its_replies(protocol: dict[str, object], says: str) -> None:
    judged = bundle(criterion("P", text="light"), criterion("Q", text="water"), repair=Repair(), **protocol)
    cases, judge = (
        [case(judged, f"plants need light 🌱 {n}", f"r{n}") for n in range(4)],
        Judge(engine=PRICED, samples=2),
    )
    price, bill = price_of(PRICED), list[float]()

    def dearest(request: Request) -> Reply:
        prompt, reply, *_ = most_tokens(request)
        bill.append(cost_of(TokenCounts(prompt, reply, written=prompt), price) or 0)
        return Reply(text=says, prompt_tokens=prompt, completion_tokens=reply)

    said = cost_range(cases, judge)
    with ReplyStore(":memory:") as store:
        for rater in repeated(Rater("r", "llm", Scripted(dearest), sampling=judge.sampling), judge.samples):
            grade_batch(cases, rater, store)
    assert said.likely is not None
    assert said.most is not None
    assert said.likely < sum(bill) <= said.most * (1 + 1e-9)
    assert said.calls <= len(bill) <= said.most_calls


def cost(judged: Bundle, **changes: object) -> tuple[float, float, float]:
    cases = [case(judged, f"plants need light {n}", f"r{n}") for n in range(5)]
    judge = Judge.model_validate({"engine": PRICED, **changes})
    found = cost_range(cases, judge)
    assert found.likely is not None
    assert found.most is not None
    assert found.likely_in_batch is not None
    return found.likely, found.likely_in_batch, found.most


def test_the_likely_cost_counts_samples_thinking_cached_beginnings_and_batches() -> None:
    long = bundle(criterion("P", text="light " * 2_000))
    likely, in_batch, most = cost(long)
    assert in_batch == pytest.approx(likely / 2)
    apart = sum(
        cost_range([case(long, f"plants need light {n}", f"r{n}")], Judge(engine=PRICED)).likely for n in range(5)
    )
    assert likely < 0.5 * apart, "the beginning of four prompts is cached"
    uncached = cost(long, engine=PRICED.model_copy(update={"caching": False}))
    assert likely < uncached[0]
    thinking = cost(long, engine=PRICED.model_copy(update={"effort": "high"}))
    assert thinking[0] > likely
    assert thinking[2] > most
    sampled = cost(long, samples=3)
    assert sampled[2] == pytest.approx(3 * most)
    assert likely < sampled[0] < 3 * likely


def test_a_cost_that_nobody_knows_is_said_and_is_not_nothing() -> None:
    unknown = cost_range(CASES, Judge(engine=Engine(model="m")))
    assert (unknown.likely, unknown.most) == (None, None)
    assert [row[:2] for row in cost_rows(unknown, "judging")] == [("cost of judging", "not known")]
    mended = Judge(engine=PRICED, repair_engine=Engine(model="unknown"))
    assert cost_range(CASES, mended).most is None
    assert [money(amount) for amount in (0, 0.00123, 0.5, 12.345, 1_200)] == [
        *("$0.00", "$0.0012", "$0.50", "$12.35", "$1,200.00")
    ]
