"""A SQLite file that several threads and processes write: how it is made, recognised, opened, held and closed."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, Self

from rubricflow.tasks.core.contracts.errors import StoreError

_WAIT_S = 60.0


@dataclass(frozen=True)
class Format:
    """What a file holds."""

    name: str
    """What it is called in messages."""
    mark: int
    """Its application id."""
    table: str
    """The table by which it is known; its rows have a `seal`, null in those of an earlier version."""
    schema: tuple[str, ...]
    """Statements that make what is not there."""
    synchronous: Literal["NORMAL", "FULL"]
    """FULL: a commit is on disk when it returns; NORMAL: a power cut can lose the last ones, a crash cannot."""
    row: str
    """What a row is called in messages."""
    spoilt: str
    """What to do about a file that is no longer whole."""


class SqliteFile:
    """An open file, with a write-ahead log; `:memory:` keeps nothing beyond the object.

    StoreError where the file is of another format, cannot be read or written, or is held by another for too long.
    """

    _format: ClassVar[Format]

    def __init__(self, path: str | Path, read_only: bool = False) -> None:
        self._path = str(path)
        self._lock = threading.Lock()
        with self._named():
            self._connection = _connect(self._path, self._format, read_only)

    def close(self) -> None:
        """Gives the file back, whose log is in it then, also where others keep it open: a copy of the file alone holds
        all of it. Closing twice is harmless."""
        with self._lock:
            with suppress(sqlite3.Error):  # it is closed, or only read
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _sealed(self) -> bool:
        """Whether rows have seals: a file of an earlier version that is only read has none."""
        return _is_sealed(self._connection, self._format.table)

    def _broken(self) -> list[str]:
        """What SQLite finds wrong with the file's structure."""
        lines = [str(line) for (line,) in self._connection.execute("PRAGMA integrity_check")]
        return [line for line in lines if line != "ok"]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """In a transaction: all of what is done in it, or nothing."""
        with self._named(), self._lock, transaction(self._connection):
            yield

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Says which file a failure is about, and what to do."""
        try:
            yield
        except (sqlite3.Error, OSError, ValueError, TypeError) as error:
            form = self._format
            hints = {
                sqlite3.SQLITE_FULL: f"; free some space and start again: every {form.row} before this one is kept",
                sqlite3.SQLITE_BUSY: f"; another run has held it for more than {_WAIT_S:.0f} s",
                sqlite3.SQLITE_CORRUPT: f"; {form.spoilt}",
                sqlite3.SQLITE_NOTADB: f"; {form.spoilt}",
            }
            hint = hints.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, "")  # the rest of the code is the place
            rule = f"the {form.name} cannot be used: {error}{hint}"
            raise StoreError(f"{self._path}: {rule}") from error


def _connect(path: str, form: Format, read_only: bool) -> sqlite3.Connection:
    """OSError, ValueError or sqlite3.Error where there can be none."""
    target = path
    if read_only:
        if not Path(path).is_file():
            raise ValueError("there is no such file")
        target = Path(path).absolute().as_uri() + "?mode=ro"
    elif path != ":memory:":
        Path(path).absolute().parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(target, timeout=_WAIT_S, isolation_level=None, check_same_thread=False, uri=read_only)
    try:
        is_ours = _is_of(connection, form)
        if read_only and not is_ours:
            raise ValueError(f"the file is not a {form.name}")
        if not read_only:
            _write_ahead(connection)
            connection.execute(f"PRAGMA synchronous={form.synchronous}")
            with transaction(connection):
                for statement in form.schema:
                    connection.execute(statement)
                if not _is_sealed(connection, form.table):  # of an earlier version
                    connection.execute(f"ALTER TABLE {form.table} ADD COLUMN seal TEXT")
                connection.execute(f"PRAGMA application_id={form.mark}")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_of(connection: sqlite3.Connection, form: Format) -> bool:
    """True for a file of the format, False for an empty one; ValueError for a database of somebody else."""
    with transaction(connection, "DEFERRED"):  # one snapshot: another process may be making the file right now
        mark = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if mark == form.mark and form.table in tables:
        return True
    if mark == 0 and not tables:
        return False
    raise ValueError("the file is a database of something else")


def _is_sealed(connection: sqlite3.Connection, table: str) -> bool:
    query = "SELECT count(*) FROM pragma_table_info(?) WHERE name = 'seal'"
    return bool(connection.execute(query, (table,)).fetchone()[0])


def _write_ahead(connection: sqlite3.Connection) -> None:
    """SQLite does not wait for a lock when it changes the journal mode; two processes may open a new file at once."""
    give_up = time.monotonic() + _WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


@contextmanager
def transaction(connection: sqlite3.Connection, lock: Literal["DEFERRED", "IMMEDIATE"] = "IMMEDIATE") -> Iterator[None]:
    """All of what is done in it, or nothing."""
    connection.execute(f"BEGIN {lock}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself has rolled back where the disk was full
            connection.execute("ROLLBACK")
        raise
