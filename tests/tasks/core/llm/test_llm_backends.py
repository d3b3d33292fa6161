"""The backends that need no server."""

import pytest

from rubricflow.tasks.core.llm.backend import Backend, Scripted
from rubricflow.tasks.core.llm.backends.replay import AskedByWorkers, ForeignReplay, Replay, UnansweredError
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Message, Reply, Request, digest


def asking(subject, text="q", data=None):
    return Request(messages=(Message("user", text),), role="grade", subject=subject, data=data)


def test_scripted_plays_a_sequence_faults_included():
    backend: Backend = Scripted(["a", Reply(error="timeout: slow"), None, "b"])
    given = list(backend.answer([asking(str(i)) for i in range(5)]))
    assert [index for index, _ in given] == [0, 1, 3, 4]
    assert [reply.text for _, reply in given] == ["a", None, "b", None]
    assert given[-1][1].error.startswith("script_ended")
    assert backend.calls == 5


def test_scripted_plays_by_subject_and_by_function():
    by_subject = Scripted({"x": ["x1", "x2"]})
    replies = [reply for _, reply in by_subject.answer([asking("x"), asking("y"), asking("x")])]
    assert [reply.text for reply in replies] == ["x1", None, "x2"]
    by_function = Scripted(lambda request: request.subject.upper())
    assert [reply.text for _, reply in by_function.answer([asking("x")])] == ["X"]


def test_replay_answers_from_the_store_and_else_says_so():
    with ReplyStore(":memory:") as store:
        store.put_many([(digest(asking("a"), "m"), "m", Reply(text="kept"))])
        backend: Backend = Replay(store, "m")
        known, unknown = (reply for _, reply in backend.answer([asking("other subject"), asking("a", "other")]))
    assert known.text == "kept"
    assert unknown.error.startswith("not_recorded: ")


def test_what_failed_for_workers_fails_in_the_same_words_and_anything_else_is_no_error_reply():
    backend: Backend = AskedByWorkers("m", {digest(asking("a"), "m"): "down: no"}, "replies.sqlite")
    ((_, failed),) = backend.answer([asking("a")])
    assert failed.error == "down: no"
    with pytest.raises(UnansweredError, match=r"replies in replies\.sqlite are not all there"):
        list(backend.answer([asking("a"), asking("b", "other")]))


def test_foreign_replay_reads_leaves_and_misses():
    table = {"a": "Score: 3", "b": "??"}
    backend: Backend = ForeignReplay(table, "judge", lambda raw, request: f"{request.subject}3" if "3" in raw else None)
    read, unread, missing = (reply for _, reply in backend.answer([asking("a"), asking("b"), asking("c")]))
    assert (read.text, unread.text) == ("a3", "??")
    assert missing.error.startswith("not_recorded: ")
    assert "'c'" in missing.error
