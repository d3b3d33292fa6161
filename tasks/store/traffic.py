"""How many requests this process has sent to object stores. What a client tries again by itself is not counted."""

from __future__ import annotations

import threading
from typing import NamedTuple


class Requests(NamedTuple):
    """Requests by what they ask."""

    reads: int = 0
    writes: int = 0
    listings: int = 0
    """Pages of listings: a store gives 1,000 names a page."""

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self)

    def since(self, earlier: Requests) -> Requests:
        """Those that were sent after an earlier count."""
        return Requests(*(count - before for count, before in zip(self, earlier, strict=True)))

    def __str__(self) -> str:
        listings = f"{self.listings:,} listing{'' if self.listings == 1 else 's'}"
        return f"{self.total:,} requests to the store ({self.reads:,} to read, {self.writes:,} to write, {listings})"


_lock = threading.Lock()
_sent = Requests()


def count_requests(reads: int = 0, writes: int = 0, listings: int = 0) -> None:
    """Adds requests to those of this process."""
    global _sent
    with _lock:
        _sent = Requests(_sent.reads + reads, _sent.writes + writes, _sent.listings + listings)


def requests_sent() -> Requests:
    """The requests of this process until now."""
    return _sent
