"""Work shared out: how many at once, what an error ends, and what is said where an engine is not there."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest
from builders.waiting import until
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts import backends as extras
from rubricflow.tasks.core.contracts.errors import BackendError, UserError
from rubricflow.tasks.core.contracts.settings.engine import Placement
from rubricflow.tasks.core.monitor import engines
from rubricflow.tasks.core.monitor.engines import Crew, PoisonError, on_engine

DASK = Placement(engine="dask")


class KilledWorker(Exception):
    """Called as Dask calls it."""


class CommClosedError(Exception):
    """Called as Dask calls it."""


class Submitted:
    """A task of which each piece runs where `result` is asked for; it counts how many do at once."""

    def __init__(self, work: Callable[[str], Any]) -> None:
        self._work, self._gate = work, threading.Lock()
        self.begun: list[str] = []
        self.now = self.most = 0

    def submit(self, piece: str, lane: int) -> Any:
        return SimpleNamespace(result=lambda timeout: self._result(piece))

    def _result(self, piece: str) -> Any:
        with self._gate:
            self.begun.append(piece)
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.005)
        with self._gate:
            self.now -= 1
        return self._work(piece)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: name)


def crew_of(slots: int, placement: Placement = DASK, slots_now: Callable[[], int] = lambda: 1) -> Crew:
    return Crew(placement, slots, slots_now)


def share(task: Any, pieces: int, at_once: int, placement: Placement = DASK) -> dict[str, Any]:
    """Results of all pieces by name."""
    results: dict[str, Any] = {}
    named = {f"p{number:02d}": (f"p{number:02d}",) for number in range(pieces)}
    crew_of(at_once, placement).each(task, iter(named.items()), at_once, results.__setitem__)
    return results


@pytest.mark.parametrize("at_once", [1, 3, 8])
def test_every_piece_once_and_no_more_at_once_than_allowed(at_once: int) -> None:
    task = Submitted(str.upper)
    assert share(task, 20, at_once) == {f"p{number:02d}": f"P{number:02d}" for number in range(20)}
    assert sorted(task.begun) == [f"p{number:02d}" for number in range(20)]
    assert task.most <= at_once


def failing(piece: str, error: BaseException) -> Callable[[str], str]:
    def work(name: str) -> str:
        if name == piece:
            raise error
        return name

    return work


def test_an_error_ends_it_and_what_is_under_way_is_waited_for() -> None:
    task = Submitted(failing("p03", UserError("the budget is spent")))
    results: dict[str, str] = {}
    with pytest.raises(UserError, match="the budget is spent"):
        crew_of(2).each(task, ((f"p{n:02d}", (f"p{n:02d}",)) for n in range(100_000)), 2, results.__setitem__)
    assert set(task.begun) == {*results, "p03"}
    assert len(task.begun) < 100_000


def test_a_piece_that_ends_its_workers_ends_the_run_with_its_name_when_all_others_are_done() -> None:
    task = Submitted(failing("p03", KilledWorker("Attempted to run task p03 on 4 different workers")))
    results: dict[str, str] = {}
    with pytest.raises(PoisonError, match=r"^p03: every worker that took this ended; .*Attempted to run"):
        crew_of(2).each(task, ((f"p{n:02d}", (f"p{n:02d}",)) for n in range(20)), 2, results.__setitem__)
    assert len(results) == 19


def test_an_engine_that_dies_says_what_to_do() -> None:
    placement = Placement(engine="dask", address="tcp://head:8786")
    task = Submitted(failing("p00", CommClosedError("Stream is closed")))
    with pytest.raises(
        BackendError, match=r"cluster at tcp://head:8786 is gone: .*start it again.*same command goes on"
    ):
        share(task, 4, 2, placement)


def test_an_engine_that_does_not_start_is_told_in_words(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: Any) -> Callable[[], None]:
        raise RuntimeError("The current node timed out during startup.\nMore of it")

    monkeypatch.setattr(engines, "_server", lambda placement: nullcontext())
    monkeypatch.setattr(engines, "_runner", lambda placement: None)
    monkeypatch.setattr(engines, "Flow", lambda *_, **options: broken)
    with pytest.raises(
        BackendError, match=r"dask cluster of this command did not start: .* during startup\.; the same"
    ):
        on_engine(DASK, "shards", lambda crew: None)


@given(names=st.lists(st.text(), max_size=50))
def test_what_a_flow_holds_stays_where_the_command_runs(names: list[str]) -> None:
    sizes, gate, pieces = [], threading.Lock(), names * 1_000

    def flow(function: Callable[[], Any], **_: Any) -> Callable[[], Any]:
        sizes.append(len(cloudpickle.dumps(function)))  # as Prefect sends it with each piece
        return lambda: None

    def work(crew: Crew) -> int:
        with gate:
            return len(pieces)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(extras, "find_spec", lambda name: name)
        patched.setattr(engines, "_server", lambda placement: nullcontext())
        patched.setattr(engines, "_runner", lambda placement: None)
        patched.setattr(engines, "Flow", flow)
        on_engine(DASK, "shards", work)
    assert sizes[0] < 5_000


class Waiting:
    """A piece that is under way until its workers are back."""

    def __init__(self, looks: list[int]) -> None:
        self.looks = looks
        self.counted = 0

    def submit(self, piece: str, lane: int) -> Any:
        return SimpleNamespace(result=self._result)

    def _result(self, timeout: float) -> str:
        if self.counted < len(self.looks):
            time.sleep(timeout)
            raise TimeoutError
        return "judged"

    def slots_now(self) -> int:
        self.counted += 1
        return self.looks[self.counted - 1]


def test_a_piece_waits_for_workers_that_come_back_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engines, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(engines, "SAID_AFTER_S", 0.015)
    task, results = Waiting([1, 0, 0, 0, 0, 0, 0, 1, 1]), dict[str, str]()
    crew_of(1, slots_now=task.slots_now).each(task, iter([("p", ("p",))]), 1, results.__setitem__)  # type: ignore[arg-type]
    assert results == {"p": "judged"}
    said = capsys.readouterr().err.splitlines()
    assert [" no workers left: the run waits up to 5 minutes" in line for line in said] == [True, False]
    assert said[1].endswith("has workers again; the run goes on")


def test_a_cluster_without_workers_ends_the_run_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(engines, "STOPPED_AFTER_S", 0.05)
    task = Waiting([0] * 1000)
    with pytest.raises(BackendError, match=r"had no workers for .*\(dask worker .* the same command goes on"):
        crew_of(1, slots_now=task.slots_now).each(task, iter([("p", ("p",))]), 1, lambda *_: None)  # type: ignore[arg-type]
    assert task.counted < 100


def test_a_timeout_of_a_piece_itself_is_no_waiting() -> None:
    with pytest.raises(TimeoutError, match="its own"):
        share(Submitted(failing("p00", TimeoutError("its own"))), 1, 1)


@given(seconds=st.lists(st.integers(1, 200), max_size=30), counts=st.lists(st.integers(0, 2), min_size=30, max_size=30))
def test_an_absence_is_said_once_and_ends_by_the_clock_alone(seconds: list[int], counts: list[int]) -> None:
    said, now, empty_since = list[str](), 0.0, None
    watched = engines.Absence("the cluster", "start it", said.append, lambda: now)
    expected = list[str]()
    for step, count in zip(seconds, counts, strict=False):
        now += step
        empty_since = (now if empty_since is None else empty_since) if count == 0 else None
        if empty_since is not None and now - empty_since >= engines.STOPPED_AFTER_S:
            with pytest.raises(BackendError, match="had no workers for 5 minutes"):
                watched.look(count)
            break
        watched.look(count)
        is_said = bool(expected) and expected[-1] == "gone"
        if empty_since is None and is_said:
            expected.append("back")
        elif empty_since is not None and now - empty_since >= engines.SAID_AFTER_S and not is_said:
            expected.append("gone")
    assert ["gone" if "no workers left" in line else "back" for line in said] == expected


def test_a_fault_of_the_program_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        share(Submitted(lambda piece: 1 // 0), 3, 2)


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_an_engine_that_is_not_installed_says_its_extra(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(BackendError, match=rf"needs the extra: pip install '\.\[{engine}\]'"):
        on_engine(Placement.model_validate({"engine": engine}), "shards", lambda crew: None)


@pytest.mark.parametrize(("engine", "how"), [("dask", "dask scheduler"), ("ray", "ray start --head")])
def test_an_address_where_nobody_answers_says_what_to_start(installed: None, engine: str, how: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    placement = Placement.model_validate({"engine": engine, "address": f"127.0.0.1:{port}"})
    with pytest.raises(BackendError, match=rf"no {engine} cluster answers at 127.0.0.1:{port} .*{how}"):
        on_engine(placement, "shards", lambda crew: None)


def test_workers_elsewhere_need_a_server_to_report_to(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.socket, "create_connection", lambda *_: SimpleNamespace(close=lambda: None))
    with pytest.raises(BackendError, match="PREFECT_API_URL names none: run `prefect server start --host"):
        on_engine(Placement(engine="ray", address="head:6379"), "shards", lambda crew: None)


def test_a_head_that_is_gone_while_pieces_wait_is_told_once(installed: None, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(engines, "log", lambda line, level: said.append(line))
    monkeypatch.setattr(engines, "LOOK_EVERY_S", 0.01)
    crew = Crew(Placement(engine="dask", address="127.0.0.1:9"), 1, lambda: 1)

    def pieces() -> Iterator[tuple[str, tuple[Any, ...]]]:
        until(lambda: said)
        time.sleep(0.05)  # in which it is looked again
        yield from ()

    crew.each(Submitted(lambda _: ""), pieces(), 1, lambda name, result: None)
    assert [("127.0.0.1:9 is gone" in line, "dask worker" in line) for line in said] == [(True, True)]
