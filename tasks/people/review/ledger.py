"""The ledger of people's acts: one SQLite file that outlives runs and only ever grows.

The file of the ledger: its schema, which refuses every change.

What people have said of a study, as the ledger of its warehouse holds it.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rubricflow.tasks.core.contracts.errors import ContractError, StoreError
from rubricflow.tasks.core.store.files import digest_of
from rubricflow.tasks.core.store.objects import mirrored_by
from rubricflow.tasks.core.store.sqlite_file import Format, SqliteFile

FORMAT = Format(
    name="ledger of votes",
    mark=0x564F5445,
    table="acts",
    schema=(
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
    ),
    synchronous="FULL",
    row="act",
    spoilt="bring back a copy of the file",
)


CANNOT_BE_JUDGED = "x"
"""The vote that a case cannot be judged."""
_LEVEL = re.compile(r"0|[1-9][0-9]{0,3}", re.ASCII)
_SCORE = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,17})?", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Act:
    """What a person did, as a client sends it; ContractError where it makes no sense."""

    act_id: str
    """A UUID that the client makes: the same act sent twice is stored once."""
    study: str
    """Name of the study."""
    kind: Literal["vote", "undo", "submit", "adjudicate", "note", "mark"]
    """A vote on a subject; an earlier act of the same rater taken back; a response whose votes are final; what settles
    a subject that others disagree on; words to the student, in the comment; a score that a rater gave in the data, with
    their words to the student."""
    subject_kind: Literal["label", "score"]
    """Whether concepts of the response are voted on, or its score."""
    response_id: str
    """The response."""
    criterion_id: str | None
    """The concept; None for a score and for a submit."""
    value: str | None
    """A level as digits, a score as a number, 'x' for what cannot be judged; None for undo and submit, and for a mark
    that the data hold no more."""
    rater_id: str
    """Who; any text."""
    comment: str | None = None
    """Why; of an adjudication the record of the discussion, without which there is none; of a note its words."""
    blind: bool | None = None
    """Whether the rater saw neither machine nor other votes; None where that is not known."""
    undoes: str | None = None
    """The act taken back; None for all but undo."""
    digest: str = ""
    """Of what was voted on, see tasks/people/review/subject.py; '' for undo, submit and mark."""

    def __post_init__(self) -> None:
        broken = next((rule for rule, holds in _rules(self) if not holds), None)
        if broken:
            raise ContractError(f"an act {broken}")


@dataclass(frozen=True, kw_only=True)
class Stored(Act):
    """An act as the ledger holds it."""

    number: int
    """Its place in the order of all acts."""
    stored_at: datetime
    """When it was stored, in UTC; later than all acts before it."""


class Ledger(SqliteFile):
    """The acts of all studies of a warehouse, for several threads and processes at once.

    Nothing in it is ever changed or taken out: the file itself refuses, and every act is looked at when it is opened.
    An act that `add` answered is on disk, with its log flushed. StoreError where the file is no ledger, was changed, or
    cannot be read or written.
    """

    _format = FORMAT

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        _, problems = self.look()
        if problems:
            self.close()
            raise StoreError(f"{path}: the {FORMAT.name} cannot be used: {problems[0]}; {FORMAT.spoilt}")

    def add(self, act: Act) -> Stored:
        """The act as it is stored, now or, under its id, earlier; ContractError where that id is another act's."""
        return self.add_all([act])[0]

    def add_all(self, acts: Iterable[Act]) -> list[Stored]:
        """As `add`, for several acts in their order: all of them or, where one is refused, none."""
        with self._writing():
            return [self._added(act) for act in acts]

    def _added(self, act: Act) -> Stored:
        row = self._connection.execute("SELECT * FROM acts WHERE act_id = ?", (act.act_id,)).fetchone()
        if row is None:
            last, last_time = self._connection.execute(_LAST).fetchone() or (0, -1)
            time = max((datetime.now(UTC) - _EPOCH) // _MICROSECOND, last_time + 1)
            row = (last + 1, time, *_cells(act))
            row = (*row, _seal(row))
            self._connection.execute(_INSERT, row)
        stored = _stored(row)
        if _cells(stored) != _cells(act):
            raise ContractError(f"act {act.act_id} is there already and says something else")
        return stored

    def acts(self, study: str, after: int = 0) -> list[Stored]:
        """What people did on the page or sent in, in its order; only what comes after a number that is known already.
        Marks in the data are left to `marks`."""
        return self._chosen("study = ? AND number > ? AND kind <> 'mark'", study, after)

    def marks(self, study: str) -> list[Stored]:
        """The marks in the data of a study as they were read, in their order: each when it was new or had changed."""
        return self._chosen("study = ? AND kind = 'mark'", study)

    def _chosen(self, condition: str, *values: str | int) -> list[Stored]:
        with self._named():
            with self._lock:
                rows = self._connection.execute(
                    f"SELECT * FROM acts WHERE {condition} ORDER BY number", values
                ).fetchall()
            return [_stored(row) for row in rows]

    def look(self) -> tuple[int, tuple[str, ...]]:
        """How many acts there are, and what is wrong with the file or any of them, the first hundred; StoreError where
        it cannot be read at all."""
        with self._named(), self._lock:
            problems = self._broken()
            rows = self._connection.execute("SELECT * FROM acts ORDER BY number").fetchall()
            (last,) = self._connection.execute(_LAST_NUMBER).fetchone() or (0,)
        numbers = {row[0] for row in rows}
        missing = sorted(set(range(1, max(numbers | {last}) + 1)) - numbers)
        problems += [f"act {number} is missing" for number in missing[:100]]
        sealed = False
        for row in rows:
            sealed = sealed or row[-1] is not None
            try:
                _stored(row, sealed)
            except (ValueError, TypeError) as error:
                problems.append(str(error))
        return len(rows), tuple(problems[:100])


_COLUMNS = tuple(field.name for field in fields(Act))
_INSERT = f"INSERT INTO acts(number, at, {', '.join(_COLUMNS)}, seal) VALUES (?, ?{', ?' * len(_COLUMNS)}, ?)"
_LAST = "SELECT number, at FROM acts ORDER BY number DESC LIMIT 1"
_LAST_NUMBER = "SELECT seq FROM sqlite_sequence WHERE name = 'acts'"
"""The highest number that was ever given, whether or not its act is still there."""


def _rules(act: Act) -> Iterator[tuple[str, bool]]:
    """What must hold of an act, in words that end its sentence when broken."""
    says = act.kind in ("vote", "adjudicate")
    texts = [cell for cell in _cells(act) if isinstance(cell, str)]
    yield "holds text that is not Unicode", all(_is_unicode(text) for text in texts)
    yield "needs a UUID", _is_uuid(act.act_id)
    yield "names no study, response or rater", bool(act.study and act.response_id and act.rater_id.strip())
    yield f"of kind {act.kind!r} is unknown", says or act.kind in ("undo", "submit", "note", "mark")
    yield f"on a {act.subject_kind!r} is unknown", act.subject_kind in ("label", "score")
    yield "that undoes another names it, and no other act does", (act.undoes is not None) == (act.kind == "undo")
    if act.kind == "note":
        yield "that is a note has its words in its comment", bool((act.comment or "").strip())
        yield "that is a note is about a score and its digest", act.subject_kind == "score" and bool(act.digest)
    if act.kind == "mark":
        yield "that is a mark is a score", act.subject_kind == "score" and act.criterion_id is None
        yield "that is a mark has a number", act.value is None or bool(_SCORE.fullmatch(act.value))
        return
    if not says:
        yield "that is no vote has no value", act.value is None
        return
    yield (
        "on a label names its concept, one on a score none",
        (act.criterion_id is not None) == (act.subject_kind == "label"),
    )
    yield (
        "says neither a level or score nor 'x'",
        act.value is not None
        and (
            act.value == CANNOT_BE_JUDGED
            or bool((_LEVEL if act.subject_kind == "label" else _SCORE).fullmatch(act.value))
        ),
    )
    yield "that says something has the digest of what it is about", bool(act.digest)
    yield (
        "that adjudicates records the discussion in its comment",
        act.kind == "vote" or bool((act.comment or "").strip()),
    )


def _is_unicode(text: str) -> bool:
    """Whether a file can hold it; half a surrogate pair cannot be encoded."""
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _cells(act: Act) -> tuple[Any, ...]:
    return tuple(getattr(act, name) for name in _COLUMNS)


def _seal(row: tuple[Any, ...]) -> str:
    """A digest of a whole row: SQLite itself would not notice that a value was changed."""
    cells = [int(cell) if isinstance(cell, bool) else cell for cell in row]  # SQLite has no truth values
    return hashlib.sha256(json.dumps(cells).encode()).hexdigest()[:32]


def _stored(row: tuple[Any, ...], sealed: bool = False) -> Stored:
    """A row of the file; ValueError or TypeError where somebody spoilt it. Those of earlier versions have no seal: none
    that come after a `sealed` one."""
    number, time, *cells, seal = row
    if (sealed or seal is not None) and seal != _seal(row[:-1]):
        raise ValueError(f"act {number} was changed since it was stored")
    content = dict(zip(_COLUMNS, cells, strict=True))
    content["blind"] = None if content["blind"] is None else bool(content["blind"])
    try:
        return Stored(**content, number=number, stored_at=_EPOCH + time * _MICROSECOND)
    except ContractError as error:
        raise ValueError(f"row {number}: {error}") from error


LEDGER = "votes.sqlite"


class Spoken(NamedTuple):
    """What people have said of a study up to a moment."""

    until: int
    """Number of the last act; 0 for none."""
    digest: str
    """SHA-256 of the acts."""


def ledger_file(house: Path) -> Path:
    """Where votes are written; StoreError for a warehouse in a bucket."""
    if bucket := mirrored_by(house):
        rule = "votes are kept in a SQLite file, which an object store cannot hold"
        raise StoreError(f"{bucket.url}: {rule}; review a study whose warehouse is a folder")
    return house / LEDGER


def spoken(house: Path, study: str) -> Spoken:
    """What people have said of a study until now, in a warehouse that may not be there yet."""
    acts = acts_of(house, study)
    content = [[act.act_id, act.kind, act.value, act.comment, act.digest, act.undoes] for act in acts]
    return Spoken(max((act.number for act in acts), default=0), digest_of(content))


def acts_of(house: Path, study: str) -> list[Stored]:
    """What people did on a study, see `Ledger.acts`; nothing where nobody has said anything."""
    if not (house / LEDGER).exists():
        return []
    with Ledger(house / LEDGER) as ledger:
        return ledger.acts(study)
