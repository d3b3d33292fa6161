"""Answers without a model server: a function over the requests' plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tasks.llm.request import Reply, Request, overdue
from tasks.llm.turn import Turn


class Offline:
    """Backend around an answerer that a room passes in: `data` of a batch of requests → their replies, in order."""

    name = "offline"
    reads_prose = False
    by_subject = False

    def __init__(self, model: str, answer: Callable[[Sequence[Any]], Sequence[Reply]], batch_size: int = 256) -> None:
        """model: names the answerer and everything in it that can change a reply."""
        self.model, self.batch_size = model, batch_size
        self._answer, self._turn = answer, Turn()

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields once the whole batch is answered, one thread's after the other's."""
        if not self._turn.take(requests):
            return iter([(index, overdue()) for index in range(len(requests))])
        try:
            return iter([*enumerate(self._answer([request.data for request in requests]))])
        finally:
            self._turn.over()
