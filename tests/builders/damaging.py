"""A backend whose replies arrive damaged."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.request import Reply, Request, digest
from rubricflow.tasks.grading.judge.simulated import damaged


class Damaging:
    """A backend whose replies arrive damaged: a share of them, each in one of some ways, the same at every run."""

    def __init__(self, inner: Backend, ways: Sequence[str], share: float = 1.0, seed: int = 0) -> None:
        """share: of the replies, in [0, 1]; ways: keys of WAYS."""
        self._inner, self._ways, self._share, self._seed = inner, tuple(ways), share, seed
        self.name = inner.name
        self.model = f"{inner.model}+damaged:{'+'.join(ways)}:{share:g}:{seed}"
        self.batch_size, self.reads_prose, self.by_subject = inner.batch_size, inner.reads_prose, inner.by_subject

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields as the inner backend does."""
        for index, reply in self._inner.answer(requests):
            luck = random.Random(f"{self._seed}:{digest(requests[index], self.model, self.by_subject)}")
            if reply.text is not None and luck.random() < self._share:
                reply = replace(reply, text=damaged(reply.text, luck.choice(self._ways), luck))
            yield index, reply
