"""How fast a server may be asked: in requests and tokens a minute, as the study and its answers say, and in calls at
once; and which of its replicas is asked. What providers say of their limits stands in headers of every answer, and in
an error that a quota is spent."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from rubricflow.tasks.core.llm.ledger import MINUTE_S, NO_LIMITS, MinuteLimits, seconds_until_room
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.text.digest import digest_bytes

if TYPE_CHECKING:
    from rubricflow.tasks.core.llm.ledger import CallLedger
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from zoneinfo import ZoneInfo

from rubricflow.tasks.core.llm.forms.form import LACKS_MONEY

_TOKENS_PER_CHARACTER = 1 / 3
"""Until a server has said how many a prompt had; rather too many than too few."""
_SHORTEST_S = 0.01


class Prefixes:
    """Chooses replicas by number: the one that has read the beginning of the prompt before, while it has free slots.
    Every client that has the same list of replicas chooses alike, without asking."""

    def __init__(self, replicas: int, concurrency: int) -> None:
        """concurrency: calls of the whole run at once, over all replicas."""
        self._replicas = range(replicas)
        self._slots = math.ceil(concurrency / replicas)
        """Calls that one replica gets of this client before the others are asked, too."""

    def choose(self, request: Request, in_flight: Sequence[int], able: Sequence[bool]) -> int:
        """The replica for a request. in_flight: calls that each has from here; able: which may be asked, at least one.

        Every beginning prefers the replicas in another order, which the others keep where one is left aside (rendezvous
        hashing).
        """
        if len(self._replicas) == 1:
            return 0
        key = digest_bytes(request.messages[0].content)
        numbers = [number for number in self._replicas if able[number]]
        ranked = sorted(numbers, key=lambda number: hashlib.sha256(key + number.to_bytes(4)).digest())
        return ranked[0] if in_flight[ranked[0]] < self._slots else min(ranked, key=in_flight.__getitem__)


class Level:
    """How many calls are made at once, as a semaphore whose size finds its own level: it is halved where a server has
    too many, and rises by one for as many answers as are made at once."""

    def __init__(self, most: int) -> None:
        """most: calls at once, with which it begins."""
        self._most = most
        self.size = float(most)
        self._used, self._halved_s = 0, -math.inf
        self._waiting: deque[asyncio.Future[None]] = deque()

    def allow(self, most: int) -> None:
        """So many may be made at once at most from now on."""
        if most != self._most:
            self.size = float(most) if self.size >= self._most else min(self.size, float(most))
            self._most = most
            self._fill()

    def locked(self) -> bool:
        """Whether a call has to wait."""
        return self._used >= int(self.size) or bool(self._waiting)

    async def acquire(self) -> None:
        """Returns when a call may be made."""
        if not self.locked():
            self._used += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.release()
            raise

    def release(self) -> None:
        self._used -= 1
        self._fill()

    def rise(self) -> None:
        """An answer came."""
        if self.size < self._most:
            self.size = min(float(self._most), self.size + 1 / self.size)
            self._fill()

    def halve(self, begun_s: float, clock_s: float) -> None:
        """A server had too many with a call that was begun then; those begun before the last halving say nothing."""
        if begun_s > self._halved_s:
            self.size, self._halved_s = max(1.0, self.size / 2), clock_s

    def _fill(self) -> None:
        while self._waiting and self._used < int(self.size):
            place = self._waiting.popleft()
            if not place.done():
                self._used += 1
                place.set_result(None)


class _Left(NamedTuple):
    """What is left of something, as a provider's last answer said: it fills up again evenly until it is full."""

    amount: float
    then_s: float
    """When so much was left."""
    rate: float
    """How much comes back a second."""
    full_s: float
    """When none of it is used; nothing is known from then on."""

    def at(self, clock_s: float) -> float:
        """How much is left then."""
        return self.amount + self.rate * (clock_s - self.then_s)

    def seconds_until(self, need: float, clock_s: float) -> float:
        """Seconds until there is as much."""
        lacking = need - self.at(clock_s)
        until_full = self.full_s - clock_s
        if lacking <= 0:
            return 0.0
        return min(lacking / self.rate, until_full) if self.rate > 0 else until_full


class Pace:
    """Lets requests begin so that no minute has more of them, or of their tokens, than allowed.

    A request counts the tokens of its prompt, estimated by what the server counted in earlier ones, and the longest
    reply to it. One that is larger than a minute's tokens waits for a minute of its own. What the server says is left
    is obeyed, too: there a request counts a reply of the usual length.
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
        self._clock, self._sleep = clock, sleep
        self._ledger, self._account = ledger, account
        self._begun: deque[tuple[float, int]] = deque()
        self._characters = self._counted = self._replied = self._replies = 0
        self._left: dict[str, _Left] = {}
        self._held_until = -math.inf

    def told(self, headers: Mapping[str, str]) -> None:
        """Takes note of what an answer says is left. It may not know yet of calls that were begun since: the lower
        count holds, but how fast it fills up is as the answer says."""
        clock_s = self._clock()
        for what, (left, most, reset_s) in allowances(headers):
            rate = max(0.0, most - left) / reset_s if most is not None and reset_s > 0 else 0.0
            mine = self._left[what].at(clock_s) if what in self._left else math.inf
            self._left[what] = _Left(min(mine, left), clock_s, rate, clock_s + reset_s)

    def hold(self, seconds: float) -> None:
        """Nothing is begun for so long."""
        self._held_until = max(self._held_until, self._clock() + seconds)

    async def admit(self, request: Request) -> None:
        """Returns when the request may begin."""
        if not self._left and self._limits == NO_LIMITS and self._held_until <= self._clock():
            return
        rate = self._counted / self._characters if self._characters else _TOKENS_PER_CHARACTER
        prompt = round(request.prompt_length * rate)
        longest = request.sampling.longest
        usual = min(longest, self._replied / self._replies) if self._replies else longest
        needs = {"requests": 1, "tokens": prompt + usual, "prompt": prompt, "reply": usual}
        while (wait := self._headroom(needs) or await self._minute(prompt + longest)) > 0:
            await self._sleep(wait)  # and looks again: others may have come first

    def learn(self, request: Request, reply: Reply) -> None:
        """Takes note of how many tokens prompt and reply had."""
        if reply.prompt_tokens is not None:
            self._characters += request.prompt_length
            self._counted += reply.prompt_tokens
        if reply.completion_tokens is not None:
            self._replied += reply.completion_tokens
            self._replies += 1

    def _headroom(self, needs: Mapping[str, float]) -> float:
        """Seconds until the provider has enough of all that it limits; where it has now, it is taken."""
        clock_s = self._clock()
        self._left = {what: left for what, left in self._left.items() if clock_s < left.full_s}
        waits = [left.seconds_until(needs[what], clock_s) for what, left in self._left.items()]
        if (wait := max(self._held_until - clock_s, *waits, 0.0)) > 0:
            return max(wait, _SHORTEST_S)
        for what, left in self._left.items():
            self._left[what] = left._replace(amount=left.amount - needs[what])
        return 0.0

    async def _minute(self, size: int) -> float:
        """Seconds until a request of so many tokens fits the study's limits; where it does now, it is counted."""
        if self._limits == NO_LIMITS:
            return 0.0
        if self._ledger is not None:
            return await asyncio.to_thread(self._ledger.admit, self._account, size, self._limits)
        clock_s = self._clock()
        while self._begun and self._begun[0][0] <= clock_s - MINUTE_S:
            self._begun.popleft()
        wait = seconds_until_room(self._begun, size, self._limits, clock_s)
        if wait == 0:
            self._begun.append((clock_s, size))
        return wait


LONGEST_WAIT_S = 900.0
"""A provider that asks to wait for longer has given what it gives for now."""
_HEADERS = {
    "requests": ("x-ratelimit-{}-requests", "anthropic-ratelimit-requests-{}"),
    "tokens": ("x-ratelimit-{}-tokens", "anthropic-ratelimit-tokens-{}"),
    "prompt": ("anthropic-ratelimit-input-tokens-{}",),
    "reply": ("anthropic-ratelimit-output-tokens-{}",),
}
"""What is limited → the names of headers, with a place for what they say of it."""
_NAMES = [
    (what, *(name.format(part) for part in ("remaining", "limit", "reset")))
    for what, names in _HEADERS.items()
    for name in names
]
_UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")
_AGAIN = re.compile(rf"(?:try again in|retry in|retryDelay\W+)\s*({_DURATION.pattern})", re.IGNORECASE)
_DAILY = re.compile(r"per[ _]?day\b|PerDay|\b[RT]PD\b|daily (?:limit|quota)", re.IGNORECASE)
_PACIFIC = ZoneInfo("America/Los_Angeles")
"""At whose midnight Google's quotas of a day begin anew."""


class Allowance(NamedTuple):
    """How much is left of what a provider limits."""

    left: float
    most: float | None
    """When none of it is used; None where it does not say."""
    reset_s: float
    """Seconds until then."""


def allowances(headers: Mapping[str, str]) -> Iterator[tuple[str, Allowance]]:
    """(What is limited: requests, tokens, prompt or reply; how much is left), as an answer's headers say; names in
    lower case."""
    for what, remaining, limit, reset in _NAMES:
        if (left := headers.get(remaining)) is not None:
            seconds = _seconds(headers.get(reset, ""))
            count = _number(left)
            most = _number(headers.get(limit, ""))
            if seconds is not None and count is not None and count >= 0:  # some say -1 of what they do not know
                yield what, Allowance(count, most if most and most > 0 else None, seconds)


def retry_after(headers: Mapping[str, str], said: str) -> float | None:
    """Seconds that a provider asks to wait, by its header or else in its words."""
    value = headers.get("retry-after", "").strip()
    if (milliseconds := _number(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1000
    if (seconds := _number(value)) is not None:
        return max(0.0, seconds)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        found = _AGAIN.search(said)
        return _seconds(found[1]) if found else None


class SpentQuota(NamedTuple):
    """A quota that is spent."""

    until: datetime | None
    """When to go on; None where time alone does not help, or nobody says."""

    @property
    def in_words(self) -> str:
        """The end of a sentence about it."""
        if self.until is None:
            return "the quota or the credit is spent; go on when there is more"
        return f"the quota is spent; go on after {self.until.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def spent_quota(
    said: str, wait: float | None, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> SpentQuota | None:
    """What an error with this body means for the run; None where it is over soon. wait: see `retry_after`."""
    if LACKS_MONEY.search(said):
        return SpentQuota(None)
    if "PerDay" in said:  # Google names the quota, and a delay that is none of a day
        tomorrow = clock().astimezone(_PACIFIC).date() + timedelta(days=1)
        return SpentQuota(datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=_PACIFIC))
    if wait is not None:
        return SpentQuota(clock() + timedelta(seconds=wait)) if wait > LONGEST_WAIT_S else None
    return SpentQuota(None) if _DAILY.search(said) else None


def _seconds(value: str) -> float | None:
    """A span as providers write it: 12, 1.5s, 6m0s, 12ms, or a time of the clock (RFC 3339)."""
    value = value.strip()
    if _DURATION.fullmatch(value):
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
    if (number := _number(value)) is not None:
        return max(0.0, number)
    try:
        return max(0.0, datetime.fromisoformat(value).timestamp() - time.time())
    except ValueError:
        return None


def _number(value: str) -> float | None:
    return float(value) if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value.strip()) else None
