"""What a run says while it judges, and that saying it changes nothing."""

import re
import threading
from dataclasses import replace
from operator import length_hint

import pytest
from builders.bundles import bundle, criterion
from builders.cases import case
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.llm.ask import Wave
from rubricflow.tasks.core.llm.backends.scripted import Offline, Scripted
from rubricflow.tasks.core.llm.calls import EVERY_S, WAITING_S, LoggingBackend
from rubricflow.tasks.core.llm.reply_store import ReplyStore, looking
from rubricflow.tasks.core.llm.request import Message, Reply, Request
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.progress import Progress
from rubricflow.tasks.grading.judge.rows import Rater

REQUESTS = [Request(messages=(Message("user", str(n)),), role="grade", subject=str(n)) for n in range(3)]
GOOD = '{"rationale": "so", "score": 2}'


class Clock:
    """Seconds that go by when they are told to."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Said:
    """A progress on a fake clock, with what it said."""

    def __init__(self, total):
        self.clock, self.lines, self.shares = Clock(), [], []
        self.progress = Progress(total, self.say, self.clock)

    def say(self, line, share):
        self.lines.append((self.clock.now - 1000.0, line))
        self.shares.append(share)

    def looks(self, seconds):
        """A second after the other goes by, and is looked at."""
        for _ in range(seconds):
            self.clock.now += 1
            self.progress.look()


class Slow:
    """A backend that takes its time on the fake clock, and is looked at meanwhile: `first` seconds until the first
    reply of a wave, `each` for every other."""

    name, model, batch_size, by_subject, reads_prose = "scripted", "slow", 64, False, True

    def __init__(self, told, first, each, text=GOOD):
        self._told, self._first, self._each, self._text = told, first, each, text

    def answer(self, requests):
        for index, request in enumerate(requests):
            self._told.looks(self._each if index else self._first)
            text = self._text(request) if callable(self._text) else self._text
            yield index, Reply(text=text, prompt_tokens=100, completion_tokens=10)


def watched(backend):
    return Progress(3, lambda line, share: None).watch(Rater("r", "llm", backend)).backend


def cases(count, protocol="dhs", **changes):
    score = {"dhs": "judged"}.get(protocol, "weighted_points")
    of = bundle(criterion("P1"), criterion("P2"), **{"name": protocol, "final_score": score} | changes)
    return [case(of, f"Heat makes it rise number {n}.", f"r{n:03d}") for n in range(count)]


def graded(told, some, backend):
    with ReplyStore(":memory:") as replies:
        who = told.progress.watch(Rater("m", "llm", backend))
        told.progress.graded(grade_batch(some, who, replies, told.progress.wave, told.progress.opened))


def seconds_left(line):
    number, unit = re.search(r"([\d.]+) (s|min|h) left", line).groups()
    return float(number) * {"s": 1, "min": 60, "h": 3600}[unit]


def test_a_watched_backend_gives_the_same_replies():
    backend = Scripted(lambda request: request.subject)
    assert list(watched(backend).answer(REQUESTS)) == [(n, Reply(text=str(n))) for n in range(3)]


def test_a_watched_backend_knows_how_many_replies_are_there():
    at_once = watched(Offline("m", lambda data: [Reply(text="1") for _ in data])).answer(REQUESTS)
    left = [length_hint(at_once) for _ in at_once]
    assert left == [2, 1, 0]
    one_by_one = watched(Scripted(["1", "2", "3"])).answer(REQUESTS)
    assert [length_hint(one_by_one) for _ in one_by_one] == [0, 0, 0]


def test_prompts_that_are_still_read_are_told_within_ten_seconds():
    told = Said(8)
    graded(told, cases(8), Slow(told, first=45, each=1))
    waits = [(at, line) for at, line in told.lines if "waiting" in line]
    assert waits[0] == (WAITING_S, "judge: 0/8 responses, waiting for the first of 8 replies, 10 s")
    assert [at for at, _ in waits] == [10, 20, 30, 40]


def test_replies_inside_a_shard_are_counted_as_they_come():
    told = Said(40)
    graded(told, cases(40), Slow(told, first=4, each=4))
    assert "0/40 responses, 1 more answered, 1 calls, 0.2 calls/s, 2 reply tokens/s" in told.lines[0][1]
    answered = [int(n) for _, line in told.lines for n in re.findall(r"(\d+) more answered", line)]
    assert answered == sorted(answered)
    assert len(answered) > 25
    gaps = [later - earlier for (earlier, _), (later, _) in zip(told.lines, told.lines[1:], strict=False)]
    assert min(gaps) >= EVERY_S
    assert max(gaps) <= WAITING_S
    assert told.shares == sorted(told.shares)
    assert told.shares[0] < 0.1
    assert 0.9 < told.shares[-1] <= 1


@settings(max_examples=25)
@given(first=st.integers(20, 90), count=st.integers(40, 60))
def test_prompts_that_are_read_together_are_no_pace(first, count):
    told = Said(count)
    graded(told, cases(count), Slow(told, first=first, each=1))
    end = told.clock.now - 1000.0
    left = [(at, line) for at, line in told.lines if "left" in line]
    assert len(left) >= count // 5 - 2
    assert all(abs(at + seconds_left(line) - end) <= 3 for at, line in left)


@settings(max_examples=25)
@given(count=st.integers(20, 60), each=st.integers(1, 9), shards=st.integers(1, 3))
def test_the_time_left_is_what_it_then_takes(count, each, shards):
    told = Said(count * shards)
    some = cases(count * shards)
    for shard in range(shards):
        graded(told, some[shard * count : (shard + 1) * count], Slow(told, first=each, each=each))
    end = told.clock.now - 1000.0
    for at, line in told.lines:
        if "left" in line:
            assert abs(at + seconds_left(line) - end) <= 0.05 * end + 2 * each + 31  # minutes are rounded


def test_repairs_of_shards_before_are_reckoned_with():
    told = Said(40)
    bad_once = Slow(told, 2, 2, lambda r: "no" if r.role == "grade" else GOOD)
    some = cases(40, repair={"contract": 1, "semantic": 0})
    graded(told, some[:20], bad_once)
    first = [line for _, line in told.lines]
    assert all("at least" in line for line in first if "left" in line and line != first[-1])
    begun = len(told.lines)
    graded(told, some[20:], bad_once)
    end = told.clock.now - 1000.0
    second = told.lines[begun:]
    assert all("about" in line for _, line in second if "left" in line)
    assert all(abs(at + seconds_left(line) - end) < 40 for at, line in second if "left" in line)
    told.progress.end()
    assert "40/40 responses" in told.lines[-1][1]
    assert "40 of 40 repairs" in told.lines[-1][1]
    assert told.shares[-1] == 1


def test_calls_of_many_parts_are_answered_together():
    told = Said(4)
    graded(told, cases(4, "pointwise"), Slow(told, 3, 3, "{}"))
    assert not any("more answered" in line for at, line in told.lines if at <= 3)


def test_stored_replies_are_no_calls_to_come():
    told, some = Said(30), cases(30)
    with ReplyStore(":memory:") as replies:
        grade_batch(some[:20], Rater("m", "llm", Slow(Said(1), 0, 0)), replies)
        who = told.progress.watch(Rater("m", "llm", Slow(told, 10, 10)))
        grade_batch(some, who, replies, told.progress.wave, told.progress.opened)
    assert told.lines[0] == (10, "judge: 0/30 responses, waiting for the first of 10 replies, 10 s")
    assert all(abs(at + seconds_left(line) - 100) <= 20 for at, line in told.lines if "left" in line)


def test_repetitions_are_told_apart():
    told, some = Said(10), cases(5)
    with ReplyStore(":memory:") as replies:
        for seed in (1, 2):
            who = told.progress.watch(Rater("m", "llm", Slow(told, 5, 5), sampling=Sampling(seed=seed)))
            grade_batch(some, who, replies, told.progress.wave, told.progress.opened)
    assert "9 more answered" in told.lines[-1][1]


def test_no_line_says_the_same_twice_and_the_end_is_said():
    told = Said(0)
    told.progress.end()
    told.progress.end()
    assert len(told.lines) == 1
    assert told.shares == [1.0]
    told.progress.wave(Wave(0, 0, 0, 0, 0))


class Away(Slow):
    """Its server is not there before the first reply, or after some."""

    def __init__(self, told, absent_from, first, each):
        super().__init__(told, first=first, each=each)
        self._clock, self._from = told.clock, absent_from

    @property
    def absent(self):
        return "http://judge:8000/v1" if self._clock() >= self._from else None


def test_a_server_that_is_waited_for_is_named():
    told = Said(8)
    graded(told, cases(8), Away(told, absent_from=0, first=45, each=1))
    assert told.lines[0] == (10, "judge: 0/8 responses, waiting for the server at http://judge:8000/v1, 10 s")


def test_a_server_that_goes_away_is_named_with_the_time_since_the_last_reply():
    told = Said(8)
    graded(told, cases(8), Away(told, absent_from=12, first=4, each=12))
    waits = [line for _, line in told.lines if "waiting for the server at http://judge:8000/v1" in line]
    assert waits
    assert max(int(line.split("/v1, ")[1].split(" s")[0]) for line in waits) < 13


def test_a_thread_looks_while_nobody_tells():
    looked = threading.Event()
    with looking(looked.set, every=0.01):
        assert looked.wait(5)
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_who_has_no_more_to_tell_says_how_its_calls_come_along():
    said, lines = Said(0), []
    slow = Slow(said, first=30, each=7)
    told = LoggingBackend(slow, lambda line: lines.append(line), said.clock)
    said.progress.look = told.look
    assert [reply.text for _, reply in told.answer(REQUESTS * 2)] == [GOOD] * 6
    assert lines[:3] == [f"waiting for the first of 6 replies, {n} s" for n in (10, 20, 30)]
    assert lines[-1].startswith("1 calls open, 5 answered, 0.0")
    said.looks(100)
    assert len(lines) == 3 + 7


def test_an_error_inside_ends_the_looking():
    with pytest.raises(ZeroDivisionError), looking(lambda: None, every=0.01):
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if thread.name == "progress"]


def test_watching_leaves_the_rater_as_it_is():
    backend = Scripted([])
    who = Rater("m", "llm", backend, mender=backend)
    seen = Progress(1, lambda line, share: None).watch(who)
    assert replace(seen, backend=backend, mender=backend) == who
    assert seen.backend.model == backend.model
    assert seen.mender is not None
