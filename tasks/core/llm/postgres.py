"""Replies in PostgreSQL, for workers on several machines."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg

from rubricflow.tasks.core.contracts.errors import StoreError, first_line
from rubricflow.tasks.core.llm.reply_store import Access, Replies, shown_place

T = TypeVar("T")
_PATIENCE_S = 300.0
"""For how long a database that is not there is waited for."""
_PAUSE_S = 0.2, 5.0
_KEEPALIVE = "keepalives_idle=10&keepalives_interval=5&keepalives_count=3&tcp_user_timeout=30000&connect_timeout=10"
"""A link that is cut says nothing: without these a write would wait for a quarter of an hour."""
_TURN = 0x52504C59
"""The lock under which claims are made and given back: a look at replies and claims sees both of one moment."""
_TABLES = (
    "CREATE TABLE IF NOT EXISTS replies"
    "(digest TEXT PRIMARY KEY, model TEXT NOT NULL, reply TEXT NOT NULL, seal TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS askers"
    "(asker TEXT PRIMARY KEY, host TEXT NOT NULL, process BIGINT NOT NULL,"
    " since DOUBLE PRECISION NOT NULL, seen DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE IF NOT EXISTS claims(digest TEXT PRIMARY KEY, asker TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS claims_asker ON claims(asker)",
)
_REFUSED = ("authentication failed", "does not exist", "no pg_hba.conf", "no password")
"""How a server says that it turned the connection down, so that waiting helps nothing."""
_logger = logging.getLogger(__name__)


def with_keepalive(url: str) -> str:
    """The address of a database, with what notices that a link is cut."""
    return f"{url}{'&' if '?' in url else '?'}{_KEEPALIVE}&application_name=rubricflow"


def patiently(act: Callable[[], T], is_away: Callable[[Exception], bool], shown: str) -> T:
    """What an act gives, tried again for some minutes where it fails because the database is away, unless the server
    turned the connection down. shown: its address as people may see it."""
    give_up = time.monotonic() + _PATIENCE_S
    pause = _PAUSE_S[0]
    while True:
        try:
            return act()
        except Exception as error:
            refused = any(words in str(error) for words in _REFUSED)
            if refused or not is_away(error) or time.monotonic() > give_up:
                raise
            if pause == _PAUSE_S[0]:
                why = first_line(error)
                _logger.warning("%s is away (%s): waiting for it, up to %.0f s", shown, why, _PATIENCE_S)
        time.sleep(pause)
        pause = min(2 * pause, _PAUSE_S[1])


class PostgresReplies(Replies):
    """The replies of a database, `postgresql://user@host/name`, for workers on several machines: durable when
    `put_many` returns. Times are the database's own, since machines' clocks differ.

    Where the connection is lost, or the database starts anew, it is waited for and what was under way is done again:
    every act can be done twice.
    """

    _mark, _now = "%s", "extract(epoch FROM clock_timestamp())::DOUBLE PRECISION"

    def __init__(self, url: str, read_only: bool = False) -> None:
        """Connects, and makes the tables unless `read_only`; StoreError where it cannot be used."""
        self._url, self._shown = url, shown_place(url)
        self._lock = threading.RLock()
        self._connection: psycopg.Connection | None = None
        if not read_only:  # one after the other: CREATE IF NOT EXISTS fails where two are at it
            self._do("claim", lambda cursor: [cursor.execute(statement) for statement in _TABLES])

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, OSError, ValueError, TypeError) as error:
            raise StoreError(f"{self._shown}: the replies cannot be used: {first_line(error)}") from error

    def _do(self, access: Access, act: Callable[[Any], T]) -> T:
        """Done again where the database went away meanwhile; StoreError where it stays away or refuses."""

        def once() -> T:
            connection = self._connected()
            with connection.transaction(), connection.cursor() as cursor:
                if access == "claim":
                    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_TURN])
                return act(cursor)

        with self._lock, self._named():
            return patiently(once, self._may_return, self._shown)

    def _may_return(self, error: Exception) -> bool:
        """Whether a failure is the connection's, or that of two who waited for each other: then to try again helps."""
        if isinstance(error, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure):
            return True
        lost = self._connection is None or self._connection.closed
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and bool(lost)

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = None
            self._connection = psycopg.connect(with_keepalive(self._url), autocommit=True)
        return self._connection
