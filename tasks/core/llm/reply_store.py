"""What every store of replies does, wherever they are: the first reply of a digest stays, and what arrived is not
asked for again."""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.llm import ledger
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.store.sqlite_file import Format, SqliteFile

CHUNK = 500
"""Replies that are read together."""
Line = tuple[str, str, str, str | None]
"""Digest, model, reply as JSON, seal."""
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


class Replies(ABC):
    """Digest → reply, for several threads, processes and, in a database, machines at once.

    The first reply of a digest stays, so that two runs agree. Errors are not kept, so that a rerun asks again.
    StoreError where the store cannot be used.
    """

    _said = -_SAY_S[1]

    def get_many(self, digests: Iterable[str]) -> dict[str, Reply]:
        """The stored replies to these digests; StoreError where they cannot be read."""
        distinct, replies = list(dict.fromkeys(digests)), dict[str, Reply]()
        for start in range(0, len(distinct), CHUNK):
            lines = self._lines(distinct[start : start + CHUNK])
            with self._named():
                replies.update((line[0], read(*line)) for line in lines)
        return replies

    def put_many(self, replies: Sequence[tuple[str, str, Reply]]) -> dict[str, Reply]:
        """Keeps (digest, model, reply) in one transaction, error replies left out; StoreError where it cannot.

        Returns the replies that stand where another writer's was first, by digest: mostly none.
        """
        lines = [(digest, model, reply.to_json()) for digest, model, reply in replies if reply.error is None]
        rows = [(*line, seal(*line)) for line in lines]
        if not rows or self._keep(rows) == len(rows):
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
        mine = self._claim(asker, list(digests))
        if not mine:
            yield []
            return
        over = threading.Event()
        beating = threading.Thread(target=self._keep_beating, args=(asker, over), name="claims", daemon=True)
        beating.start()
        try:
            yield mine
        finally:
            over.set()
            beating.join()
            self._release(asker)

    def awaited(self, digests: Iterable[str], until: float = math.inf) -> dict[str, Reply]:
        """The replies to what others are asking for, waited for as long as somebody living asks for all of the rest,
        and until the monotonic clock says `until`.

        What has no reply then is to be claimed: who asked for it is gone, or got none.
        """
        missing, arrived, start, pause = set(digests), dict[str, Reply](), time.monotonic(), _LOOK_S[0]
        while missing and time.monotonic() < until:
            arrived |= self.get_many(missing)
            missing -= arrived.keys()
            holders = self._holders(missing)
            if len(holders) < len(missing):
                break
            if holders and time.monotonic() - start > _SAY_S[0]:
                self._say(f"waiting for {len(holders):,} replies that {next(iter(holders.values()))} is asking for")
            time.sleep(pause if missing else 0)
            pause = min(2 * pause, _LOOK_S[1])
        return arrived

    def look(self) -> StoreLook:
        """Look at every reply; StoreError where they cannot be read at all."""
        rows, unsealed, problems = 0, 0, self._broken()
        for line in self._all():
            rows, unsealed = rows + 1, unsealed + (line[3] is None)
            try:
                read(*line)
            except (ValueError, TypeError) as error:
                problems.append(str(error))
        return StoreLook(rows, unsealed, tuple(problems[:100]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Gives the store back; closing twice is harmless."""

    @abstractmethod
    def __len__(self) -> int:
        """How many replies it holds."""

    @abstractmethod
    def _lines(self, digests: Sequence[str]) -> Sequence[Line]:
        """Those that are there."""

    @abstractmethod
    def _all(self) -> Iterator[Line]:
        """All of them, one after the other."""

    @abstractmethod
    def _broken(self) -> list[str]:
        """What is wrong with the store itself."""

    @abstractmethod
    def _keep(self, lines: Sequence[Line]) -> int:
        """Keeps the lines whose digest is not there yet, all or none; how many."""

    @abstractmethod
    def _claim(self, asker: str, digests: Sequence[str]) -> list[str]:
        """Claims for the asker what has no reply and nobody living asks for; what that is."""

    @abstractmethod
    def _release(self, asker: str) -> None:
        """Gives an asker's claims back."""

    @abstractmethod
    def _beat(self, asker: str) -> None:
        """Says that an asker lives."""

    @abstractmethod
    def _holders(self, digests: Iterable[str]) -> dict[str, ledger.Asker]:
        """Digest → who is asking for it; without those that nobody living asks for."""

    @abstractmethod
    def _named(self) -> AbstractContextManager[None]:
        """Says which store a failure is about."""

    def _keep_beating(self, asker: str, over: threading.Event) -> None:
        while not over.wait(ledger.BEAT_S):
            with suppress(StoreError):  # where the disk is full, the run itself says so
                self._beat(asker)

    def _say(self, line: str) -> None:
        """Warns, but not at every wave anew."""
        if time.monotonic() - self._said > _SAY_S[1]:
            self._said = time.monotonic()
            _logger.warning(line)


def seal(digest: str, model: str, line: str) -> str:
    """A digest of the whole row: a database itself would not notice that a text was changed."""
    return hashlib.sha256(f"{digest}\0{model}\0{line}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def read(digest: str, model: str, line: str, sealed: str | None) -> Reply:
    """The reply of a row; ValueError or TypeError where it is not what was stored."""
    if sealed is not None and sealed != seal(digest, model, line):
        raise ValueError(
            f"the reply to request {digest} was changed since it was stored; take it out, and it is asked for again: "
            f"DELETE FROM replies WHERE digest = '{digest}'"
        )
    return Reply.from_json(line)


# The reply store: one SQLite file that remembers every reply by the digest of its request.

_FORMAT = Format(
    name="reply store",
    mark=0x52504C59,
    table="replies",
    schema=(
        "CREATE TABLE IF NOT EXISTS replies"
        "(digest TEXT PRIMARY KEY, model TEXT NOT NULL, reply TEXT NOT NULL, seal TEXT)",
        *ledger.TABLES,
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
            return ledger.claim(self._connection, asker, digests)

    def _release(self, asker: str) -> None:
        with self._writing():
            ledger.release(self._connection, asker)

    def _beat(self, asker: str) -> None:
        with self._writing():
            ledger.beat(self._connection, asker)

    def _holders(self, digests: Iterable[str]) -> dict[str, ledger.Asker]:
        with self._named(), self._lock:
            return ledger.holders(self._connection, digests)


_INSERT = "INSERT OR IGNORE INTO replies(digest, model, reply, seal) VALUES (?, ?, ?, ?)"
