"""Replies in PostgreSQL: durable, shared between machines, asked for once, also where the database goes away meanwhile.

They run against the server that RUBRICFLOW_TEST_POSTGRES names, in a schema of their own.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.llm import reply_store
from rubricflow.tasks.core.llm.ledger import CallLedger
from rubricflow.tasks.core.llm.reply_store import is_database, open_replies, shown_place
from rubricflow.tasks.core.llm.request import Reply

ASKED = [f"d{number}" for number in range(40)]


@pytest.fixture
def url() -> Iterator[str]:
    server = os.environ.get("RUBRICFLOW_TEST_POSTGRES")
    if not server:
        pytest.skip("needs a PostgreSQL server: RUBRICFLOW_TEST_POSTGRES=postgresql://user@host/name")
    psycopg = pytest.importorskip("psycopg", reason="needs the extra: pip install '.[postgres]'")
    schema = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        yield f"{server}{'&' if '?' in server else '?'}options={quote(f'-c search_path={schema}')}"
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


def reply(text: str) -> Reply:
    return Reply(text=text)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.characters(), max_size=30), max_size=5))
def test_any_text_comes_back_as_it_was(url: str, texts: list[str]) -> None:
    """NUL, half surrogate pairs, tabs and backslashes, that COPY and text columns treat in their own way."""
    with open_replies(url) as store:
        key = secrets.token_hex(4)
        store.put_many([(f"{key}-{number}", "m\t\\N", reply(text)) for number, text in enumerate(texts)])
        stored = store.get_many(f"{key}-{number}" for number in range(len(texts)))
        assert stored == {f"{key}-{number}": reply(text) for number, text in enumerate(texts)}


def test_the_first_reply_stays_and_errors_are_not_kept(url: str) -> None:
    with open_replies(url) as mine, open_replies(url) as theirs:
        assert theirs.put_many([("a", "m", reply("theirs")), ("b", "m", reply("same"))]) == {}
        put = [("a", "m", reply("mine")), ("b", "m", reply("same")), ("c", "m", Reply(error="timeout: slow"))]
        assert mine.put_many(put) == {"a": reply("theirs")}
        assert (len(mine), mine.get_many(["c"])) == (2, {})
        assert mine.look() == (2, 0, ())


def test_how_long_calls_of_a_model_took_is_known_and_lanes_are_told_of(url: str) -> None:
    with open_replies(url) as store:
        store.put_many([("a", "m", Reply(text="a", latency_s=1.0)), ("b", "m", Reply(text="b", latency_s=2.0))])
        assert (store.latency("m"), store.latency("other")) == (1.5, None)
    ledger = CallLedger(url)
    ledger.make()
    ledger.open_lanes("command", 2)
    assert ledger.tell("command", 1, "w", "p", {"calls m": 3}) == [0, 1]
    assert [(lane.worker, lane.told) for lane in ledger.lanes("command")] == [("", {}), ("w", {"calls m": 3})]
    ledger.close_lanes("command", 0, 1)
    assert ledger.tell("command", 1, "w", "p", {}) == [1]
    ledger.close()


def test_writers_of_the_same_keys_in_any_order_agree(url: str) -> None:
    start = Barrier(4)

    def write(number: int) -> dict[str, Reply]:
        with open_replies(url) as store:
            start.wait()
            for turn in range(5):
                keys = ASKED if (number + turn) % 2 else ASKED[::-1]
                store.put_many([(key, "m", reply(f"{number}")) for key in keys])
            return store.get_many(ASKED)

    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(write, range(4)))
    assert all(one == seen[0] and one.keys() == set(ASKED) for one in seen)


def test_nothing_is_asked_for_twice(url: str) -> None:
    """Workers that want the same at once: every digest is asked for by one of them, and all see its reply."""
    start, asked, lock = Barrier(4), list[str](), threading.Lock()

    def work(number: int) -> dict[str, Reply]:
        with open_replies(url) as store:
            start.wait()
            replies: dict[str, Reply] = {}
            while missing := [digest for digest in ASKED if digest not in replies]:
                with store.claim(missing[:7]) as mine:
                    with lock:
                        asked.extend(mine)
                    time.sleep(0.01)
                    store.put_many([(digest, "m", reply(f"{number}")) for digest in mine])
                replies |= store.awaited(missing)
            return replies

    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(work, range(4)))
    assert sorted(asked) == sorted(ASKED)
    assert all(one == seen[0] for one in seen)


def test_claims_of_who_is_gone_are_free(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_replies(url) as gone, open_replies(url) as store:
        with monkeypatch.context() as patch:
            patch.setattr(reply_store, "host", lambda: "another machine")
            assert gone._claim("gone", ["a"]) == ["a"]
        with store.claim(["a"]) as mine:
            assert mine == []
        monkeypatch.setattr(reply_store, "LEASE_S", 0.0)
        with store.claim(["a"]) as mine:
            assert mine == ["a"]


def test_a_lost_connection_is_made_again(url: str) -> None:
    import psycopg

    with open_replies(url) as store:
        store.put_many([("a", "m", reply("a"))])
        with store.claim(["b"]) as mine, psycopg.connect(url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rubricflow'"
            )
            assert mine == ["b"]
            store.put_many([("b", "m", reply("b"))])
        assert store.get_many(["a", "b"]).keys() == {"a", "b"}
        with store.claim(["b", "c"]) as mine:
            assert mine == ["c"]


def test_a_changed_reply_is_noticed(url: str) -> None:
    import psycopg

    with open_replies(url) as store:
        store.put_many([("a", "m", reply("a"))])
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("UPDATE replies SET model = 'better'")
        with pytest.raises(StoreError, match="the reply to request a was changed since it was stored"):
            store.get_many(["a"])
        assert len(store.look().problems) == 1


@pytest.mark.parametrize("secret", ["geheim", "p%40ss:w/rd"])
def test_a_password_is_shown_nowhere(secret: str) -> None:
    place = f"postgresql://me:{quote(secret, safe='')}@127.0.0.1:1/db?sslmode=disable&password={quote(secret, safe='')}"
    assert shown_place(place) == "postgresql://me@127.0.0.1:1/db"


def test_a_database_that_refuses_is_named_without_its_password(url: str) -> None:
    """The message says which one, and no password."""
    address = urlsplit(url)
    wrong = f"postgresql://{address.username or 'me'}:geheim@{address.netloc.rpartition('@')[2]}/there_is_none"
    with pytest.raises(StoreError, match=r"does not exist|authentication") as refused:
        open_replies(wrong)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    ("place", "database"),
    [("postgresql://h/d", True), ("postgres://h/d", True), ("postgresql.sqlite", False), (":memory:", False)],
)
def test_what_is_a_database(place: Any, database: bool) -> None:
    assert is_database(place) == database


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "rubricflow.tasks.core.llm.postgres", raising=False)
    with pytest.raises(StoreError, match=r"pip install '\.\[postgres\]'"):
        reply_store.open_replies("postgresql://h/d")


def test_a_database_that_is_away_is_waited_for_and_one_that_refuses_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    postgres = pytest.importorskip("rubricflow.tasks.core.llm.postgres", reason="needs the extra postgres")
    monkeypatch.setattr(postgres, "_PAUSE_S", (0.001, 0.002))
    calls = list[str]()

    def after(times: int, words: str) -> Any:
        def act() -> str:
            calls.append(words)
            if calls.count(words) <= times:
                raise OSError(words)
            return "done"

        return postgres.patiently(act, lambda error: isinstance(error, OSError), "postgresql://somewhere")

    assert after(5, "server closed the connection") == "done"
    for words in ('database "x" does not exist', "password authentication failed for user"):
        with pytest.raises(OSError, match=words):
            after(5, words)
    assert len(calls) == 6 + 2


def test_a_ledger_waits_for_its_database_but_not_to_tell_of_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    postgres = pytest.importorskip("rubricflow.tasks.core.llm.postgres", reason="needs the extra postgres")
    monkeypatch.setattr(postgres, "_PATIENCE_S", 0.3)
    monkeypatch.setattr(postgres, "_PAUSE_S", (0.01, 0.05))
    ledger = CallLedger("postgresql://me@127.0.0.1:9/none")
    for act, waits in ((lambda: ledger.draw("cap", 1), True), (lambda: ledger.lanes("command"), False)):
        begun = time.monotonic()
        with pytest.raises(StoreError, match=r"127\.0\.0\.1"):
            act()
        assert (time.monotonic() - begun >= 0.3) == waits
