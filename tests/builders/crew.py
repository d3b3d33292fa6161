"""Workers of a cluster in this process: they share nothing, and every piece travels pickled."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from rubricflow.tasks.core.monitor import shared_stage


class CrewHere:
    """Takes every piece by turns of its workers, in an order of its own."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, workers: int = 2, seed: int | None = None, dies_after: int | None = None
    ) -> None:
        self.pieces, self.sizes, self.slots = list[str](), list[int](), 4
        self._caches = [dict[bytes, Any]() for _ in range(workers)]
        self._order, self._left, self._patch = random.Random(seed), dies_after, monkeypatch
        self._shuffles = seed is not None
        monkeypatch.setattr(shared_stage, "on_engine", lambda placement, name, work: work(self))

    def each(
        self,
        task: Any,
        pieces: Iterator[tuple[str, Any]],
        workers: int,
        done: Callable[[str, Any], None],
        closed: Callable[[int], None],
    ) -> None:
        waiting, number = list(islice(pieces, workers)), 0
        while waiting:
            if number == self._left:
                raise KeyboardInterrupt
            name, arguments = waiting.pop(self._order.randrange(len(waiting)) if self._shuffles else 0)
            self.pieces.append(name)
            self.sizes.append(len(pickle.dumps(arguments)))
            self._patch.setattr(shared_stage, "KEPT", self._caches[number % len(self._caches)])
            done(name, pickle.loads(pickle.dumps(task.fn(*arguments, number % workers))))
            waiting += islice(pieces, 1)
            number += 1


def piece_arguments(stage: shared_stage.SharedStage, code: str, piece: shared_stage.Piece) -> tuple[bytes, str, bytes]:
    """What a worker gets of a command that has this code and asks no model."""
    terms = shared_stage.Terms(1, None, {}, code)
    return pickle.dumps((stage, terms)), piece.name, pickle.dumps(piece)
