"""The interface of everything that answers requests, wrappers that share it, and backends that answer by a function or
from a script, faults included: for tests, and for trying out what a model's misbehaviour does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import length_hint
from typing import Any, Protocol

from rubricflow.tasks.core.contracts.errors import StoppedError
from rubricflow.tasks.core.llm.request import Reply, Request, overdue


class TurnLock:
    """A turn that threads take one after the other, and wait for no longer than their requests have time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def taken(self, requests: Sequence[Request]) -> Iterator[bool]:
        """The turn, for as long as the context lasts; False where the time of the requests was over before."""
        # By index: to go through requests that a token budget pays for is to begin them.
        until = min(requests[index].until for index in range(len(requests)))
        is_mine = self._lock.acquire(timeout=min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX))
        try:
            yield is_mine
        finally:
            if is_mine:
                self._lock.release()


KeyOf = Callable[[str], str | None]
"""Name of a credential, see `Engine.key` → its value, None where there is none."""
Arriving = Generator[tuple[int, Reply], None, None]
"""(Index of the request, reply), as each arrives."""
Answers = Iterator[tuple[int, Reply]]
"""The same of any kind."""


class Backend(Protocol):
    """Answers requests. What goes wrong with one request is an error reply; what makes the backend useless as a whole
    raises `BackendError` and ends the run, with every reply given until then already kept."""

    name: str
    """Kind of backend: vllm, openai, scripted, replay, offline."""
    model: str
    """Identity of what answers; part of every digest, so it names all that can change a reply."""
    batch_size: int = 1024
    """How many requests it likes at once, ≥ 1."""
    reads_prose: bool = True
    """Whether it answers the messages, which then belong to the record, rather than the plain data."""
    by_subject: bool = False
    """Whether it answers by the subject's id rather than by the question: then the same question about two subjects is
    two calls, and the digest covers the subject."""

    def answer(self, requests: Sequence[Request]) -> Answers:
        """Yields (index in `requests`, reply) as each arrives, in any order, each index once.

        By the time the next reply is waited for, the last one is on disk. An iterator may say how many more are there
        without waiting (`__length_hint__`, as that of a list does): those are kept together, and a process that is
        killed between two of them loses them. An asynchronous client runs its loop inside. Several threads may
        ask at once. A request whose time is over (`Request.until`) gets the error 'deadline' as far as the backend
        waits for others; one that computes in this process may finish what it has begun.
        """


class ReplyStream:
    """Replies on their way: says how many more are there at once, see `Backend.answer`."""

    def __init__(self, replies: Arriving, count_left: Callable[[], int]) -> None:
        self._replies, self._count_left = replies, count_left

    def __iter__(self) -> Answers:
        return self

    def __next__(self) -> tuple[int, Reply]:
        return next(self._replies)

    def __length_hint__(self) -> int:
        return self._count_left()

    def close(self) -> None:
        """Gives up what is under way."""
        self._replies.close()


class BackendWrapper(Backend):
    """Wraps a backend; overrides `through`, which gives one reply for each of those inside."""

    def __init__(self, backend: Backend) -> None:
        self.name, self.model, self.batch_size = backend.name, backend.model, backend.batch_size
        self.by_subject, self.reads_prose = backend.by_subject, backend.reads_prose
        self._backend = backend

    @property
    def absent(self) -> str | None:
        """The address of a server that is waited for; None where none is, or the backend knows of none."""
        return getattr(self._backend, "absent", None)

    def answer(self, requests: Sequence[Request]) -> Answers:
        answers = self._backend.answer(requests)

        def arriving() -> Arriving:
            try:
                yield from self.through(requests, answers)
            finally:  # who stops waiting gives up what is under way inside, too
                getattr(answers, "close", lambda: None)()

        return ReplyStream(arriving(), lambda: length_hint(answers))

    def through(self, requests: Sequence[Request], answers: Answers) -> Arriving:
        yield from answers

    def kept_open(self) -> AbstractContextManager[Any]:
        return kept_open(self._backend)


def kept_open(backend: Backend) -> AbstractContextManager[Any]:
    """For as long as it lasts the backend keeps its connections between calls, where it has any."""
    keeping = getattr(backend, "kept_open", None)
    return nullcontext() if keeping is None else keeping()


class Steady(BackendWrapper):
    """A backend that, once it gave up for a reason that may pass, answers everything else with the error 'outage'. What
    will not pass, such as a wrong key, raises as ever."""

    _outage: StoppedError | None = None

    def through(self, requests: Sequence[Request], answers: Answers) -> Arriving:
        """Yields as the backend does, and then an error for all that it left open."""
        missing = set(range(len(requests)))
        try:
            for index, reply in iter(()) if self._outage else answers:
                missing.discard(index)
                yield index, reply
        except StoppedError as error:
            if not error.passing:
                raise
            self._outage = error
        if self._outage:
            for index in sorted(missing):
                yield index, Reply(error=f"outage: {self._outage.reason}")


# Answers without a model server: a function over the requests' plain data.


class Offline(Backend):
    """Backend around an answerer that a room passes in: `data` of a batch of requests → their replies, in order."""

    name = "offline"
    reads_prose = False

    def __init__(self, model: str, answer: Callable[[Sequence[Any]], Sequence[Reply]], batch_size: int = 256) -> None:
        """model: names the answerer and everything in it that can change a reply."""
        self.model, self.batch_size = model, batch_size
        self._answer, self._turn = answer, TurnLock()

    def answer(self, requests: Sequence[Request]) -> Answers:
        """Yields once the whole batch is answered, one thread's after the other's."""
        with self._turn.taken(requests) as is_mine:
            if not is_mine:
                return iter([(index, overdue()) for index in range(len(requests))])
            return iter([*enumerate(self._answer([request.data for request in requests]))])


Line = Reply | str | BaseException | None
"""A reply, its text, a fault to raise, or None for no reply at all."""
Script = Callable[[Request], Line] | Sequence[Line] | Mapping[str, Sequence[Line]]


class Scripted(Backend):
    """Backend that answers from a script: a function of the request, lines in the order asked, or lines per subject.

    Where the lines run out, the reply is the error 'script_ended'. `asked` lists the requests seen, in order.
    """

    name = "scripted"

    def __init__(self, script: Script, model: str = "scripted", batch_size: int = 64) -> None:
        self.model, self.batch_size = model, batch_size
        self.asked: list[Request] = []
        self._script = script
        self._used: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def calls(self) -> int:
        """Requests seen so far."""
        return len(self.asked)

    def answer(self, requests: Sequence[Request]) -> Answers:
        """Yields in order; raises the fault that the script holds for a request."""
        for index, request in enumerate(requests):
            line = self._line(request)
            if isinstance(line, BaseException):
                raise line
            if line is not None:
                yield index, Reply(text=line) if isinstance(line, str) else line

    def _line(self, request: Request) -> Line:
        with self._lock:
            self.asked.append(request)
        if callable(self._script):
            return self._script(request)
        if isinstance(self._script, Mapping):
            place = request.subject
            lines = self._script.get(request.subject, ())
        else:
            place, lines = "", self._script
        with self._lock:
            used = self._used.get(place, 0)
            self._used[place] = used + 1
        return lines[used] if used < len(lines) else Reply(error="script_ended: the script holds no further reply")
