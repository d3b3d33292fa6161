"""The one interface behind which every answerer stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from tasks.llm.request import Reply, Request


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

        By the time the next reply is waited for, the last one is on disk. An iterator over replies that are all made
        may say how many are left (`__length_hint__`, as that of a list does): those are kept together, and a process
        that is killed between two of them loses them. An asynchronous client runs its loop inside. Several threads may
        ask at once. A request whose time is over (`Request.until`) gets the error 'deadline' as far as the backend
        waits for others; one that computes in this process may finish what it has begun.
        """


class Around:
    """What stands around a backend: it is that backend in all but how it answers."""

    def __init__(self, backend: Backend) -> None:
        self.name, self.model, self.batch_size = backend.name, backend.model, backend.batch_size
        self.by_subject, self.reads_prose = backend.by_subject, backend.reads_prose
        self._backend = backend

    def kept_open(self) -> AbstractContextManager[Any]:
        """See the function of this name."""
        return kept_open(self._backend)


def kept_open(backend: Backend) -> AbstractContextManager[Any]:
    """For as long as it lasts the backend keeps its connections between calls, where it has any."""
    keeping = getattr(backend, "kept_open", None)
    return nullcontext() if keeping is None else keeping()
