"""The interface of everything that answers requests, and wrappers that share it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import length_hint
from typing import Any, Protocol

from rubricflow.tasks.core.contracts.errors import StoppedError
from rubricflow.tasks.core.llm.request import Reply, Request

# Whose turn it is: what answers in this process is asked by one thread at a time.


class Turn:
    """A turn that threads take one after the other, and wait for no longer than their requests have time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def take(self, requests: Sequence[Request]) -> bool:
        """Waits for the turn; False where the time of the requests was over first."""
        # By index: to go through requests that a token budget pays for is to begin them.
        until = min(requests[index].until for index in range(len(requests)))
        return self._lock.acquire(timeout=min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX))

    def over(self) -> None:
        """Gives it to the next one."""
        self._lock.release()


Arriving = Generator[tuple[int, Reply], None, None]
"""(Index of the request, reply), as each arrives."""


class Backend(Protocol):
    """Answers requests. What goes wrong with one request is an error reply; what makes the backend useless as a whole
    raises `BackendError` and ends the run, with every reply given until then already kept."""

    @property
    def name(self) -> str:
        """Kind of backend: vllm, openai, scripted, replay, offline."""

    @property
    def model(self) -> str:
        """Identity of what answers; part of every digest, so it names all that can change a reply."""

    @property
    def batch_size(self) -> int:
        """How many requests it likes at once, ≥ 1."""

    @property
    def reads_prose(self) -> bool:
        """Whether it answers the messages, which then belong to the record, rather than the plain data."""

    @property
    def by_subject(self) -> bool:
        """Whether it answers by the subject's id rather than by the question: then the same question about two subjects
        is two calls, and the digest covers the subject."""

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields (index in `requests`, reply) as each arrives, in any order, each index once.

        By the time the next reply is waited for, the last one is on disk. An iterator may say how many more are there
        without waiting (`__length_hint__`, as that of a list does): those are kept together, and a process that is
        killed between two of them loses them. An asynchronous client runs its loop inside. Several threads may
        ask at once. A request whose time is over (`Request.until`) gets the error 'deadline' as far as the backend
        waits for others; one that computes in this process may finish what it has begun.
        """


class ReplyStream:
    """Replies on their way through something around a backend: it knows as much as the one inside of what is left."""

    def __init__(self, replies: Arriving, count_left: Callable[[], int]) -> None:
        """count_left: how many more are there at once, see `Backend.answer`."""
        self._replies, self._count_left = replies, count_left

    @classmethod
    def on(cls, replies: Arriving, inside: Iterator[tuple[int, Reply]]) -> ReplyStream:
        """Replies that are made, one of each, of those of the iterator inside."""
        return cls(replies, lambda: length_hint(inside))

    def __iter__(self) -> Iterator[tuple[int, Reply]]:
        return self

    def __next__(self) -> tuple[int, Reply]:
        return next(self._replies)

    def __length_hint__(self) -> int:
        return self._count_left()

    def close(self) -> None:
        """Gives up what is under way."""
        self._replies.close()


class BackendWrapper:
    """Wraps a backend; overrides `answer` only."""

    def __init__(self, backend: Backend) -> None:
        self.name, self.model, self.batch_size = backend.name, backend.model, backend.batch_size
        self.by_subject, self.reads_prose = backend.by_subject, backend.reads_prose
        self._backend = backend

    @property
    def absent(self) -> str | None:
        """The address of a server that is waited for; None where none is, or the backend knows of none."""
        return getattr(self._backend, "absent", None)

    def kept_open(self) -> AbstractContextManager[Any]:
        """See the function of this name."""
        return kept_open(self._backend)


def kept_open(backend: Backend) -> AbstractContextManager[Any]:
    """For as long as it lasts the backend keeps its connections between calls, where it has any."""
    keeping = getattr(backend, "kept_open", None)
    return nullcontext() if keeping is None else keeping()


# A backend whose passing failures cost a batch, not the run.


class Steady(BackendWrapper):
    """A backend that, once it gave up for a reason that may pass, answers everything else with the error 'outage'. What
    will not pass, such as a wrong key, raises as ever."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._outage: StoppedError | None = None

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields as the backend does, and then an error for all that it left open."""
        answers = iter(()) if self._outage else self._backend.answer(requests)
        missing = set(range(len(requests)))

        def complete() -> Arriving:
            try:
                for index, reply in answers:
                    missing.discard(index)
                    yield index, reply
            except StoppedError as error:
                if not error.passing:
                    raise
                self._outage = error
            if self._outage:
                for index in sorted(missing):
                    yield index, Reply(error=f"outage: {self._outage.reason}")

        return ReplyStream.on(complete(), answers)
