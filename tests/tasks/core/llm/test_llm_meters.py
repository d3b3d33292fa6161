"""CallMeters: calls are counted as they come, apart for a piece, and Prometheus finds them."""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Iterator, Sequence

import pytest
from builders.loopback import free_port
from prometheus_client.parser import text_string_to_metric_families

from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.llm import calls
from rubricflow.tasks.core.llm.backend import Answers, Scripted
from rubricflow.tasks.core.llm.calls import (
    ENOUGH,
    LIVE,
    METERS,
    SHARES,
    CallMeters,
    GivesUp,
    Metered,
    metered_by,
    serve_meters,
    telling,
)
from rubricflow.tasks.core.llm.prices import Price, Rates
from rubricflow.tasks.core.llm.reply_store import looking
from rubricflow.tasks.core.llm.request import ONLY_THOUGHT, Message, Reply, Request

REQUESTS = [Request(messages=(Message("user", str(n)),), role="grade", subject=str(n)) for n in range(4)]


def replied(request: Request) -> Reply:
    if request.subject == "3":
        return Reply(error="refused: no")
    return Reply(text="yes", prompt_tokens=1_000_000, completion_tokens=10)


@pytest.fixture
def price() -> Price:
    rates = (Rates(input=2.0, cached=2.0, cache_write=2.0, output=0.0),)
    return Price(rates, rates, "said", None)


@pytest.mark.parametrize("place", [None, 0, ENOUGH - 1, ENOUGH])
def test_a_model_that_only_thinks_is_given_up_before_it_is_paid_for_more(place: int | None) -> None:
    thought = Reply(error=f"{ONLY_THOUGHT} and stopped")
    many = [Request(messages=(Message("user", str(n)),), role="grade", subject=str(n)) for n in range(3 * ENOUGH)]
    inside = Scripted(lambda request: "yes" if request.subject == str(place) else thought, model="m")
    backend = GivesUp(inside)
    if place is not None and place < ENOUGH:
        assert len(list(backend.answer(many))) == inside.calls == len(many)
        return
    with pytest.raises(BackendError, match="only thought"):
        list(backend.answer(many))
    assert inside.calls == ENOUGH


def test_who_stops_waiting_frees_the_model_inside() -> None:
    free = []

    class Engine(Scripted):
        def answer(self, requests: Sequence[Request]) -> Answers:
            try:
                yield from super().answer(requests)
            finally:
                free.append(True)

    answers = Metered(Engine(replied, model="m"), None).answer(REQUESTS)
    next(answers)
    answers.close()  # type: ignore[attr-defined]
    assert free == [True]
    assert METERS.counted()["open m"] == 0


def test_calls_are_counted_as_they_come(price: Price) -> None:
    own, before = CallMeters(), METERS.counted()
    with metered_by(own):
        answers = Metered(Scripted(replied, model="m"), price).answer(REQUESTS)
        next(answers)
        assert own.counted() == {
            "calls m": 1,
            "open m": 3,
            "failures m": 0,
            "prompt_tokens m": 1_000_000,
            "completion_tokens m": 10,
            "usd m": 2.0,
        }
        list(answers)
    counted = own.counted()
    assert {
        name: counted[f"{name} m"]
        for name in ("calls", "open", "failures", "prompt_tokens", "completion_tokens", "usd")
    } == {
        "calls": 4,
        "open": 0,
        "failures": 1,
        "prompt_tokens": 3_000_000,
        "completion_tokens": 30,
        "usd": 6.0,
    }
    assert METERS.counted() == before


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    number = free_port()
    monkeypatch.setenv("RUBRICFLOW_METERS", str(number))
    monkeypatch.setattr(calls, "METERS", CallMeters())
    serve_meters.cache_clear()
    yield number
    serve_meters.cache_clear()


def read_meters(port: int) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return {(s.name, *sorted(s.labels.values())): s.value for family in families for s in family.samples}


def test_prometheus_finds_own_calls_and_those_of_workers(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls.METERS.add({"calls m": 3, "prompt_tokens m": 30, "open m": 1, "usd m": 0.5})
    monkeypatch.setitem(SHARES, "judge", 0.25)
    LIVE.append(lambda: {"calls m": 2, "calls other": 1, "failures other": 1, "waited": 3.0})
    try:
        serve_meters()
        serve_meters()
        found = read_meters(port)
    finally:
        LIVE.pop()
    calls.METERS.add({"open m": -1})
    later = read_meters(port)  # the piece has ended, and its counts are not with the others yet
    assert (later["rubricflow_judge_calls_total", "m"], later["rubricflow_judge_open", "m"]) == (5, 0)
    assert found == {
        ("rubricflow_judge_calls_total", "m"): 5,
        ("rubricflow_judge_calls_total", "other"): 1,
        ("rubricflow_judge_failures_total", "other"): 1,
        ("rubricflow_judge_prompt_tokens_total", "m"): 30,
        ("rubricflow_judge_open", "m"): 1,
        ("rubricflow_judge_usd_total", "m"): 0.5,
        ("rubricflow_stage_done", "judge"): 0.25,
    } | {("rubricflow_stage_done", stage): share for stage, share in SHARES.items() if stage != "judge"}


@pytest.mark.parametrize("place", ["x", "127.0.0.1:99999", "no.such.host.invalid:9464"])
def test_a_place_that_cannot_be_is_said(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUBRICFLOW_METERS", place)
    serve_meters.cache_clear()
    with pytest.raises(InputError, match="is no place for meters"):
        serve_meters()


def test_a_thread_looks_while_nobody_tells() -> None:
    looked = threading.Event()
    with looking(looked.set, every=0.01):
        assert looked.wait(300)
    with pytest.raises(ZeroDivisionError), looking(lambda: None, every=0.01):
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_who_has_no_more_to_tell_says_how_its_calls_come_along(monkeypatch: pytest.MonkeyPatch) -> None:
    own, lines, said = CallMeters(), list[str](), threading.Event()
    monkeypatch.setattr(calls, "METERS", own)
    monkeypatch.setattr(calls, "EVERY_S", 0.01)
    with telling(lambda line: (lines.append(line), said.set())[0]):
        said.wait(0.05)
        assert not lines
        own.add({"open m": 4, "calls m": 2, "calls other": 1})
        assert said.wait(300)
    assert lines[0] == "4 calls open, 3 answered"


def test_a_server_that_is_waited_for_is_named() -> None:
    own, backend = CallMeters(), Metered(Scripted(replied, model="m"), None)
    with metered_by(own):
        next(backend.answer(REQUESTS))
    backend._backend.absent = "http://judge:8000/v1"  # type: ignore[attr-defined]
    assert own.counted()["absent http://judge:8000/v1"] == 1
