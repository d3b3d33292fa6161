"""The reply store: one SQLite file that remembers every reply by the digest of its request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tasks.llm import claims
from tasks.llm.reply_store import Line, Replies, StoreLook
from tasks.store.sqlite_file import Format, SqliteFile

_FORMAT = Format(
    name="reply store",
    mark=0x52504C59,
    table="replies",
    schema=(
        "CREATE TABLE IF NOT EXISTS replies"
        "(digest TEXT PRIMARY KEY, model TEXT NOT NULL, reply TEXT NOT NULL, seal TEXT)",
        *claims.TABLES,
    ),
    synchronous="NORMAL",
    row="reply",
    spoilt="bring back a copy, or move it away: what it held is asked for again",
)


class ReplyStore(SqliteFile, Replies):
    """Digest → reply, for several threads and processes of a machine at once.

    A reply that `put_many` took survives the death of the process (a write-ahead log without a disk flush per commit:
    only a power cut can lose the last ones). The path ':memory:' keeps nothing beyond the object.
    """

    _format = _FORMAT

    def __init__(self, path: str | Path, read_only: bool = False) -> None:
        """Opens the file, or makes it unless `read_only`; StoreError where it is no reply store or not writable."""
        super().__init__(path, read_only)
        with self._named():
            self._columns = f"digest, model, reply, {'seal' if self._sealed else 'NULL'}"

    def look(self) -> StoreLook:
        """Look at the file's structure and at every reply; StoreError where it cannot be read at all."""
        with self._named(), self._lock:
            return super().look()

    def __len__(self) -> int:
        with self._named(), self._lock:
            return int(self._connection.execute("SELECT count(*) FROM replies").fetchone()[0])

    def _lines(self, digests: Sequence[str]) -> Sequence[Line]:
        query = f"SELECT {self._columns} FROM replies WHERE digest IN ({','.join('?' * len(digests))})"
        with self._named(), self._lock:
            return self._connection.execute(query, digests).fetchall()

    def _all(self) -> Iterator[Line]:
        yield from self._connection.execute(f"SELECT {self._columns} FROM replies")

    def _keep(self, lines: Sequence[Line]) -> int:
        with self._writing():
            return self._connection.executemany(_INSERT, lines).rowcount

    def _claim(self, asker: str, digests: Sequence[str]) -> list[str]:
        with self._writing():
            return claims.claim(self._connection, asker, digests)

    def _release(self, asker: str) -> None:
        with self._writing():
            claims.release(self._connection, asker)

    def _beat(self, asker: str) -> None:
        with self._writing():
            claims.beat(self._connection, asker)

    def _holders(self, digests: Iterable[str]) -> dict[str, claims.Asker]:
        with self._named(), self._lock:
            return claims.holders(self._connection, digests)


_INSERT = "INSERT OR IGNORE INTO replies(digest, model, reply, seal) VALUES (?, ?, ?, ?)"
