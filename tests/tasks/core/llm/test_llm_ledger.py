"""The ledger: several processes spend no more together than there is, and begin no more calls a minute."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.llm.ask import Checked, ask
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.budget import Budgeted, BudgetSpent, SharedCap
from rubricflow.tasks.core.llm.ledger import MINUTE_S, CallLedger, MinuteLimits, seconds_until_room
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Message, Reply, Request

BUDGET, COST, PROMPT = 4_000, 40, "x" * 60
LIMITS = MinuteLimits(requests=7, tokens=100)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    ledger = CallLedger(path)
    ledger.make()
    ledger.fill("cap", BUDGET)
    return path


def read(request: Request, reply: Reply) -> Checked[str]:
    """Any reply will do."""
    return Checked(reply.text, ())


def spend(place: Path, number: int, dies: bool) -> None:
    """A worker: asks as much as the cap pays for, all replies of the longest size; one dies in the middle."""
    requests = [
        Request(
            messages=(Message("user", PROMPT),),
            role="grade",
            subject=f"{number}-{i}",
            sampling=Sampling(max_tokens=20, seed=i + 1000 * number),
        )
        for i in range(100)
    ]
    backend = Scripted(lambda request: Reply(text="yes", prompt_tokens=20, completion_tokens=20))
    cap = SharedCap(CallLedger(place), "cap", step=200)
    with ReplyStore(place.with_name(f"replies-{number}.sqlite")) as store:
        with suppress(BudgetSpent):
            ask(requests[: 15 if dies else 100], Budgeted(backend, {"tokens": cap}), store, read)
        if not dies:  # who is killed gives nothing back
            cap.give_back()


def together(work: Callable[..., None], *arguments: tuple[object, ...]) -> None:
    """Processes that do it side by side, to their ends."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["hypothesis", "pytest", "rubricflow.tasks.core.llm.ask", "sqlalchemy"])
    processes = [context.Process(target=work, args=each) for each in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0


def paid(place: Path) -> int:
    """Tokens of all replies that were paid for."""
    count = 0
    for path in place.parent.glob("replies-*.sqlite"):
        with ReplyStore(path) as store:
            count += len(store)
    return count * COST


def test_processes_spend_no_more_than_the_purse_holds_and_nearly_all_of_it(place: Path) -> None:
    together(spend, *((place, number, False) for number in range(2)))
    assert BUDGET - 4 * COST <= paid(place) <= BUDGET
    assert CallLedger(place).drawn("cap") == (paid(place), BUDGET)


def test_what_a_killed_worker_drew_counts_as_spent(place: Path) -> None:
    together(spend, (place, 0, True))
    drawn, _ = CallLedger(place).drawn("cap")
    assert paid(place) <= drawn <= paid(place) + 200
    together(spend, (place, 1, False))
    assert paid(place) <= BUDGET


@given(st.lists(st.integers(-300, 500), max_size=30))
def test_a_purse_gives_what_it_holds(steps: list[int]) -> None:
    ledger = CallLedger(":memory:")
    ledger.make()
    ledger.fill("cap", 1000)
    drawn = 0
    for step in steps:
        drew = ledger.draw("cap", step)
        assert drew == (drawn + step <= 1000)
        drawn += step if drew else 0
        assert ledger.drawn("cap") == (drawn, 1000)


def begin_calls(place: Path, number: int) -> None:
    """A worker that begins as many calls as it is let, for ten minutes of a clock on which a minute takes .1 s."""
    looks, asked = list[float](), list[tuple[float, int, bool]]()

    def clock() -> float:
        looks.append(600 * time.monotonic())
        return looks[-1]

    ledger, size = CallLedger(place, clock), 10 + number
    end = clock() + 600
    while clock() < end:
        wait = ledger.admit("server", size, LIMITS)
        asked.append((looks[-1], size, wait == 0))
        time.sleep(wait / 600)
    place.with_name(f"calls-{number}.json").write_text(json.dumps(asked))


def test_processes_begin_no_more_calls_in_a_minute_than_allowed_and_nearly_as_many(place: Path) -> None:
    together(begin_calls, *((place, number) for number in range(2)))
    asked = sorted(call for path in place.parent.glob("calls-*.json") for call in json.loads(path.read_text()))
    calls, best = [(at, size) for at, size, begins in asked if begins], list[tuple[float, int]]()
    for at, size, _ in asked:  # as somebody would let them begin who sees all of them
        last = [tokens for other_s, tokens in best if at - MINUTE_S < other_s]
        if len(last) < 7 and sum(last) + size <= 100:
            best.append((at, size))
    for begun_s, _ in calls:
        minute = [tokens for other_s, tokens in calls if begun_s <= other_s < begun_s + MINUTE_S]
        assert len(minute) <= 7
        assert sum(minute) <= 100
    assert len(calls) > 0.8 * len(best) > 0  # of seventy at most, fewer where the machine was busy


@given(
    st.lists(st.tuples(st.floats(0, 59), st.integers(1, 80)), max_size=12).map(sorted),
    st.integers(1, 150),
    st.builds(MinuteLimits, st.none() | st.integers(1, 8), st.none() | st.integers(1, 200)),
)
def test_there_is_room_after_the_seconds_that_are_told_and_not_before(
    begun: list[tuple[float, int]], size: int, limits: MinuteLimits
) -> None:
    def room(now: float) -> bool:
        left = [tokens for begun_s, tokens in begun if begun_s > now - MINUTE_S]
        return limits.hold(len(left), sum(left), size)

    now = 60.0 - 1e-9
    wait = seconds_until_room(begun, size, limits, now)
    assert room(now + wait + 1e-6)
    if wait > 0.01:
        assert not room(now + wait - 0.005)


def test_a_ledger_that_cannot_be_used_names_its_place(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_text("no database" * 100)
    with pytest.raises(StoreError, match=r"ledger\.sqlite cannot be used"):
        CallLedger(tmp_path / "ledger.sqlite").make()
