"""The asking engine: waves, repair, sharing, order, and what survives a kill."""

from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import BackendError, StoppedError
from rubricflow.tasks.core.llm.ask import Checked, ask
from rubricflow.tasks.core.llm.backend import ReplyStream, Scripted, Steady
from rubricflow.tasks.core.llm.backends.replay import ForeignReplay
from rubricflow.tasks.core.llm.calls import Watched
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Message, Reply, Request, digest
from rubricflow.tasks.grading.judge.rater import Levelled


def asking(text, subject=None):
    return Request(messages=(Message("user", text),), role="grade", subject=subject or text)


def check(request, reply):
    """A reply is good if it is a number; a number above 9 comes with a violation."""
    if not reply.text.isdigit():
        return Checked(None, ("not_a_number",))
    return Checked(int(reply.text), ("too_large",) if int(reply.text) > 9 else ())


def mend(budget):
    def repair(request, history):
        if len(history) > budget:
            return None
        return asking(f"{request.subject} mend {len(history)}", request.subject)

    return repair


@pytest.fixture
def store():
    with ReplyStore(":memory:") as replies:
        yield replies


def test_answers_in_the_order_of_the_requests_whatever_comes_first(store):
    class Backwards(Scripted):
        def answer(self, requests):
            return iter(list(super().answer(requests))[::-1])

    backend = Backwards(lambda request: request.subject, batch_size=3)
    asked = ask([asking(str(i)) for i in range(8)], backend, store, check)
    assert [one.value for one in asked] == list(range(8))
    assert all(len(one.attempts) == 1 and not one.attempts[0].stored for one in asked)
    assert len(store) == 8


def test_identical_requests_are_asked_once_and_checked_each(store):
    backend = Scripted([Reply(text="7", prompt_tokens=10, completion_tokens=2)])
    waves = []
    asked = ask([asking("q", "a"), asking("q", "b"), asking("q", "a")], backend, store, check, on_wave=waves.append)
    assert [one.value for one in asked] == [7, 7, 7]
    assert [one.request.subject for one in asked] == ["a", "b", "a"]
    assert [one.attempts[0].stored for one in asked] == [False, True, True]
    assert backend.calls == 1
    assert (waves[0].asked, waves[0].prompt_tokens, waves[0].completion_tokens) == (1, 10, 2)


def test_a_backend_that_answers_by_subject_gives_twins_their_own_reply(store):
    backend = ForeignReplay({"a": "1", "b": "2"}, "judge", lambda raw, request: None)
    asked = ask([asking("same text", "a"), asking("same text", "b")], backend, store, check)
    assert [one.value for one in asked] == [1, 2]


def test_failures_form_smaller_waves_until_the_budget_is_spent(store):
    script = {"a": ["1"], "b": ["x", "2"], "c": ["x", "y", "3"], "d": ["x", "y", "z", "4"]}
    waves = []
    asked = ask([asking(name) for name in "abcd"], Scripted(script), store, check, mend(2), waves.append)
    assert [one.value for one in asked] == [1, 2, 3, None]
    assert [len(one.attempts) for one in asked] == [1, 2, 3, 3]
    assert [wave.asked for wave in waves] == [4, 3, 2]
    assert asked[3].request.messages[0].content == "d"
    assert [attempt.request.messages[0].content for attempt in asked[3].attempts] == ["d", "d mend 1", "d mend 2"]


def test_the_last_value_stays_when_a_repair_brings_none(store):
    asked = ask([asking("a")], Scripted(["10", "x"]), store, check, mend(1))[0]
    assert asked.value == 10
    assert [attempt.checked.violations for attempt in asked.attempts] == [("too_large",), ("not_a_number",)]


def test_a_value_without_violation_is_not_repaired(store):
    asked = ask([asking("a")], Scripted(["0"]), store, lambda request, reply: Checked(0, ()), mend(5))[0]
    assert (asked.value, len(asked.attempts)) == (0, 1)


def test_repeating_an_answered_question_ends_a_repair_and_an_unanswered_one_may_be_repeated(store):
    stubborn = Scripted(["x", "1"])
    assert len(ask([asking("a")], stubborn, store, check, lambda request, history: request)[0].attempts) == 1
    assert stubborn.calls == 1
    shaky = Scripted([Reply(error="timeout: slow"), "1"])
    asked = ask([asking("b")], shaky, store, check, lambda request, history: request)[0]
    assert [attempt.checked.violations for attempt in asked.attempts] == [("no_reply",), ()]
    assert asked.value == 1


def test_an_error_is_an_attempt_that_is_neither_checked_nor_kept(store):
    def never_called(request, reply):
        raise AssertionError

    asked = ask([asking("a")], Scripted([Reply(error="timeout: slow")]), store, never_called)[0]
    assert asked.value is None
    assert asked.attempts[0].reply.error == "timeout: slow"
    assert asked.attempts[0].checked == Checked(None, ("no_reply",))
    assert len(store) == 0


def test_a_missing_reply_is_an_error_of_its_request_alone(store):
    asked = ask([asking(str(i)) for i in range(3)], Scripted(["0", None, "2"]), store, check)
    assert [one.value for one in asked] == [0, None, 2]
    assert "the backend gave no reply" in asked[1].attempts[0].reply.error


def test_foreign_and_repeated_indices_are_dropped_and_counted(store):
    class Confused(Scripted):
        def answer(self, requests):
            yield from [(0, Reply(text="1")), (0, Reply(text="2")), (-1, Reply(text="3")), (9, Reply(text="4"))]

    asked = ask([asking("a"), asking("b")], Confused([]), store, check)
    assert [one.value for one in asked] == [1, None]
    assert "but 3 that belong to no open request" in asked[1].attempts[0].reply.error
    assert len(store) == 1


@pytest.mark.parametrize("fault", [BackendError("server gone"), KeyboardInterrupt()])
def test_a_fault_stops_the_run_and_loses_nothing(store, fault):
    requests = [asking(str(i)) for i in range(5)]
    with pytest.raises(type(fault)):
        ask(requests, Scripted(["0", "1", "2", fault], batch_size=2), store, check)
    assert len(store) == 3
    rest = Scripted(lambda request: request.subject)
    assert [one.value for one in ask(requests, rest, store, check)] == [0, 1, 2, 3, 4]
    assert [request.subject for request in rest.asked] == ["3", "4"]


@settings(max_examples=20)
@given(
    bursts=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    end=st.integers(0, 30),
    around=st.lists(st.sampled_from(["steady", "watched", "levelled"]), max_size=3),
)
def test_replies_that_came_together_are_kept_together_and_none_is_lost_when_it_ends(bursts, end, around):
    """Each burst is one commit, through whatever stands around the backend; what came before the end is kept."""
    count, commits = sum(bursts), []

    class Bursting(Scripted):
        def answer(self, requests):
            left = [burst - place for burst in bursts for place in range(1, burst + 1)]
            replies, given = super().answer(requests), []

            def arriving():
                for index, reply in replies:
                    if index == end:
                        raise StoppedError("gone", passing=False)
                    given.append(index)
                    yield index, reply

            return ReplyStream(arriving(), lambda: left[len(given) - 1])

    backend = Bursting(lambda request: request.subject, batch_size=100)
    wrappers = {"steady": Steady, "watched": lambda inner: Watched(inner, lambda *_: None), "levelled": Levelled}
    for name in around:
        backend = wrappers[name](backend)
    with ReplyStore(":memory:") as replies:
        put = replies.put_many
        replies.put_many = lambda lines: commits.append(len(lines)) or put(lines)
        with pytest.raises(BackendError) if end < count else nullcontext():
            ask([asking(str(number)) for number in range(count)], backend, replies, check)
        assert len(replies) == min(count, end)
    if end >= count:
        assert [size for size in commits if size] == bursts


def test_the_reply_that_another_run_kept_first_stands(store):
    request = asking("a")

    def meanwhile(_):
        store.put_many([(digest(request, "scripted"), "scripted", Reply(text="8"))])
        return "7"

    attempt = ask([request], Scripted(meanwhile), store, check)[0].attempts[0]
    assert (attempt.reply.text, attempt.checked.value) == ("8", 8)
