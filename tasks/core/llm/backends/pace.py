"""How fast a server may be asked, in requests and tokens a minute, and which of its replicas is asked."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from rubricflow.tasks.core.llm.ledger import MINUTE_S, NO_LIMITS, MinuteLimits, seconds_until_room
from rubricflow.tasks.core.llm.request import Reply, Request

if TYPE_CHECKING:
    from rubricflow.tasks.core.llm.ledger import CallLedger

_REMEMBERED = 4096
_TOKENS_PER_CHARACTER = 1 / 3
"""Until a server has said how many a prompt had; rather too many than too few."""


class Prefixes:
    """Chooses replicas by number: the one that has read the beginning of the prompt before, while it has free slots.
    Every client that has the same list of replicas chooses alike, without asking."""

    def __init__(self, replicas: int, concurrency: int) -> None:
        """concurrency: calls of the whole run at once, over all replicas."""
        self._replicas = replicas
        self._slots = math.ceil(concurrency / replicas)
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
        first = min(ranked[:sharers], key=in_flight.__getitem__)
        return first if in_flight[first] < self._slots else min(ranked, key=in_flight.__getitem__)


@lru_cache(_REMEMBERED)
def _ranked(key: bytes, replicas: int) -> list[int]:
    """The replicas in the order in which a beginning prefers them: another order for every beginning, which the others
    keep where one is left aside (rendezvous hashing)."""
    return sorted(range(replicas), key=lambda number: hashlib.sha256(key + number.to_bytes(4)).digest())


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
        ledger: CallLedger | None = None,
        account: str = "",
    ) -> None:
        """ledger: where several processes count what each begins; account: whose limits these are there."""
        self._limits = MinuteLimits(requests, tokens)
        self.is_limited = self._limits != NO_LIMITS
        """Whether a request may have to wait."""
        self._clock, self._sleep, self._ledger, self._account = clock, sleep, ledger, account
        self._begun: deque[tuple[float, int]] = deque()
        self._characters = self._counted = 0

    async def admit(self, request: Request) -> None:
        """Returns when the request may begin."""
        rate = self._counted / self._characters if self._characters else _TOKENS_PER_CHARACTER
        size = round(request.prompt_length * rate) + request.sampling.longest
        while self.is_limited:
            if self._ledger is None:
                wait = self._seconds_left(size)
            else:
                wait = await asyncio.to_thread(self._ledger.admit, self._account, size, self._limits)
            if wait <= 0:
                return
            await self._sleep(wait)  # and looks again: others may have come first

    def learn(self, request: Request, reply: Reply) -> None:
        """Takes note of how many tokens the prompt had."""
        if reply.prompt_tokens is not None:
            self._characters += request.prompt_length
            self._counted += reply.prompt_tokens

    def _seconds_left(self, size: int) -> float:
        """Seconds until the request fits; where it does now, it is counted."""
        clock_s = self._clock()
        while self._begun and self._begun[0][0] <= clock_s - MINUTE_S:
            self._begun.popleft()
        wait = seconds_until_room(self._begun, size, self._limits, clock_s)
        if wait == 0:
            self._begun.append((clock_s, size))
        return wait
