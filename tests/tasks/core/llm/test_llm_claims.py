"""Runs at once in one reply store pay once: whatever they share, however they overlap, and whoever is killed."""

import logging
import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from builders.waiting import until
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.llm import reply_store
from rubricflow.tasks.core.llm.ask import Checked, ask
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Message, Reply, Request

TOGETHER = multiprocessing.get_context("forkserver")
TOGETHER.set_forkserver_preload(["hypothesis", "pytest", "rubricflow.tasks.core.llm.ask"])


def asking(text, subject=None):
    return Request(messages=(Message("user", text),), role="grade", subject=subject or text)


def check(request, reply):
    """Every third question needs a repair."""
    bad = int(request.subject) % 3 == 0 and "mend" not in request.messages[0].content
    return Checked(reply.text, ("odd",) if bad else ())


def mend(request, history):
    return asking(f"{request.subject} mend", request.subject) if len(history) == 1 else None


def questions(seed):
    """Most of sixty questions, in an order of one's own."""
    return [str(n) for n in random.Random(seed).sample(range(60), 45)]


def run(folder, seed, stops_at=None):
    """One run: a random start, a random batch size; every call is written down before it is answered. A call stays
    without an answer once so many were begun."""
    luck = random.Random(seed)

    def reply(request):
        with (folder / "calls").open("a") as calls:
            calls.write(request.messages[0].content + "\n")
        if stops_at and len(called(folder)) >= stops_at:
            (folder / "stopped").touch()
            time.sleep(600)
        time.sleep(0.01)
        return request.subject

    time.sleep(luck.uniform(0, 0.2))
    backend = Scripted(reply, batch_size=luck.choice([1, 7, 16, 4096]))
    with ReplyStore(folder / "replies") as store:
        asked = ask([asking(text) for text in questions(seed)], backend, store, check, mend)
    assert [one.value for one in asked] == questions(seed)
    (folder / f"done-{seed}").touch()


def called(folder):
    return (folder / "calls").read_text().splitlines() if (folder / "calls").exists() else []


@pytest.mark.parametrize("moment", [1, 30])
def test_when_one_is_killed_the_other_asks_what_is_missing(tmp_path, moment):
    runs = [TOGETHER.Process(target=run, args=(tmp_path, *words)) for words in ((3, moment), (4,))]
    for one in runs:
        one.start()
    until((tmp_path / "stopped").exists)
    runs[0].kill()
    for one in runs:
        one.join(600)
    assert [one.exitcode for one in runs] == [-signal.SIGKILL, 0]
    # What the killed one had just asked is lost; nothing else is asked again.
    assert len(called(tmp_path)) - len(set(called(tmp_path))) <= 1


@pytest.mark.parametrize("own_stores", [True, False])
def test_threads_pay_for_every_request_once(tmp_path, own_stores):
    backend = Scripted(lambda request: time.sleep(0.001) or request.subject, batch_size=5)
    with ExitStack() as stack:
        shared = stack.enter_context(ReplyStore(tmp_path / "r"))
        stores = [stack.enter_context(ReplyStore(tmp_path / "r")) if own_stores else shared for _ in range(6)]
        wanted = [asking(str(n)) for n in range(40)]
        threads = [threading.Thread(target=ask, args=(wanted, backend, one, check, mend)) for one in stores]
        for one in threads:
            one.start()
        for one in threads:
            one.join(600)
    asked = [request.messages[0].content for request in backend.asked]
    assert len(asked) == len(set(asked)) == 54


def test_what_another_asked_without_a_reply_is_asked_again(tmp_path):
    begun, answered = threading.Event(), []

    def failing(request):
        begun.set()
        time.sleep(0.1)
        return Reply(error="timeout: slow")

    def first():
        with ReplyStore(tmp_path / "r") as store:
            answered.append(ask([asking("1")], Scripted(failing), store, check)[0].value)

    thread = threading.Thread(target=first)
    thread.start()
    begun.wait(600)
    with ReplyStore(tmp_path / "r") as store:
        backend = Scripted(lambda request: request.subject)
        answered.append(ask([asking("1")], backend, store, check)[0].value)
    thread.join(600)
    assert answered == [None, "1"]
    assert backend.calls == 1


def test_a_fault_gives_the_claims_back(tmp_path):
    with ReplyStore(tmp_path / "r") as mine, ReplyStore(tmp_path / "r") as theirs:
        with pytest.raises(BackendError):
            ask([asking("1"), asking("2")], Scripted([BackendError("no")]), mine, check)
        with theirs.claim(["x"]) as claimed:
            assert claimed == ["x"]
        assert theirs._connection.execute("SELECT count(*) FROM claims").fetchone() == (0,)


def test_a_waiting_run_says_for_whom_and_not_at_every_wave(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(reply_store, "_SAY_S", (0.0, 60.0))
    with ReplyStore(tmp_path / "r") as mine, ReplyStore(tmp_path / "r") as theirs:
        looks, get_many = [], mine.get_many

        def look(missing):
            looks.append(missing)
            if len(looks) % 3 == 0:
                theirs.put_many([(name, "m", Reply(text=name)) for name in missing])
            return get_many(missing)

        monkeypatch.setattr(mine, "get_many", look)
        for name in "ab":
            with theirs.claim([name]), caplog.at_level(logging.WARNING):
                assert mine.awaited([name]) == {name: Reply(text=name)}
    (said,) = caplog.messages
    assert said.startswith(f"waiting for 1 replies that process {os.getpid()} on ")


@pytest.mark.parametrize(
    ("host", "process", "age", "lives"),
    [
        (None, os.getpid(), 0, True),
        (None, os.getpid(), reply_store.LEASE_S + 5, False),  # stopped, or its number is another's now
        (None, 2**22 + 1, 0, False),
        ("elsewhere/", 2**22 + 1, 0, True),
        ("elsewhere/", 2**22 + 1, reply_store.LEASE_S + 5, False),
    ],
    ids=["living", "silent", "dead", "elsewhere", "elsewhere and silent"],
)
def test_an_asker_is_believed_while_it_is_heard_of(host, process, age, lives):
    assert reply_store.Asker("a", host or reply_store.host(), process, time.time(), age).lives == lives


def test_an_asker_that_takes_long_keeps_its_claims(tmp_path, monkeypatch):
    monkeypatch.setattr(reply_store, "BEAT_S", 0.02)
    with ReplyStore(tmp_path / "r") as mine, ReplyStore(tmp_path / "r") as theirs, mine.claim(["a"]):
        theirs._do("write", lambda cursor: cursor.execute("UPDATE askers SET seen = 0"))
        until(lambda: theirs._rows("SELECT seen FROM askers")[0][0] > 0)
        with theirs.claim(["a"]) as claimed:
            assert claimed == []


STEP = st.tuples(st.integers(0, 2), st.sampled_from(["claim", "reply", "end"]), st.sets(st.integers(0, 5)))


@settings(max_examples=20)
@given(st.lists(STEP, max_size=25))
def test_a_request_is_never_two_runs_business(steps):
    """Any interleaving of three runs against plain sets."""
    held, kept = [set(), set(), set()], set()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stores = [stack.enter_context(ReplyStore(Path(folder) / "r")) for _ in held]
        blocks = [stack.enter_context(ExitStack()) for _ in held]
        for at, act, wanted in steps:
            names = {str(n) for n in wanted}
            if act == "claim" and not held[at]:
                mine = blocks[at].enter_context(stores[at].claim(sorted(names)))
                assert set(mine) == names - kept - set.union(*held)
                held[at] = set(mine)
            elif act == "reply":
                stores[at].put_many([(name, "m", Reply(text=name)) for name in sorted(names & held[at])])
                kept |= names & held[at]
            elif act == "end":
                blocks[at].close()
                held[at] = set()
            assert set(stores[at].get_many(map(str, range(6)))) == kept
