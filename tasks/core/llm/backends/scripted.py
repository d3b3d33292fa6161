"""Plays given replies, faults included: for tests, and for trying out what a model's misbehaviour does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rubricflow.tasks.core.llm.backend import Answers, Backend, Turn
from rubricflow.tasks.core.llm.request import Reply, Request, overdue

# Answers without a model server: a function over the requests' plain data.


class Offline(Backend):
    """Backend around an answerer that a room passes in: `data` of a batch of requests → their replies, in order."""

    name = "offline"
    reads_prose = False

    def __init__(self, model: str, answer: Callable[[Sequence[Any]], Sequence[Reply]], batch_size: int = 256) -> None:
        """model: names the answerer and everything in it that can change a reply."""
        self.model, self.batch_size = model, batch_size
        self._answer, self._turn = answer, Turn()

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
            place, lines = request.subject, self._script.get(request.subject, ())
        else:
            place, lines = "", self._script
        with self._lock:
            used = self._used.get(place, 0)
            self._used[place] = used + 1
        return lines[used] if used < len(lines) else Reply(error="script_ended: the script holds no further reply")
