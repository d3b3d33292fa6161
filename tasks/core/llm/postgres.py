"""Replies in PostgreSQL, for workers on several machines: durable when `put_many` returns, and what arrived is not
asked for again.

Where the connection is lost, or the database starts anew, it is waited for and what was under way is done again: every
act can be done twice. Times are the database's own, since machines' clocks differ.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rubricflow.tasks.core.contracts.errors import StoreError, first_line
from rubricflow.tasks.core.llm.reply_store import Asker, Line, Replies, host, shown_place

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")
_PATIENCE_S = 300.0
"""For how long a database that is not there is waited for."""
_PAUSE_S = 0.2, 5.0
_ALIVE = "keepalives_idle=10&keepalives_interval=5&keepalives_count=3&tcp_user_timeout=30000&connect_timeout=10"
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
_NOW = "extract(epoch FROM clock_timestamp())::DOUBLE PRECISION"
_CLAIM = """
INSERT INTO claims SELECT wanted.digest, %(asker)s FROM unnest(%(digests)s::TEXT[]) AS wanted(digest)
WHERE NOT EXISTS (SELECT 1 FROM replies WHERE replies.digest = wanted.digest) ON CONFLICT DO NOTHING"""
_HOLDERS = f"""
SELECT digest, asker, host, process, since, seen, {_NOW} FROM claims JOIN askers USING (asker)
WHERE digest = ANY(%s)"""
_logger = logging.getLogger(__name__)


class PostgresReplies(Replies):
    """The replies of a database, `postgresql://user@host/name`."""

    def __init__(self, url: str, read_only: bool = False) -> None:
        """Connects, and makes the tables unless `read_only`; StoreError where it cannot be used."""
        self._url, self._shown = url, shown_place(url)
        self._lock = threading.RLock()
        self._connection: psycopg.Connection | None = None
        if not read_only:
            self._do(_make)

    def close(self) -> None:
        """Gives the connection back; closing twice is harmless."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def __len__(self) -> int:
        rows = self._do(lambda connection: connection.execute("SELECT count(*) FROM replies").fetchall())
        return int(rows[0][0])

    def _lines(self, digests: Sequence[str]) -> Sequence[Line]:
        query = "SELECT digest, model, reply, seal FROM replies WHERE digest = ANY(%s)"
        return self._do(lambda connection: connection.execute(query, [list(digests)]).fetchall())

    def _all(self) -> Iterator[Line]:
        with self._lock, self._named(), self._connected().transaction():
            cursor = self._connected().cursor("all_replies")  # one that the server keeps: rows come in parts
            yield from cursor.execute("SELECT digest, model, reply, seal FROM replies")

    def _broken(self) -> list[str]:
        return []

    def _keep(self, lines: Sequence[Line]) -> int:
        # In one order for all writers, so that two that bring the same never wait for each other.
        return self._do(lambda connection: _copied(connection, sorted(lines)))

    def _claim(self, asker: str, digests: Sequence[str]) -> list[str]:
        return self._do(lambda connection: _claimed(connection, asker, digests))

    def _release(self, asker: str) -> None:
        self._do(lambda connection: _released(connection, [asker]))

    def _beat(self, asker: str) -> None:
        self._do(lambda connection: connection.execute(f"UPDATE askers SET seen = {_NOW} WHERE asker = %s", [asker]))

    def _holders(self, digests: Iterable[str]) -> dict[str, Asker]:
        rows = self._do(lambda connection: connection.execute(_HOLDERS, [list(digests)]).fetchall())
        holders = {digest: (Asker(*asker), clock_s) for digest, *asker, clock_s in rows}
        return {digest: asker for digest, (asker, clock_s) in holders.items() if asker.lives(clock_s)}

    @contextmanager
    def _named(self) -> Iterator[None]:
        import psycopg

        try:
            yield
        except (psycopg.Error, OSError, ValueError, TypeError) as error:
            raise StoreError(f"{self._shown}: the replies cannot be used: {first_line(error)}") from error

    def _do(self, act: Callable[[psycopg.Connection], T]) -> T:
        """The act in a transaction, done again where the database went away meanwhile; StoreError where it stays away
        or refuses."""
        give_up, pause = time.monotonic() + _PATIENCE_S, _PAUSE_S[0]
        with self._lock, self._named():
            while True:
                try:
                    connection = self._connected()
                    with connection.transaction():
                        return act(connection)
                except Exception as error:
                    if not self._may_return(error) or time.monotonic() > give_up:
                        raise
                    self._say(f"{self._shown} is away ({first_line(error)}): waiting for it, up to {_PATIENCE_S:.0f} s")
                time.sleep(pause)
                pause = min(2 * pause, _PAUSE_S[1])

    def _may_return(self, error: Exception) -> bool:
        """Whether a failure is the connection's, or that of two who waited for each other: then to try again helps."""
        import psycopg

        if isinstance(error, psycopg.errors.DeadlockDetected | psycopg.errors.SerializationFailure):
            return True
        lost = self._connection is None or self._connection.closed
        refused = isinstance(error, psycopg.OperationalError) and any(words in str(error) for words in _REFUSED)
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and bool(lost) and not refused

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            import psycopg

            self._connection = None
            more = f"{'&' if '?' in self._url else '?'}{_ALIVE}&application_name=rubricflow"
            self._connection = psycopg.connect(self._url + more, autocommit=True)
        return self._connection


def _make(connection: psycopg.Connection) -> None:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_TURN])  # CREATE IF NOT EXISTS fails where two are at it
    for statement in _TABLES:
        connection.execute(statement)


def _copied(connection: psycopg.Connection, lines: Sequence[Line]) -> int:
    connection.execute("CREATE TEMPORARY TABLE IF NOT EXISTS arrived (LIKE replies) ON COMMIT DELETE ROWS")
    with connection.cursor().copy("COPY arrived FROM STDIN") as copy:
        for line in lines:
            copy.write_row(line)
    insert = "INSERT INTO replies SELECT * FROM arrived ORDER BY digest ON CONFLICT DO NOTHING"
    return connection.execute(insert).rowcount


def _claimed(connection: psycopg.Connection, asker: str, digests: Sequence[str]) -> list[str]:
    connection.execute("SELECT pg_advisory_xact_lock(%s)", [_TURN])
    askers = connection.execute(f"SELECT asker, host, process, since, seen, {_NOW} FROM askers").fetchall()
    _released(connection, [row[0] for row in askers if not Asker(*row[:5]).lives(row[5])])
    connection.execute(_CLAIM, {"asker": asker, "digests": sorted(digests)})
    mine = {digest for (digest,) in connection.execute("SELECT digest FROM claims WHERE asker = %s", [asker])}
    if mine:
        insert = f"INSERT INTO askers VALUES (%s, %s, %s, {_NOW}, {_NOW}) ON CONFLICT DO NOTHING"
        connection.execute(insert, [asker, host(), os.getpid()])
    return [digest for digest in digests if digest in mine]


def _released(connection: psycopg.Connection, askers: Sequence[str]) -> None:
    if askers:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", [_TURN])
        connection.execute("DELETE FROM claims WHERE asker = ANY(%s)", [list(askers)])
        connection.execute("DELETE FROM askers WHERE asker = ANY(%s)", [list(askers)])
