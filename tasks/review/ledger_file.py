"""The file of the ledger: its schema, which refuses every change, and how it is opened."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

_MARK = 0x564F5445
"""SQLite's application id of a ledger."""
_WAIT_S = 60.0
_SEALED = "SELECT count(*) FROM pragma_table_info('acts') WHERE name = 'seal'"
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS acts(
    number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, act_id TEXT NOT NULL UNIQUE, study TEXT NOT NULL,
    kind TEXT NOT NULL, subject_kind TEXT NOT NULL, response_id TEXT NOT NULL, criterion_id TEXT, value TEXT,
    rater_id TEXT NOT NULL, comment TEXT, blind INTEGER, undoes TEXT, digest TEXT NOT NULL,
    seal TEXT)""",
    "CREATE INDEX IF NOT EXISTS acts_of_study ON acts(study, number)",
    *(
        f"CREATE TRIGGER IF NOT EXISTS no_{verb} BEFORE {verb} ON acts "
        "BEGIN SELECT RAISE(ABORT, 'acts are only ever added'); END"
        for verb in ("update", "delete")
    ),
    # INSERT OR REPLACE would take the old row out without asking the trigger on deletion.
    "CREATE TRIGGER IF NOT EXISTS no_replace BEFORE INSERT ON acts "
    "WHEN EXISTS (SELECT 1 FROM acts WHERE act_id = NEW.act_id OR number = NEW.number) "
    "BEGIN SELECT RAISE(ABORT, 'acts are only ever added'); END",
)


def connect(path: Path) -> sqlite3.Connection:
    """An open ledger, new where there is no file; OSError, ValueError or sqlite3.Error where there can be none."""
    path.absolute().parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)
    try:
        _refuse_foreign(connection)
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous=FULL")
        with transaction(connection):
            for statement in _SCHEMA:
                connection.execute(statement)
            if not connection.execute(_SEALED).fetchone()[0]:  # of an earlier version
                connection.execute("ALTER TABLE acts ADD COLUMN seal TEXT")
            connection.execute(f"PRAGMA application_id={_MARK}")
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_foreign(connection: sqlite3.Connection) -> None:
    """ValueError for a database of something else."""
    with transaction(connection, "DEFERRED"):  # one snapshot: another process may be making the ledger right now
        mark = connection.execute("PRAGMA application_id").fetchone()[0]
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not (mark == _MARK and "acts" in tables) and (mark or tables):
        raise ValueError("the file is a database of something else")


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
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
