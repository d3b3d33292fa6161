"""A ledger in a database: what several processes may spend and ask for together, counted in one place.

It is SQLite in a file for the processes of one machine (or of a shared disk), PostgreSQL for more. Everything is
counted before it is used, in one transaction, so that a process that is killed has counted too much rather than too
little.
"""

from __future__ import annotations

import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from sqlalchemy import BigInteger, Column, Double, Index, MetaData, Table, Text, create_engine, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateIndex, CreateTable

from rubricflow.tasks.core.contracts.backends import install
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.llm.places import is_database, shown_place

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


Value = TypeVar("Value")
_WAIT_S = 60.0
"""For how long a transaction waits for those of others."""
_METADATA = MetaData()
_PURSES = Table(
    "purses",
    _METADATA,
    Column("name", Text, primary_key=True),
    Column("tokens", BigInteger, nullable=False),
    Column("drawn", BigInteger, nullable=False),
)
_ACCOUNTS = Table(
    "accounts", _METADATA, Column("name", Text, primary_key=True), Column("turns", BigInteger, nullable=False)
)
_CALLS = Table(
    "calls",
    _METADATA,
    Column("account", Text, nullable=False),
    Column("begun_s", Double, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Index("calls_of_account", "account", "begun_s"),
)


class CallLedger:
    """The ledger at a place. Threads may share one, processes open their own."""

    def __init__(self, place: Path | str, clock: Callable[[], float] = time.time) -> None:
        """place: a file, ':memory:' or the URL of a PostgreSQL database. clock: seconds, the same on all machines.
        StoreError where it cannot be opened."""
        self.place, self._clock = place, clock
        self._engine: Engine = _engine(place)

    def make(self) -> None:
        """Makes its tables where they are not there; done once, before workers open it."""
        self._change(_make_tables)

    def close(self) -> None:
        """Gives the connections back."""
        self._engine.dispose()

    def fill(self, budget: str, tokens: int) -> None:
        """Puts tokens into a new budget."""
        self._change(
            lambda connection: connection.execute(_PURSES.insert().values(name=budget, tokens=tokens, drawn=0))
        )

    def draw(self, budget: str, tokens: int) -> bool:
        """Takes tokens out of a budget, if it still holds so many; a negative number gives them back."""
        columns = _PURSES.c
        fits = columns.drawn + tokens <= columns.tokens
        change = _PURSES.update().where(columns.name == budget, fits).values(drawn=columns.drawn + tokens)
        return self._change(lambda connection: connection.execute(change).rowcount) == 1

    def drawn(self, budget: str) -> tuple[int, int]:
        """How much was taken out of a budget, and what was put into it."""
        columns = _PURSES.c
        row = self._change(
            lambda connection: connection.execute(
                select(columns.drawn, columns.tokens).where(columns.name == budget)
            ).one()
        )
        return int(row[0]), int(row[1])

    def admit(self, account: str, size: int, limits: MinuteLimits) -> float:
        """Seconds after which a call of `size` tokens is to ask again; 0 where it may begin now, which is then counted.

        All who name the same account share its limits.
        """
        return self._change(lambda connection: self._admitted(connection, account, size, limits))

    def _admitted(self, connection: Connection, account: str, size: int, limits: MinuteLimits) -> float:
        _take_turn(connection, account)
        clock_s, calls = self._clock(), _CALLS.c
        mine = calls.account == account
        connection.execute(_CALLS.delete().where(mine, calls.begun_s <= clock_s - MINUTE_S))
        counted = connection.execute(select(func.count(), func.coalesce(func.sum(calls.tokens), 0)).where(mine)).one()
        if limits.hold(int(counted[0]), int(counted[1]), size):
            connection.execute(_CALLS.insert().values(account=account, begun_s=clock_s, tokens=size))
            return 0.0
        rows = connection.execute(select(calls.begun_s, calls.tokens).where(mine).order_by(calls.begun_s)).all()
        return seconds_until_room([(float(row[0]), int(row[1])) for row in rows], size, limits, clock_s)

    def _change(self, act: Callable[[Connection], Value]) -> Value:
        try:
            with self._engine.begin() as connection:
                return act(connection)
        except SQLAlchemyError as error:
            reason = str(error).partition("\n")[0]
            raise StoreError(
                f"the ledger of tokens and calls at {shown_place(self.place)} cannot be used: {reason}"
            ) from error


def _engine(place: Path | str) -> Engine:
    """The database; StoreError where there is no driver for it."""
    if not is_database(place):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
        return create_engine(f"sqlite:///{place}", connect_args={"timeout": _WAIT_S})
    try:
        return create_engine(f"postgresql+psycopg://{str(place).partition('://')[2]}", pool_pre_ping=True)
    except ImportError as error:
        raise StoreError(f"a PostgreSQL database needs the extra: {install('postgres')}") from error


def _make_tables(connection: Connection) -> None:
    for table in _METADATA.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
        for index in table.indexes:
            connection.execute(CreateIndex(index, if_not_exists=True))


def _take_turn(connection: Connection, account: str) -> None:
    """Has the account to itself until the transaction ends: the first thing done is a change of its row."""
    added = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    turn = added(_ACCOUNTS).values(name=account, turns=1)
    counted = turn.on_conflict_do_update(index_elements=["name"], set_={"turns": _ACCOUNTS.c.turns + 1})
    connection.execute(counted)


# Who is asking for what: tables beside the replies, so that runs which ask the same at once pay for it once.


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


# What a server takes within a minute, and when there is room for one more call.


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
