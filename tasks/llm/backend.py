"""The one interface behind which every answerer stands."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from operator import length_hint
from typing import Any, Protocol

from tasks.llm.request import Reply, Request

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


class Passing:
    """Replies on their way through something around a backend: it knows as much as the one inside of what is left."""

    def __init__(self, replies: Arriving, count_left: Callable[[], int]) -> None:
        """count_left: how many more are there at once, see `Backend.answer`."""
        self._replies, self._count_left = replies, count_left

    @classmethod
    def on(cls, replies: Arriving, inside: Iterator[tuple[int, Reply]]) -> Passing:
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


class Around:
    """What stands around a backend: it is that backend in all but how it answers."""

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
