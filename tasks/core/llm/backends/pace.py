"""How fast a server may be asked: requests and tokens within a minute."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from rubricflow.tasks.core.llm.ledger import MINUTE_S, NO_LIMITS, MinuteLimits, seconds_until_room
from rubricflow.tasks.core.llm.request import Reply, Request

if TYPE_CHECKING:
    from rubricflow.tasks.core.llm.ledger import CallLedger


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


_TOKENS_PER_CHARACTER = 1 / 3
"""Until a server has said how many a prompt had; rather too many than too few."""


class Pace:
    """Lets requests begin so that no minute has more of them, or of their tokens, than allowed.

    A request counts the tokens of its prompt, estimated by what the server counted in earlier ones, and the longest
    reply to it. One that is larger than a minute's tokens waits for a minute of its own.
    """

    def __init__(
        self,
        requests: int | None,
        tokens: int | None,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._limits = MinuteLimits(requests, tokens)
        self._clock, self._sleep = clock, sleep
        self._begun: deque[tuple[float, int]] = deque()
        self._characters = self._counted = 0

    @property
    def is_limited(self) -> bool:
        """Whether a request may have to wait."""
        return self._limits != NO_LIMITS

    async def admit(self, request: Request) -> None:
        """Returns when the request may begin."""
        if not self.is_limited:
            return
        while (wait := await self._seconds_until_admitted(self._size(request))) > 0:
            await self._sleep(wait)

    async def _seconds_until_admitted(self, size: int) -> float:
        """See `_wait`: the request is counted where that is 0."""
        return self._wait(size)

    def learn(self, request: Request, reply: Reply) -> None:
        """Takes note of how many tokens the prompt had."""
        if reply.prompt_tokens is not None:
            self._characters += _length(request)
            self._counted += reply.prompt_tokens

    def _wait(self, size: int) -> float:
        """Seconds until the request fits; it is looked at again then, as others may have come first."""
        clock_s = self._clock()
        while self._begun and self._begun[0][0] <= clock_s - MINUTE_S:
            self._begun.popleft()
        wait = seconds_until_room(self._begun, size, self._limits, clock_s)
        if wait == 0:
            self._begun.append((clock_s, size))
        return wait

    def _size(self, request: Request) -> int:
        rate = self._counted / self._characters if self._characters else _TOKENS_PER_CHARACTER
        return round(_length(request) * rate) + request.sampling.longest


def _length(request: Request) -> int:
    return sum(len(message.content) for message in request.messages)


class SharedPace(Pace):
    """The same for several processes: what each begins is counted in one ledger."""

    def __init__(
        self, limits: MinuteLimits, ledger: CallLedger, account: str, sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        """account: whose limits these are."""
        super().__init__(limits.requests, limits.tokens, time.monotonic, sleep)
        self._ledger, self._account = ledger, account

    async def _seconds_until_admitted(self, size: int) -> float:
        return await asyncio.to_thread(self._ledger.admit, self._account, size, self._limits)


# Which replica of a server is asked: the one that has read the beginning of the prompt before, while it has room.


@lru_cache(_REMEMBERED)
def _ranked(key: bytes, replicas: int) -> tuple[int, ...]:
    """The replicas in the order in which a beginning prefers them: another order for every beginning, which the others
    keep where one is left aside (rendezvous hashing)."""
    weights = [hashlib.sha256(key + number.to_bytes(4)).digest() for number in range(replicas)]
    return tuple(sorted(range(replicas), key=lambda number: weights[number]))
