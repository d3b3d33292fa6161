"""How fast a server may be asked: requests and tokens within a minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from tasks.llm.request import Reply, Request

_MINUTE_S = 60.0
_TICK_S = 0.001
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
        self._requests, self._tokens = requests, tokens
        self._clock, self._sleep = clock, sleep
        self._begun: deque[tuple[float, int]] = deque()
        self._characters = self._counted = 0

    async def admit(self, request: Request) -> None:
        """Returns when the request may begin."""
        if self._requests is None and self._tokens is None:
            return
        while (wait := self._wait(self._size(request))) > 0:
            await self._sleep(wait)
        self._begun.append((self._clock(), self._size(request)))

    def learn(self, request: Request, reply: Reply) -> None:
        """Takes note of how many tokens the prompt had."""
        if reply.prompt_tokens is not None:
            self._characters += _length(request)
            self._counted += reply.prompt_tokens

    def _wait(self, size: int) -> float:
        """Seconds until the request fits; it is looked at again then, as others may have come first."""
        now = self._clock()
        while self._begun and self._begun[0][0] <= now - _MINUTE_S:
            self._begun.popleft()
        count, tokens = len(self._begun), sum(size for _, size in self._begun)
        if self._fits(count, tokens + size):
            return 0.0
        for begun, gone in self._begun:
            count, tokens = count - 1, tokens - gone
            if self._fits(count, tokens + size):
                return max(begun + _MINUTE_S - now, _TICK_S)
        return 0.0

    def _fits(self, before: int, tokens: int) -> bool:
        """Whether a request may follow so many others in a minute, with so many tokens together."""
        few = self._requests is None or before < self._requests
        return before == 0 or (few and (self._tokens is None or tokens <= self._tokens))

    def _size(self, request: Request) -> int:
        rate = self._counted / self._characters if self._characters else _TOKENS_PER_CHARACTER
        return round(_length(request) * rate) + request.sampling.longest


def _length(request: Request) -> int:
    return sum(len(message.content) for message in request.messages)
