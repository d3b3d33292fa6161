"""The reply store: one SQLite file that remembers every reply by the digest of its request."""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from tasks.contracts.errors import StoreError
from tasks.llm import claims
from tasks.llm.request import Reply
from tasks.store.sqlite_file import Format, SqliteFile

_CHUNK = 500
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
_LOOK_S = 0.02, 0.5
"""How soon, and in the end how seldom, a waiting run looks for another one's replies."""
_SAY_S = 1.0, 60.0
"""After how long a wait it says so, and how often."""
_logger = logging.getLogger(__name__)


class StoreLook(NamedTuple):
    """What a look at a whole store came to."""

    rows: int
    """Replies in it."""
    unsealed: int
    """Of these, those that an earlier version stored: a change of them would not show."""
    problems: tuple[str, ...]
    """What is wrong, in words; the first hundred."""


class ReplyStore(SqliteFile):
    """Digest → reply, for several threads and processes at once.

    A reply that `put_many` took survives the death of the process (a write-ahead log without a disk flush per commit:
    only a power cut can lose the last ones). The first reply of a digest stays, so that two runs agree. Errors are not
    kept, so that a rerun asks again. The path ':memory:' keeps nothing beyond the object.
    """

    _format = _FORMAT

    def __init__(self, path: str | Path, read_only: bool = False) -> None:
        """Opens the file, or makes it unless `read_only`; StoreError where it is no reply store or not writable."""
        super().__init__(path, read_only)
        self._said = -_SAY_S[1]
        with self._named():
            self._columns = f"digest, model, reply, {'seal' if self._sealed else 'NULL'}"

    def get_many(self, digests: Iterable[str]) -> dict[str, Reply]:
        """The known ones among the digests; StoreError where the file cannot be read."""
        wanted, found = list(dict.fromkeys(digests)), dict[str, Reply]()
        for start in range(0, len(wanted), _CHUNK):
            part = wanted[start : start + _CHUNK]
            query = f"SELECT {self._columns} FROM replies WHERE digest IN ({','.join('?' * len(part))})"
            with self._named(), self._lock:
                rows = self._connection.execute(query, part).fetchall()
            with self._named():
                found.update((row[0], _read(*row)) for row in rows)
        return found

    def put_many(self, replies: Sequence[tuple[str, str, Reply]]) -> dict[str, Reply]:
        """Keeps (digest, model, reply) in one transaction, error replies left out; StoreError where it cannot.

        Returns the replies that stand where another writer's was first, by digest: mostly none.
        """
        lines = [(digest, model, reply.to_json()) for digest, model, reply in replies if reply.error is None]
        rows = [(*line, _seal(*line)) for line in lines]
        if not rows:
            return {}
        with self._writing():
            kept = self._connection.executemany(_INSERT, rows).rowcount
        if kept == len(rows):
            return {}
        standing = self.get_many(digest for digest, *_ in rows)
        mine = {digest: reply for digest, _, reply in replies}
        return {digest: reply for digest, reply in standing.items() if reply != mine[digest]}

    @contextmanager
    def claim(self, digests: Iterable[str]) -> Iterator[list[str]]:
        """Those of the digests that the caller is to ask for: they have no reply, and nobody else is asking for them.

        The others belong to `awaited`. The claim ends with the block, or with the process.
        """
        asker = secrets.token_hex(8)
        with self._writing():
            mine = claims.claim(self._connection, asker, digests)
        if not mine:
            yield []
            return
        over = threading.Event()
        beating = threading.Thread(target=self._beat, args=(asker, over), name="claims", daemon=True)
        beating.start()
        try:
            yield mine
        finally:
            over.set()
            beating.join()
            with self._writing():
                claims.release(self._connection, asker)

    def awaited(self, digests: Iterable[str], until: float = math.inf) -> dict[str, Reply]:
        """The replies to what others are asking for, waited for as long as somebody living asks for all of the rest,
        and until the monotonic clock says `until`.

        What has no reply then is to be claimed: who asked for it is gone, or got none.
        """
        open_, found, start, pause = set(digests), dict[str, Reply](), time.monotonic(), _LOOK_S[0]
        while open_ and time.monotonic() < until:
            arrived = self.get_many(open_)
            found |= arrived
            open_ -= arrived.keys()
            with self._named(), self._lock:
                holders = claims.holders(self._connection, open_)
            if len(holders) < len(open_):
                break
            if holders and time.monotonic() - start > _SAY_S[0]:
                self._say(f"waiting for {len(holders):,} replies that {next(iter(holders.values()))} is asking for")
            time.sleep(pause if open_ else 0)
            pause = min(2 * pause, _LOOK_S[1])
        return found

    def _beat(self, asker: str, over: threading.Event) -> None:
        while not over.wait(claims.BEAT_S):
            with suppress(StoreError), self._writing():  # where the disk is full, the run itself says so
                claims.beat(self._connection, asker)

    def _say(self, line: str) -> None:
        """Warns, but not at every wave anew."""
        if time.monotonic() - self._said > _SAY_S[1]:
            self._said = time.monotonic()
            _logger.warning(line)

    def __len__(self) -> int:
        with self._named(), self._lock:
            return int(self._connection.execute("SELECT count(*) FROM replies").fetchone()[0])

    def look(self) -> StoreLook:
        """Look at the file's structure and at every reply; StoreError where it cannot be read at all."""
        rows, unsealed, problems = 0, 0, list[str]()
        with self._named(), self._lock:
            problems += self._broken()
            for row in self._connection.execute(f"SELECT {self._columns} FROM replies"):
                rows, unsealed = rows + 1, unsealed + (row[3] is None)
                try:
                    _read(*row)
                except (ValueError, TypeError) as error:
                    problems.append(str(error))
        return StoreLook(rows, unsealed, tuple(problems[:100]))


_INSERT = "INSERT OR IGNORE INTO replies(digest, model, reply, seal) VALUES (?, ?, ?, ?)"


def _seal(digest: str, model: str, line: str) -> str:
    """A digest of the whole row: SQLite itself would not notice that a text was changed."""
    return hashlib.sha256(f"{digest}\0{model}\0{line}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _read(digest: str, model: str, line: str, seal: str | None) -> Reply:
    """The reply of a row; ValueError or TypeError where it is not what was stored."""
    if seal is not None and seal != _seal(digest, model, line):
        raise ValueError(
            f"the reply to request {digest} was changed since it was stored; take it out, and it is asked for again: "
            f"DELETE FROM replies WHERE digest = '{digest}'"
        )
    return Reply.from_json(line)
