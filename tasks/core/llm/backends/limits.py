"""What providers say of their limits: how much is left, in headers of every answer, and that a quota is spent, in an
error."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from rubricflow.tasks.core.llm.error_body import LACKS_MONEY

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
            seconds, count, most = _seconds(headers.get(reset, "")), _number(left), _number(headers.get(limit, ""))
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
