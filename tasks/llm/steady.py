"""A backend whose passing failures cost a batch, not the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tasks.contracts.errors import StoppedError
from tasks.llm.backend import Around, Arriving, Backend, Passing
from tasks.llm.request import Reply, Request


class Steady(Around):
    """A backend that, once it gave up for a reason that may pass, answers everything else with the error 'outage'. What
    will not pass, such as a wrong key, raises as ever."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._outage: StoppedError | None = None

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields as the backend does, and then an error for all that it left open."""
        answers = iter(()) if self._outage else self._backend.answer(requests)
        return Passing.on(self._to_the_end(requests, answers), answers)

    def _to_the_end(self, requests: Sequence[Request], answers: Iterator[tuple[int, Reply]]) -> Arriving:
        missing = set(range(len(requests)))
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
