"""A ledger in a database: what several processes may spend and ask for together, counted in one place.

It is SQLite in a file for the processes of one machine (or of a shared disk), PostgreSQL for more. Everything is
counted before it is used, in one transaction, so that a process that is killed has counted too much rather than too
little.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from sqlalchemy import TextClause, create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from rubricflow.tasks.core.contracts.backends import install
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.llm.reply_store import is_database, shown_place

T = TypeVar("T")
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
    "CREATE TABLE IF NOT EXISTS lanes (command TEXT NOT NULL, lane BIGINT NOT NULL, worker TEXT NOT NULL,"
    " piece TEXT NOT NULL, told TEXT NOT NULL, seen_s DOUBLE PRECISION NOT NULL, PRIMARY KEY (command, lane))",
    "CREATE TABLE IF NOT EXISTS starts (cluster TEXT PRIMARY KEY, seconds DOUBLE PRECISION NOT NULL)",
)
_FILL = text(
    "INSERT INTO purses (name, tokens, drawn) VALUES (:name, :tokens, 0)"
    " ON CONFLICT (name) DO UPDATE SET tokens = :tokens"
)
_DRAW = text("UPDATE purses SET drawn = drawn + :size WHERE name = :name AND drawn + :size <= tokens RETURNING name")
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
_OPEN_LANE = text("INSERT INTO lanes VALUES (:command, :lane, '', '', '{}', :clock_s)")
_TELL = text(
    "UPDATE lanes SET worker = :worker, piece = :piece, told = :told, seen_s = :clock_s"
    " WHERE command = :command AND lane = :lane"
)
_LANES = text("SELECT lane, worker, piece, told FROM lanes WHERE command = :command ORDER BY lane")
_CLOSE_LANES = text(
    "DELETE FROM lanes WHERE seen_s < :before_s OR (command = :command AND lane >= :lane AND lane < :end)"
)
_STARTED = text("INSERT INTO starts VALUES (:cluster, :seconds) ON CONFLICT (cluster) DO UPDATE SET seconds = :seconds")
_START = text("SELECT seconds FROM starts WHERE cluster = :cluster")
_FORGOTTEN_S = 86_400.0
"""After how long a killed command's lanes are removed."""


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


class Lane(NamedTuple):
    """What is worked at the same time as other lanes: one piece of a command's work after the other, each by whoever
    is free."""

    lane: int
    worker: str
    """Who works its piece, '' before anybody told; a process that took the piece anew is another one."""
    piece: str
    told: Mapping[str, float]
    """What its worker counted of this piece until now."""


def seconds_until_room(begun: Iterable[tuple[float, int]], size: int, limits: MinuteLimits, clock_s: float) -> float:
    """Seconds until a call of `size` tokens fits; 0 where it does. begun: when calls of the last minute began, in
    order, and their tokens."""
    calls = list(begun)
    requests = len(calls)
    tokens = sum(call[1] for call in calls)
    if limits.hold(requests, tokens, size):
        return 0.0
    for begun_s, gone in calls:
        requests, tokens = requests - 1, tokens - gone
        if limits.hold(requests, tokens, size):
            return max(begun_s + MINUTE_S - clock_s, _TICK_S)
    return 0.0


class CallLedger:
    """The ledger at a place. Threads may share one, processes open their own. A database that is away is waited for, as
    that of the replies is, but where no more than lanes is told of; every act can be done twice."""

    def __init__(self, place: Path | str, clock: Callable[[], float] = time.time) -> None:
        """place: a file, ':memory:' or the URL of a PostgreSQL database. clock: seconds, the same on all machines.
        StoreError where it cannot be opened."""
        self.place, self._clock = place, clock
        self._patiently: Callable[..., Any] = lambda act, is_away, shown: act()
        if not is_database(place):
            Path(place).parent.mkdir(parents=True, exist_ok=True)
            self._engine = create_engine(f"sqlite:///{place}", connect_args={"timeout": _WAIT_S})
            return
        try:
            from rubricflow.tasks.core.llm.postgres import patiently, with_keepalive

            url = f"postgresql+psycopg://{with_keepalive(str(place)).partition('://')[2]}"
            self._engine = create_engine(url, pool_pre_ping=True)
        except ImportError as error:
            raise StoreError(f"a PostgreSQL database needs the extra: {install('postgres')}") from error
        self._patiently = patiently

    def make(self) -> None:
        """Makes its tables where they are not there; done once, before workers open it."""
        self._do(lambda connection: [connection.execute(text(statement)) for statement in _TABLES])

    def close(self) -> None:
        self._engine.dispose()

    def fill(self, budget: str, tokens: int) -> None:
        """Makes a budget of so many tokens, or changes it; what was drawn stays drawn."""
        self._rows(_FILL, name=budget, tokens=tokens)

    def draw(self, budget: str, tokens: int) -> bool:
        """Takes tokens out of a budget, if it still holds so many; a negative number gives them back."""
        return bool(self._rows(_DRAW, name=budget, size=tokens))

    def drawn(self, budget: str) -> tuple[int, int]:
        """How much was taken out of a budget, and what was put into it."""
        ((drawn, tokens),) = self._rows(_DRAWN, name=budget)
        return drawn, tokens

    def admit(self, account: str, size: int, limits: MinuteLimits) -> float:
        """Seconds after which a call of `size` tokens is to ask again; 0 where it may begin now, which is then counted.

        All who name the same account share its limits.
        """
        mine = {"account": account}

        def act(connection: Connection) -> float:
            connection.execute(_TAKE_TURN, mine)
            clock_s = self._clock()
            connection.execute(_FORGET, mine | {"before_s": clock_s - MINUTE_S})
            requests, tokens = connection.execute(_COUNT, mine).one()
            if limits.hold(int(requests), int(tokens), size):
                connection.execute(_BEGIN, mine | {"clock_s": clock_s, "size": size})
                return 0.0
            calls = [(float(begun_s), int(gone)) for begun_s, gone in connection.execute(_BEGUN, mine)]
            return seconds_until_room(calls, size, limits, clock_s)

        return self._do(act)

    def open_lanes(self, command: str, lanes: int) -> None:
        """Notes that a command has its work done in so many lanes, and forgets those of long ago."""
        clock_s = self._clock()
        own = {"command": command, "clock_s": clock_s}

        def act(connection: Connection) -> None:
            old = {"command": command, "lane": 0, "end": lanes, "before_s": clock_s - _FORGOTTEN_S}
            connection.execute(_CLOSE_LANES, old)
            connection.execute(_OPEN_LANE, [own | {"lane": lane} for lane in range(lanes)])

        self._do(act)

    def close_lanes(self, command: str, lane: int, end: int) -> None:
        """Lanes, from the one to before the other, have no more work: what they could ask at once is the others'."""
        self._rows(_CLOSE_LANES, waits=False, command=command, lane=lane, end=end, before_s=0.0)

    def tell(self, command: str, lane: int, worker: str, piece: str, told: Mapping[str, float]) -> list[int]:
        """Notes who works a lane's piece and what came of it until now; gives the lanes that have work."""
        row = {"command": command, "lane": lane, "worker": worker, "piece": piece, "told": json.dumps(told)}

        def act(connection: Connection) -> list[int]:
            connection.execute(_TELL, row | {"clock_s": self._clock()})
            return [lane for lane, *_ in connection.execute(_LANES, {"command": command})]

        return self._do(act, waits=False)

    def lanes(self, command: str) -> list[Lane]:
        """The lanes of a command that have work."""
        rows = self._rows(_LANES, waits=False, command=command)
        return [Lane(lane, worker, piece, json.loads(told)) for lane, worker, piece, told in rows]

    def started(self, cluster: str, seconds: float) -> None:
        """Notes how long it took until workers of a cluster began."""
        self._rows(_STARTED, waits=False, cluster=cluster, seconds=seconds)

    def start(self, cluster: str) -> float | None:
        """How long it took the last time; None before."""
        return next((seconds for (seconds,) in self._rows(_START, cluster=cluster)), None)

    def _rows(self, statement: TextClause, waits: bool = True, **values: Any) -> list[Any]:
        """The rows of a statement; none of one that gives none."""

        def act(connection: Connection) -> list[Any]:
            result = connection.execute(statement, values)
            return list(result) if result.returns_rows else []

        return self._do(act, waits)

    def _do(self, act: Callable[[Connection], T], waits: bool = True) -> T:
        """What an act gives in a transaction. waits: for a database that is away."""

        def once() -> T:
            with self._engine.begin() as connection:
                return act(connection)

        try:
            return cast(T, self._patiently(once, _is_away, shown_place(self.place)) if waits else once())
        except SQLAlchemyError as error:
            reason = str(error).partition("\n")[0]
            rule = f"the ledger of tokens and calls at {shown_place(self.place)} cannot be used: {reason}"
            raise StoreError(rule) from error


def _is_away(error: Exception) -> bool:
    """Whether the connection was lost, or none was to be had."""
    return isinstance(error, DBAPIError) and (error.connection_invalidated or error.statement is None)
