"""The reply store: every reply by the digest of its request, in a SQLite file or a PostgreSQL database.

The first reply of a digest stays, what arrived is not asked for again, and runs that ask the same at once pay for it
once.
"""

from __future__ import annotations

import logging
import math
import os
import re
import secrets
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import copy_context
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

from rubricflow.tasks.core.contracts.backends import install
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.store.sqlite_file import Format, SqliteFile, transaction
from rubricflow.tasks.core.text.digest import text_digest

T = TypeVar("T")
Access = Literal["read", "write", "claim"]
"""What a transaction does: claims are made and given back one transaction after the other."""

CHUNK = 500
"""Replies that are read together."""
BEAT_S = 5.0
"""How often an asker reports that it lives."""
LEASE_S = 30.0
"""For how long it is believed: a process that is stopped for longer, or another machine's that is gone, loses its
claims."""
_LOOK_S = 0.02, 0.5
"""How soon, and in the end how seldom, a waiting run looks for another one's replies."""
_SAY_S = 1.0, 60.0
"""After how long a wait is logged, and how often."""
_DATABASE = re.compile(r"postgres(ql)?://")
_INSERT = "INSERT INTO replies(digest, model, reply, seal) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_CLAIM = """INSERT INTO claims SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM replies WHERE digest = ?)
ON CONFLICT DO NOTHING"""
_ASKERS = "SELECT asker, host, process, since, $now - seen FROM askers"
_logger = logging.getLogger(__name__)


def open_replies(place: str | Path, read_only: bool = False) -> Replies:
    """The store at a file's path, at `:memory:` or at `postgresql://…`; StoreError where it cannot be used."""
    if not is_database(place):
        return ReplyStore(place, read_only)
    try:
        from rubricflow.tasks.core.llm.postgres import PostgresReplies

        return PostgresReplies(str(place), read_only)
    except ImportError as error:
        raise StoreError(f"replies in PostgreSQL need the extra: {install('postgres')}") from error


def is_database(place: str | Path) -> bool:
    """Whether replies are in a database, and in no file."""
    return bool(_DATABASE.match(str(place)))


def are_there(place: str | Path) -> bool:
    """Whether there is a store to be looked at; a database is taken to be there."""
    return is_database(place) or Path(place).is_file()


def shown_place(place: str | Path) -> str:
    """The place as people may see it: without a password."""
    if not is_database(place):
        return str(place)
    parts = urlsplit(str(place))
    user = f"{parts.username}@" if parts.username else ""
    return f"{parts.scheme}://{user}{parts.netloc.rpartition('@')[2]}{parts.path}"


class Asker(NamedTuple):
    """A batch of requests on its way."""

    name: str
    host: str
    process: int
    since: float
    """When it began, in seconds of the Unix epoch."""
    silent_s: float
    """Since when it has not reported that it lives, by the clock of the store."""

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since)
        return f"process {self.process} on {self.host.partition('/')[0]} (since {since:%X})"

    @property
    def lives(self) -> bool:
        """Whether it may still bring replies."""
        if self.silent_s > LEASE_S:
            return False
        if self.host != host():
            return True
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # of another user
            pass
        return True


@cache
def host() -> str:
    """The machine and, where it has several, the space of its process ids: numbers mean the same in one alone."""
    space = Path("/proc/self/ns/pid")
    return f"{socket.gethostname()}/{os.readlink(space) if space.is_symlink() else ''}"


class StoreLook(NamedTuple):
    """What a look at a whole store came to."""

    rows: int
    """Replies in it."""
    unsealed: int
    """Of these, those that an earlier version stored: a change of them would not show."""
    problems: tuple[str, ...]
    """What is wrong, in words; the first hundred."""


class Replies(ABC):
    """Digest → reply, for several threads, processes and, in a database, machines at once.

    The first reply of a digest stays, so that two runs agree. Errors are not kept, so that a rerun asks again.
    StoreError where the store cannot be used. The same SQL serves SQLite and PostgreSQL.
    """

    _mark: ClassVar[str]
    """What stands for a parameter in SQL."""
    _now: ClassVar[str]
    """The time of the store's own clock in SQL, in seconds of the Unix epoch."""
    _seal = "seal"
    _said = -_SAY_S[1]

    def get_many(self, digests: Iterable[str]) -> dict[str, Reply]:
        """The stored replies to these digests; StoreError where they cannot be read."""
        distinct = list(dict.fromkeys(digests))
        replies = dict[str, Reply]()
        query = f"SELECT digest, model, reply, {self._seal} FROM replies WHERE digest"
        rows = self._rows_of(query, distinct)
        with self._named():
            replies.update((row[0], read(*row)) for row in rows)
        return replies

    def put_many(self, replies: Sequence[tuple[str, str, Reply]]) -> dict[str, Reply]:
        """Keeps (digest, model, reply) in one transaction, error replies left out; StoreError where it cannot.

        Returns the replies that stand where another writer's was first, by digest: mostly none.
        """
        lines = [(digest, model, reply.to_json()) for digest, model, reply in replies if reply.error is None]
        # In one order for all writers, so that two that bring the same never wait for each other.
        rows = sorted((*line, seal(*line)) for line in lines)

        def insert(cursor: Any) -> int:
            cursor.executemany(self._sql(_INSERT), rows)
            return int(cursor.rowcount)

        if not rows or self._do("write", insert) == len(rows):
            return {}
        kept = self.get_many(digest for digest, *_ in rows)
        mine = {digest: reply for digest, _, reply in replies}
        return {digest: reply for digest, reply in kept.items() if reply != mine[digest]}

    @contextmanager
    def claim(self, digests: Iterable[str]) -> Iterator[list[str]]:
        """Those of the digests that the caller is to ask for: they have no reply, and nobody else is asking for them.

        The others belong to `awaited`. The claim ends with the block, or with the process.
        """
        asker = secrets.token_hex(8)
        mine = self._claim(asker, list(digests))
        if not mine:
            yield []
            return

        def beat() -> None:
            query = self._sql("UPDATE askers SET seen = $now WHERE asker = ?")
            with suppress(StoreError):  # where the disk is full, the run itself says so
                self._do("write", lambda cursor: cursor.execute(query, (asker,)))

        try:
            with looking(beat, BEAT_S):
                yield mine
        finally:
            self._do("claim", lambda cursor: self._release(cursor, [asker]))

    def awaited(self, digests: Iterable[str], until: float = math.inf) -> dict[str, Reply]:
        """The replies to what others are asking for, waited for as long as somebody living asks for all of the rest,
        and until the monotonic clock says `until`.

        What has no reply then is to be claimed: who asked for it is gone, or got none.
        """
        missing = set(digests)
        arrived = dict[str, Reply]()
        start = time.monotonic()
        pause = _LOOK_S[0]
        while missing and time.monotonic() < until:
            arrived |= self.get_many(missing)
            missing -= arrived.keys()
            query = f"{_ASKERS.replace('FROM', ', digest FROM')} JOIN claims USING (asker) WHERE digest"
            claims = self._rows_of(query, list(missing))
            holders = [asker for asker in (Asker(*row[:5]) for row in claims) if asker.lives]
            if len(holders) < len(missing):
                break
            if holders and time.monotonic() - start > _SAY_S[0]:
                self._say(f"waiting for {len(holders):,} replies that {holders[0]} is asking for")
            time.sleep(pause if missing else 0)
            pause = min(2 * pause, _LOOK_S[1])
        return arrived

    def look(self) -> StoreLook:
        """Look at every reply; StoreError where they cannot be read at all."""
        rows, unsealed, problems, last = 0, 0, self._broken(), ""
        query = self._sql(
            f"SELECT digest, model, reply, {self._seal} FROM replies WHERE digest > ? ORDER BY digest LIMIT {CHUNK}"
        )
        while lines := self._rows(query, [last]):
            last = lines[-1][0]
            for line in lines:
                rows, unsealed = rows + 1, unsealed + (line[3] is None)
                try:
                    read(*line)
                except (ValueError, TypeError) as error:
                    problems.append(str(error))
        return StoreLook(rows, unsealed, tuple(problems[:100]))

    def latency(self, model: str) -> float | None:
        """Seconds that a call to a model took in the mean of some of its replies; None where none of them says."""
        some = (
            f"SELECT reply FROM (SELECT model, reply FROM replies LIMIT {10 * CHUNK}) AS kept WHERE model = ? LIMIT 200"
        )
        seconds = [Reply.from_json(line).latency_s for (line,) in self._rows(self._sql(some), [model])]
        known = [second for second in seconds if second is not None]
        return sum(known) / len(known) if known else None

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM replies")[0][0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Gives the store back; closing twice is harmless."""

    @abstractmethod
    def _do(self, access: Access, act: Callable[[Any], T]) -> T:
        """What an act does with a cursor, in a transaction."""

    @abstractmethod
    def _named(self) -> AbstractContextManager[None]:
        """Says which store a failure is about."""

    def _broken(self) -> list[str]:
        """What is wrong with the store itself."""
        return []

    def _sql(self, query: str) -> str:
        return query.replace("?", self._mark).replace("$now", self._now)

    def _rows(self, query: str, values: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        return self._do("read", lambda cursor: list(cursor.execute(query, values)))

    def _rows_of(self, query: str, digests: Sequence[str]) -> list[tuple[Any, ...]]:
        """The rows of a query that ends with the name of the digests' column."""
        rows = []
        for start in range(0, len(digests), CHUNK):
            values = digests[start : start + CHUNK]
            rows += self._rows(self._sql(f"{query} IN ({','.join('?' * len(values))})"), values)
        return rows

    def _claim(self, asker: str, digests: Sequence[str]) -> list[str]:
        """Claims for the asker what has no reply and nobody living asks for; what that is."""

        def act(cursor: Any) -> list[str]:
            askers = [Asker(*row) for row in cursor.execute(self._sql(_ASKERS)).fetchall()]
            self._release(cursor, [other.name for other in askers if not other.lives])
            cursor.executemany(self._sql(_CLAIM), [(digest, asker, digest) for digest in sorted(digests)])
            claims = cursor.execute(self._sql("SELECT digest FROM claims WHERE asker = ?"), (asker,))
            mine = {digest for (digest,) in claims.fetchall()}
            if mine:
                insert = self._sql("INSERT INTO askers VALUES (?, ?, ?, $now, $now) ON CONFLICT DO NOTHING")
                cursor.execute(insert, (asker, host(), os.getpid()))
            return [digest for digest in digests if digest in mine]

        return self._do("claim", act)

    def _release(self, cursor: Any, askers: Sequence[str]) -> None:
        """Gives the claims of askers back."""
        for table in ("claims", "askers") if askers else ():
            cursor.executemany(self._sql(f"DELETE FROM {table} WHERE asker = ?"), [(asker,) for asker in askers])

    def _say(self, line: str) -> None:
        """Warns, but not at every wave anew."""
        if time.monotonic() - self._said > _SAY_S[1]:
            self._said = time.monotonic()
            _logger.warning(line)


@contextmanager
def looking(look: Callable[[], None], every: float = 1.0) -> Iterator[None]:
    """Calls `look` every so many seconds from a thread of its own, in the context of the caller."""
    over, context = threading.Event(), copy_context()

    def keep_looking() -> None:
        while not over.wait(every):
            look()

    thread = threading.Thread(target=context.run, args=(keep_looking,), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def seal(digest: str, model: str, line: str) -> str:
    """A digest of the whole row: a database itself would not notice that a text was changed."""
    return text_digest(f"{digest}\0{model}\0{line}")[:32]


def read(digest: str, model: str, line: str, sealed: str | None) -> Reply:
    """The reply of a row; ValueError or TypeError where it is not what was stored."""
    if sealed is not None and sealed != seal(digest, model, line):
        raise ValueError(
            f"the reply to request {digest} was changed since it was stored; take it out, and it is asked for again: "
            f"DELETE FROM replies WHERE digest = '{digest}'"
        )
    return Reply.from_json(line)


class ReplyStore(SqliteFile, Replies):
    """Digest → reply, for several threads and processes of a machine at once.

    A reply that `put_many` took survives the death of the process (a write-ahead log without a disk flush per commit:
    only a power cut can lose the last ones). The path ':memory:' keeps nothing beyond the object.
    """

    _mark, _now = "?", "(julianday('now') - 2440587.5) * 86400.0"
    _format = Format(
        name="reply store",
        mark=0x52504C59,
        table="replies",
        schema=(
            "CREATE TABLE IF NOT EXISTS replies"
            "(digest TEXT PRIMARY KEY, model TEXT NOT NULL, reply TEXT NOT NULL, seal TEXT)",
            "CREATE TABLE IF NOT EXISTS askers(asker TEXT PRIMARY KEY, host TEXT NOT NULL, process INTEGER NOT NULL,"
            " since REAL NOT NULL, seen REAL NOT NULL)",
            "CREATE TABLE IF NOT EXISTS claims(digest TEXT PRIMARY KEY, asker TEXT NOT NULL) WITHOUT ROWID",
        ),
        synchronous="NORMAL",
        row="reply",
        spoilt="bring back a copy, or move it away: what it held is asked for again",
    )

    def __init__(self, path: str | Path, read_only: bool = False) -> None:
        """Opens the file, or makes it unless `read_only`; StoreError where it is no reply store or not writable."""
        super().__init__(path, read_only)
        with self._named():
            self._seal = "seal" if self._sealed else "NULL"

    def look(self) -> StoreLook:
        with self._named():
            return super().look()

    def _do(self, access: Access, act: Callable[[Any], T]) -> T:
        lock: Literal["DEFERRED", "IMMEDIATE"] = "DEFERRED" if access == "read" else "IMMEDIATE"
        with self._named(), self._lock, transaction(self._connection, lock):
            return act(self._connection.cursor())
