"""Calls that outlast their batch: nothing is asked twice, and what came late is found."""

import threading
import time

import pytest
from builders.waiting import until

from rubricflow.tasks.core.contracts.errors import StoppedError
from rubricflow.tasks.core.llm.ask import Checked, ask
from rubricflow.tasks.core.llm.calls import PENDING, InFlight
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Message, Reply, Request, digest, overdue


def request(text, until=float("inf")):
    return Request(messages=(Message("user", text),), role="grade", subject="s", until=until)


class Held:
    """A backend that answers at once what does not begin with 'slow', and the rest when it is let go."""

    name, model, batch_size, reads_prose, by_subject = "held", "held", 100, True, False

    def __init__(self, fault=None):
        self.begun, self.free, self.asked, self.fault = threading.Event(), threading.Event(), [], fault

    def answer(self, requests):
        texts = [request.messages[0].content for request in requests]
        self.asked += texts
        for index, text in enumerate(texts):
            if not text.startswith("slow"):
                yield index, Reply(text=text)
        self.begun.set()
        if any(text.startswith("slow") for text in texts):
            self.free.wait(600)
            if self.fault:
                raise self.fault
        for index, text in enumerate(texts):
            if text.startswith("slow"):
                yield index, Reply(text=text)


@pytest.fixture
def held(monkeypatch):
    """What it answers at once is there before anybody's patience ends, however busy the machine is."""
    backend, start = Held(), threading.Thread.start

    def begin(thread):
        start(thread)
        if thread.name == "calls":
            backend.begun.wait(600)

    monkeypatch.setattr(threading.Thread, "start", begin)
    return backend


def said(backend, texts, until=float("inf")):
    replies = dict(backend.answer([request(text, until) for text in texts]))
    return [replies[index].text or replies[index].error for index in range(len(texts))]


def test_what_hangs_is_pending_and_its_reply_is_there_for_who_asks_again(held):
    calls = InFlight()
    backend = calls.around(held, 0.05, is_last=False)
    assert said(backend, ["a", "slow b", "c"]) == ["a", PENDING, "c"]
    assert said(backend, ["slow b"]) == [PENDING]
    key = digest(request("slow b"), "held")
    coming = calls.reply_of(key)
    assert not coming.done()
    held.free.set()
    assert coming.result(600).text == "slow b"
    assert said(backend, ["slow b"]) == ["slow b"]
    assert held.asked == ["a", "slow b", "c"]
    assert calls.reply_of(key) is None


def test_replies_that_keep_coming_are_waited_for(monkeypatch):
    clock, passed = time.monotonic, []
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 400 * len(passed))

    class Trickling(Held):
        def answer(self, requests):
            for index in range(len(requests)):
                time.sleep(0.01)
                passed.append(index)
                yield index, Reply(text=str(index))

    backend = InFlight().around(Trickling(), 600, is_last=False)
    assert said(backend, [str(number) for number in range(10)]) == [str(number) for number in range(10)]


def test_what_ends_the_backend_is_raised_where_it_is_waited_for_and_asked_anew_later():
    held, calls = Held(fault=StoppedError("gone", passing=True)), InFlight()
    assert said(calls.around(held, 0.05, is_last=False), ["slow"]) == [PENDING]
    held.free.set()
    patient = calls.around(held, 600, is_last=False)
    with pytest.raises(StoppedError):
        said(patient, ["slow"])
    held.fault = None
    assert said(patient, ["slow"]) == ["slow"]


def test_a_call_that_ended_at_anothers_deadline_is_asked_again():
    class Late(Held):
        def answer(self, requests):
            self.asked += requests
            for index, one in enumerate(requests):
                time.sleep(max(0.0, one.until - time.monotonic()) if len(self.asked) == 1 else 0.0)
                yield index, overdue() if len(self.asked) == 1 else Reply(text="there")

    held, calls = Late(), InFlight()
    first = calls.around(held, 0.0, is_last=True)
    assert said(first, ["a"], time.monotonic() + 0.1) == [overdue().error]
    patient = calls.around(held, 600, is_last=False)
    # On a busy machine the first call is over before this one could join it.
    assert said(patient, ["a"], time.monotonic() + 60) in ([PENDING], ["there"])
    assert said(patient, ["a"], time.monotonic() + 60) == ["there"]


def test_the_asking_engine_keeps_no_pending_reply_and_pays_once(tmp_path, held):
    calls = InFlight()
    backend = calls.around(held, 0.05, is_last=False)
    with ReplyStore(tmp_path / "replies.sqlite") as store:
        asking = [request("a"), request("slow")]

        def check(_, reply):
            return Checked(reply.text, ())

        first = ask(asking, backend, store, check)
        assert [one.value for one in first] == ["a", None]
        assert len(store) == 1
        held.free.set()
        calls.reply_of(first[1].attempts[-1].digest).result(600)
        second = ask(asking, backend, store, check)
        assert [one.value for one in second] == ["a", "slow"]
        assert held.asked == ["a", "slow"]
        assert [attempt.stored for one in second for attempt in one.attempts] == [True, False]


def test_calls_that_nobody_asks_for_again_are_forgotten(monkeypatch):
    monkeypatch.setattr("rubricflow.tasks.core.llm.calls._MANY", 2)
    held, calls = Held(), InFlight()
    backend = calls.around(held, 0.0, is_last=True)
    for number in range(5):
        said(backend, [f"slow {number}"], time.monotonic() - 1)
    held.free.set()
    until(lambda: all(reply.done() for reply, _ in calls._calls.values()))
    said(backend, ["slow 9"], time.monotonic() - 1)
    assert len(calls._calls) <= 2
