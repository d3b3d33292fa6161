"""How fast a server may be asked: requests and tokens within a minute."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tasks.llm.minute import MINUTE_S, NO_LIMITS, MinuteLimits, seconds_until_room
from tasks.llm.request import Reply, Request

if TYPE_CHECKING:
    from tasks.llm.ledger import CallLedger

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
