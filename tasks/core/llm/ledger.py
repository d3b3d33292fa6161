"""A ledger in a database: what several processes may spend and ask for together, counted in one place.

It is SQLite in a file for the processes of one machine (or of a shared disk), PostgreSQL for more. Everything is
counted before it is used, in one transaction, so that a process that is killed has counted too much rather than too
little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from rubricflow.tasks.core.contracts.backends import install
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.llm.reply_store import is_database, shown_place

MINUTE_S = 60.0
_TICK_S = 0.001
_WAIT_S = 60.0
"""For how long a transaction waits for those of others."""
_TABLES = (
    "CREATE TABLE IF NOT EXISTS purses (name TEXT PRIMARY KEY, tokens BIGINT NOT NULL, drawn BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, turns BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS calls"
    " (account TEXT NOT NULL, begun_s DOUBLE PRECISION NOT NULL, tokens BIGINT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS calls_of_account ON calls (account, begun_s)",
)
_FILL = text(
    "INSERT INTO purses (name, tokens, drawn) VALUES (:name, :tokens, 0)"
    " ON CONFLICT (name) DO UPDATE SET tokens = :tokens"
)
_DRAW = text("UPDATE purses SET drawn = drawn + :size WHERE name = :name AND drawn + :size <= tokens")
_DRAWN = text("SELECT drawn, tokens FROM purses WHERE name = :name")
_TAKE_TURN = text(
    "INSERT INTO accounts (name, turns) VALUES (:account, 1)"
    " ON CONFLICT (name) DO UPDATE SET turns = accounts.turns + 1"
)
"""The account's until the transaction ends: the first thing done is a change of its row."""
_FORGET = text("DELETE FROM calls WHERE account = :account AND begun_s <= :before_s")
_COUNT = text("SELECT count(*), coalesce(sum(tokens), 0) FROM calls WHERE account = :account")
_BEGUN = text("SELECT begun_s, tokens FROM calls WHERE account = :account ORDER BY begun_s")
_BEGIN = text("INSERT INTO calls (account, begun_s, tokens) VALUES (:account, :clock_s, :size)")


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


class CallLedger:
    """The ledger at a place. Threads may share one, processes open their own."""

    def __init__(self, place: Path | str, clock: Callable[[], float] = time.time) -> None:
        """place: a file, ':memory:' or the URL of a PostgreSQL database. clock: seconds, the same on all machines.
        StoreError where it cannot be opened."""
        self.place, self._clock = place, clock
        if not is_database(place):
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            self._engine = create_engine(f"sqlite:///{place}", connect_args={"timeout": _WAIT_S})
            return
        try:
            url = f"postgresql+psycopg://{str(place).partition('://')[2]}"
            self._engine = create_engine(url, pool_pre_ping=True)
        except ImportError as error:
            raise StoreError(f"a PostgreSQL database needs the extra: {install('postgres')}") from error

    def make(self) -> None:
        """Makes its tables where they are not there; done once, before workers open it."""
        with self._transaction() as connection:
            for statement in _TABLES:
                connection.execute(text(statement))

    def close(self) -> None:
        self._engine.dispose()

    def fill(self, budget: str, tokens: int) -> None:
        """Makes a budget of so many tokens, or changes it; what was drawn stays drawn."""
        with self._transaction() as connection:
            connection.execute(_FILL, {"name": budget, "tokens": tokens})

    def draw(self, budget: str, tokens: int) -> bool:
        """Takes tokens out of a budget, if it still holds so many; a negative number gives them back."""
        with self._transaction() as connection:
            return connection.execute(_DRAW, {"name": budget, "size": tokens}).rowcount == 1

    def drawn(self, budget: str) -> tuple[int, int]:
        """How much was taken out of a budget, and what was put into it."""
        with self._transaction() as connection:
            drawn, tokens = connection.execute(_DRAWN, {"name": budget}).one()
        return int(drawn), int(tokens)

    def admit(self, account: str, size: int, limits: MinuteLimits) -> float:
        """Seconds after which a call of `size` tokens is to ask again; 0 where it may begin now, which is then counted.

        All who name the same account share its limits.
        """
        with self._transaction() as connection:
            mine = {"account": account}
            connection.execute(_TAKE_TURN, mine)
            clock_s = self._clock()
            connection.execute(_FORGET, mine | {"before_s": clock_s - MINUTE_S})
            requests, tokens = connection.execute(_COUNT, mine).one()
            if limits.hold(int(requests), int(tokens), size):
                connection.execute(_BEGIN, mine | {"clock_s": clock_s, "size": size})
                return 0.0
            calls = [(float(begun_s), int(gone)) for begun_s, gone in connection.execute(_BEGUN, mine)]
        return seconds_until_room(calls, size, limits, clock_s)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            reason = str(error).partition("\n")[0]
            rule = f"the ledger of tokens and calls at {shown_place(self.place)} cannot be used: {reason}"
            raise StoreError(rule) from error
