"""What a server takes within a minute, and when there is room for one more call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

MINUTE_S = 60.0
_TICK_S = 0.001


class MinuteLimits(NamedTuple):
    """What a server takes within a minute; None for as much as comes."""

    requests: int | None
    tokens: int | None

    def hold(self, requests: int, tokens: int, size: int) -> bool:
        """Whether a call of `size` tokens may follow so many requests, of so many tokens, in one minute. One that is
        larger than all of a minute's tokens has a minute of its own."""
        if requests == 0:
            return True
        few = self.requests is None or requests < self.requests
        return few and (self.tokens is None or tokens + size <= self.tokens)


NO_LIMITS = MinuteLimits(None, None)


def seconds_until_room(begun: Iterable[tuple[float, int]], size: int, limits: MinuteLimits, clock_s: float) -> float:
    """Seconds until a call of `size` tokens fits; 0 where it does. begun: when calls of the last minute began, in
    order, and their tokens."""
    calls = list(begun)
    requests, tokens = len(calls), sum(call[1] for call in calls)
    if limits.hold(requests, tokens, size):
        return 0.0
    for begun_s, gone in calls:
        requests, tokens = requests - 1, tokens - gone
        if limits.hold(requests, tokens, size):
            return max(begun_s + MINUTE_S - clock_s, _TICK_S)
    return 0.0
