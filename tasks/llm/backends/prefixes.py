"""Which replica of a server is asked: the one that has read the beginning of the prompt before, while it has room.

A prompt begins with what all responses of an item share, and a server keeps what it has read of it: asked elsewhere,
every replica reads every item's rubric anew.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache

from tasks.llm.request import Request

_REMEMBERED = 4096


class Prefixes:
    """Chooses replicas by number. Every client that has the same list of replicas chooses alike, without asking."""

    def __init__(self, replicas: int, concurrency: int) -> None:
        """concurrency: calls of the whole run at once, over all replicas."""
        self._replicas = replicas
        self._room = math.ceil(concurrency / replicas)
        """Calls that one replica gets of this client before the others are asked, too."""
        self._seen: set[bytes] = set()

    def choose(self, request: Request, in_flight: Sequence[int], able: Sequence[bool]) -> int:
        """The replica for a request. in_flight: calls that each has from here; able: which may be asked, at least one.

        A client that has met fewer beginnings than there are replicas lets several replicas share one.
        """
        if self._replicas == 1:
            return 0
        key = hashlib.sha256(request.messages[0].content.encode("utf-8", "surrogatepass")).digest()
        if len(self._seen) < _REMEMBERED:
            self._seen.add(key)
        ranked = [number for number in _ranked(key, self._replicas) if able[number]]
        sharers = math.ceil(self._replicas / len(self._seen))
        first = min(ranked[:sharers], key=lambda number: in_flight[number])
        if in_flight[first] < self._room:
            return first
        return min(ranked, key=lambda number: in_flight[number])


@lru_cache(_REMEMBERED)
def _ranked(key: bytes, replicas: int) -> tuple[int, ...]:
    """The replicas in the order in which a beginning prefers them: another order for every beginning, which the others
    keep where one is left aside (rendezvous hashing)."""
    weights = [hashlib.sha256(key + number.to_bytes(4)).digest() for number in range(replicas)]
    return tuple(sorted(range(replicas), key=lambda number: weights[number]))
