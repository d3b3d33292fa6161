"""The reply store: durable, shared, first write wins."""

import os
import sqlite3
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply


def test_keeps_replies_and_not_errors(tmp_path):
    with ReplyStore(tmp_path / "deep" / "replies.sqlite") as store:
        store.put_many([("a", "m", Reply(text="é\n", prompt_tokens=3)), ("b", "m", Reply(error="timeout: slow"))])
        store.put_many([])
        assert len(store) == 1
    with ReplyStore(tmp_path / "deep" / "replies.sqlite") as store:
        assert store.get_many(["a", "b", "c", "a"]) == {"a": Reply(text="é\n", prompt_tokens=3)}
        store.close()


def test_a_copy_of_the_file_alone_has_all_replies_though_a_worker_keeps_it_open(tmp_path):
    with ReplyStore(tmp_path / "r") as worker:
        with ReplyStore(tmp_path / "r") as command:
            worker.put_many(
                [("a", "m", Reply(text="one", latency_s=1.0)), ("b", "m", Reply(text="two", latency_s=2.0))]
            )
            command.put_many([("c", "other", Reply(text="three"))])
        (tmp_path / "copy").write_bytes((tmp_path / "r").read_bytes())
    with ReplyStore(tmp_path / "copy", read_only=True) as copy:
        assert len(copy) == 3
        assert (copy.latency("m"), copy.latency("other"), copy.latency("nobody")) == (1.5, None, None)


def test_says_which_replies_another_writer_gave_first(tmp_path):
    with ReplyStore(tmp_path / "r") as mine, ReplyStore(tmp_path / "r") as theirs:
        assert theirs.put_many([("a", "m", Reply(text="theirs")), ("b", "m", Reply(text="same"))]) == {}
        put = [("a", "m", Reply(text="mine")), ("b", "m", Reply(text="same")), ("c", "m", Reply(text="c"))]
        assert mine.put_many(put) == {"a": Reply(text="theirs")}
        assert mine.put_many([("a", "m", Reply(error="timeout"))]) == {}


def test_a_full_disk_is_named_and_what_was_stored_stays(tmp_path):
    with ReplyStore(tmp_path / "r") as store:
        store.put_many([("a", "m", Reply(text="one"))])
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count={pages}")  # a database that may not grow is a full disk
        with pytest.raises(StoreError, match=r"/r: .*database or disk is full; free some space and start again"):
            store.put_many([("b", "m", Reply(text="x" * 100_000))])
        assert len(store) == 1
        store._connection.execute("PRAGMA max_page_count=1000")
        store.put_many([("b", "m", Reply(text="x" * 100_000))])
        assert store.get_many(["a", "b"]).keys() == {"a", "b"}


def test_a_transaction_that_cannot_end_is_taken_back(tmp_path, monkeypatch):
    class Failing:
        def __init__(self, connection):
            self.connection = connection

        def execute(self, statement):
            if statement == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return self.connection.execute(statement)

        def __getattr__(self, name):
            return getattr(self.connection, name)

    with ReplyStore(tmp_path / "r") as store:
        real = store._connection
        store._connection = Failing(real)
        with pytest.raises(StoreError, match="disk I/O error"):
            store.put_many([("a", "m", Reply(text="one"))])
        store._connection = real
        store.put_many([("b", "m", Reply(text="two"))])
        assert store.get_many(["a", "b"]).keys() == {"b"}


def test_a_corrupt_file_is_named_with_what_to_do(tmp_path):
    with ReplyStore(tmp_path / "r") as store:
        store.put_many([(str(i), "m", Reply(text="x" * 1000)) for i in range(100)])
    content = bytearray((tmp_path / "r").read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    (tmp_path / "r").write_bytes(content)
    with (
        ReplyStore(tmp_path / "r") as store,
        pytest.raises(StoreError, match=r"/r: .*malformed; bring back a copy, or"),
    ):
        store.get_many(["1"])
    (tmp_path / "r").write_bytes(os.urandom(5000))
    with pytest.raises(StoreError, match=r"/r: .*not a database; bring back a copy, or"):
        ReplyStore(tmp_path / "r")


def test_a_store_that_is_held_too_long_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("rubricflow.tasks.core.store.sqlite_file._WAIT_S", 0.05)
    with ReplyStore(tmp_path / "r") as store, sqlite3.connect(tmp_path / "r", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked; another run has held it"):
            store.put_many([("a", "m", Reply(text="one"))])
        other.execute("ROLLBACK")
        store.put_many([("a", "m", Reply(text="one"))])


def test_asks_for_any_number_at_once():
    with ReplyStore(":memory:") as store:
        store.put_many([(str(i), "m", Reply(text=str(i))) for i in range(2_345)])
        found = store.get_many(str(i) for i in range(3_000))
    assert len(found) == 2_345
    assert all(reply.text == key for key, reply in found.items())


def test_read_only_neither_makes_nor_writes(tmp_path):
    with pytest.raises(StoreError, match="no such file"):
        ReplyStore(tmp_path / "r", read_only=True)
    assert not (tmp_path / "r").exists()
    with ReplyStore(tmp_path / "r") as store:
        store.put_many([("a", "m", Reply(text="one"))])
    (tmp_path / "empty").touch()
    with pytest.raises(StoreError, match="not a reply store"):
        ReplyStore(tmp_path / "empty", read_only=True)
    with ReplyStore(tmp_path / "r", read_only=True) as store:
        assert store.get_many(["a"])["a"].text == "one"
        with pytest.raises(StoreError, match="readonly"):
            store.put_many([("b", "m", Reply(text="b"))])


def test_refuses_what_is_no_store_and_leaves_it_alone(tmp_path):
    (tmp_path / "text").write_text("hello " * 500)
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE replies(digest)")
    before = (tmp_path / "other").read_bytes()
    for name, why in (
        ("text", "not a database"),
        ("other", "something else"),
        (".", "unable to open"),
        ("text/r", "exists|directory"),
    ):
        with pytest.raises(StoreError, match=why) as caught:
            ReplyStore(tmp_path / name)
        assert str(tmp_path) in str(caught.value)
    assert (tmp_path / "other").read_bytes() == before


def test_a_new_file_is_opened_by_many_at_once(tmp_path):
    failures = []

    def opening(number):
        try:
            with ReplyStore(tmp_path / f"r{number}") as store:
                store.put_many([("a", "m", Reply(text="t"))])
        except StoreError as error:
            failures.append(error)

    for number in range(8):
        threads = [threading.Thread(target=opening, args=(number,)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def changed(path, *statements):
    with closing(sqlite3.connect(path)) as raw:
        for statement in statements:
            raw.execute(statement)
        raw.commit()


def test_a_reply_that_was_changed_is_named_and_may_be_taken_out(tmp_path):
    with ReplyStore(tmp_path / "r") as store:
        store.put_many([("a", "m", Reply(text="level 1")), ("b", "m", Reply(text="level 2"))])
    changed(tmp_path / "r", "UPDATE replies SET reply = replace(reply, '1', '2')")
    with ReplyStore(tmp_path / "r") as store:
        assert store.get_many(["b"])["b"].text == "level 2"
        with pytest.raises(
            StoreError, match=r"request a was changed .* DELETE FROM replies WHERE digest = 'a'"
        ) as caught:
            store.get_many(["a"])
        looked = store.look()
        assert (looked.rows, looked.unsealed, len(looked.problems)) == (2, 0, 1)
    changed(tmp_path / "r", str(caught.value).rpartition(": ")[2])
    with ReplyStore(tmp_path / "r") as store:
        assert set(store.get_many(["a", "b"])) == {"b"}
        assert store.look().problems == ()


@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_of_an_earlier_version_is_read(tmp_path, read_only):
    with ReplyStore(tmp_path / "r") as store:
        store.put_many([("a", "m", Reply(text="one"))])
    changed(tmp_path / "r", "ALTER TABLE replies DROP COLUMN seal")
    with ReplyStore(tmp_path / "r", read_only) as store:
        assert store.get_many(["a"])["a"].text == "one"
        assert store.look() == (1, 1, ())


@pytest.mark.parametrize("line", ["[1]", "null", "3", '{"text": "a", "error": "b"}', '{"words": 1}'])
def test_a_row_that_is_no_reply_is_named(tmp_path, line):
    with ReplyStore(tmp_path / "r") as store:
        store.put_many([("a", "m", Reply(text="one"))])
    changed(tmp_path / "r", f"UPDATE replies SET seal = NULL, reply = '{line}'")
    with ReplyStore(tmp_path / "r") as store:
        with pytest.raises(StoreError, match="cannot be used"):
            store.get_many(["a"])
        assert len(store.look().problems) == 1


@settings(max_examples=20)
@given(st.data())
def test_flipped_bytes_give_a_store_error_or_the_reply_or_none(data):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r"
        replies = {f"{n:064d}": Reply(text=f'{{"level": {n}}}' * n) for n in range(1, 30)}
        with ReplyStore(path) as store:
            store.put_many([(key, "m", reply) for key, reply in replies.items()])
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 40))):
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
        try:
            with ReplyStore(path) as store:
                said = "" if store.get_many(replies).items() <= replies.items() else "other replies"
                store.look()
        except StoreError as error:
            said = str(error)
        assert not said or str(path) in said
