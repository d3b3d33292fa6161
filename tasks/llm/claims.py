"""Who is asking for what: tables beside the replies, so that runs which ask the same at once pay for it once.

An asker is one batch on its way: it claims what it asks for, before it asks, and gives the claims back after. It holds
none while it waits for another's, so askers never wait for each other. The claims of an asker who is gone are free: its
process is (seen from the same machine), or it has not been heard of for a while.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple

BEAT_S = 5.0
"""How often an asker says that it lives."""
LEASE_S = 30.0
"""For how long it is believed: a process that is stopped for longer, or another machine's that is gone, loses its
claims."""
TABLES = (
    "CREATE TABLE IF NOT EXISTS askers"
    "(asker TEXT PRIMARY KEY, host TEXT NOT NULL, process INTEGER NOT NULL, since REAL NOT NULL, seen REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS claims(digest TEXT PRIMARY KEY, asker TEXT NOT NULL) WITHOUT ROWID",
)
_CLAIM = "INSERT OR IGNORE INTO claims SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM replies WHERE digest = ?1)"


class Asker(NamedTuple):
    """A batch of requests on its way."""

    name: str
    host: str
    process: int
    since: float
    """When it began, in seconds of the Unix epoch."""
    last_beat: float
    """When it last said that it lives."""

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since)
        return f"process {self.process} on {self.host.partition('/')[0]} (since {since:%X})"

    def lives(self, clock_s: float | None = None) -> bool:
        """Whether it may still bring replies. clock_s: the time by the clock of `last_beat`; this machine's if not
        given."""
        if (time.time() if clock_s is None else clock_s) - self.last_beat > LEASE_S:
            return False
        return self.host != host() or _runs(self.process)


def claim(connection: sqlite3.Connection, asker: str, digests: Iterable[str]) -> list[str]:
    """Claims, in the caller's transaction, the digests without a reply that nobody living has; those claimed."""
    for other in _askers(connection):
        if not other.lives():
            release(connection, other.name)
    mine = [digest for digest in digests if connection.execute(_CLAIM, (digest, asker)).rowcount]
    if mine:
        begun = time.time()
        connection.execute("INSERT INTO askers VALUES (?, ?, ?, ?, ?)", (asker, host(), os.getpid(), begun, begun))
    return mine


def release(connection: sqlite3.Connection, asker: str) -> None:
    """Gives an asker's claims back."""
    connection.execute("DELETE FROM claims WHERE asker = ?", (asker,))
    connection.execute("DELETE FROM askers WHERE asker = ?", (asker,))


def beat(connection: sqlite3.Connection, asker: str) -> None:
    """Says that an asker lives."""
    connection.execute("UPDATE askers SET seen = ? WHERE asker = ?", (time.time(), asker))


def holders(connection: sqlite3.Connection, digests: Iterable[str]) -> dict[str, Asker]:
    """Digest → who is asking for it; without those that nobody living asks for."""
    living = {asker.name: asker for asker in _askers(connection) if asker.lives()}
    name_of = dict(connection.execute("SELECT digest, asker FROM claims"))
    return {digest: living[name_of[digest]] for digest in digests if name_of.get(digest) in living}


def _askers(connection: sqlite3.Connection) -> Sequence[Asker]:
    return [Asker(*row) for row in connection.execute("SELECT asker, host, process, since, seen FROM askers")]


@cache
def host() -> str:
    """The machine and, where it has several, the space of its process ids: numbers mean the same in one alone."""
    space = Path("/proc/self/ns/pid")
    return f"{socket.gethostname()}/{os.readlink(space) if space.is_symlink() else ''}"


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True
