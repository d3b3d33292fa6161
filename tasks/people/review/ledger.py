"""The ledger of people's acts: one SQLite file that outlives runs and only ever grows."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rubricflow.tasks.core.contracts.errors import ContractError, StoreError
from rubricflow.tasks.core.store.files import digest_of
from rubricflow.tasks.core.store.objects import mirrored_by
from rubricflow.tasks.core.store.sqlite_file import Format, SqliteFile
from rubricflow.tasks.core.text.digest import text_digest

LEDGER = "votes.sqlite"
CANNOT_BE_JUDGED = "x"
"""The vote that a case cannot be judged."""
SubjectKind = Literal["label", "score"]
Subject = tuple[str, str | None]
"""(response, criterion), or (response, None) for its score."""
DIGEST = re.compile("[0-9a-f]{64}")
"""What a digest of a subject looks like."""
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
    subject_kind: SubjectKind
    """Whether concepts of the response are voted on, or its score."""
    response_id: str
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
    """Of what was voted on, see `digest`; '' for undo, submit and mark."""

    def __post_init__(self) -> None:
        broken = next((rule for rule, holds in _rules(self) if not holds), None)
        if broken:
            raise ContractError(f"an act {broken}")

    @property
    def subject(self) -> Subject:
        """What a vote or an adjudication is about."""
        return self.response_id, self.criterion_id

    @property
    def numeric_value(self) -> float | None:
        """The level or score of a vote or an adjudication; None where the case cannot be judged."""
        return None if self.value in (None, CANNOT_BE_JUDGED) else float(self.value)


@dataclass(frozen=True, kw_only=True)
class Stored(Act):
    """An act as the ledger holds it."""

    number: int
    """Its place in the order of all acts."""
    stored_at: datetime
    """When it was stored, in UTC; later than all acts before it."""


def digest(response_text: str, criterion_text: str, levels: Sequence[str]) -> str:
    """SHA-256 of what is voted on, 64 hex digits. For a score the criterion's text is '' and the levels are the scale's
    scores as text."""
    content = json.dumps([response_text, criterion_text, list(levels)], ensure_ascii=True)
    return text_digest(content)


class ActSnapshot(NamedTuple):
    """What people did on a study up to a moment."""

    until: int
    """Number of the last act; 0 for none."""
    digest: str
    """SHA-256 of the acts."""


def ledger_file(warehouse: Path) -> Path:
    """Where votes are written; StoreError for a warehouse in a bucket."""
    if bucket := mirrored_by(warehouse):
        rule = "votes are kept in a SQLite file, which an object store cannot hold"
        raise StoreError(f"{bucket.url}: {rule}; review a study whose warehouse is a folder")
    return warehouse / LEDGER


def act_snapshot(warehouse: Path, study: str) -> ActSnapshot:
    """What people did on a study until now, in a warehouse that may not be there yet."""
    acts = acts_of(warehouse, study)
    content = [[act.act_id, act.kind, act.value, act.comment, act.digest, act.undoes] for act in acts]
    return ActSnapshot(max((act.number for act in acts), default=0), digest_of(content))


def acts_of(warehouse: Path, study: str, marks: bool = False) -> list[Stored]:
    """What people did on a study, see `Ledger.acts`, or their marks in its data, see `Ledger.marks`; nothing where
    there is no ledger."""
    if not (warehouse / LEDGER).exists():
        return []
    with Ledger(warehouse / LEDGER) as ledger:
        return ledger.marks(study) if marks else ledger.acts(study)


class Ledger(SqliteFile):
    """The acts of all studies of a warehouse, for several threads and processes at once.

    Nothing in it is ever changed or taken out: the file itself refuses, and every act is checked when the file is
    opened. An act that `add` returned is on disk, with its log flushed. StoreError where the file is no ledger, was
    changed, or cannot be read or written.
    """

    _format = FORMAT = Format(
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
            "CREATE TRIGGER IF NOT EXISTS no_update BEFORE update ON acts "
            "BEGIN SELECT RAISE(ABORT, 'acts are only ever added'); END",
            "CREATE TRIGGER IF NOT EXISTS no_delete BEFORE delete ON acts "
            "BEGIN SELECT RAISE(ABORT, 'acts are only ever added'); END",
            # INSERT OR REPLACE would take the old row out without asking the trigger on deletion.
            "CREATE TRIGGER IF NOT EXISTS no_replace BEFORE INSERT ON acts "
            "WHEN EXISTS (SELECT 1 FROM acts WHERE act_id = NEW.act_id OR number = NEW.number) "
            "BEGIN SELECT RAISE(ABORT, 'acts are only ever added'); END",
        ),
        synchronous="FULL",
        row="act",
        spoilt="bring back a copy of the file",
    )

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        _, problems = self.look()
        if problems:
            self.close()
            raise StoreError(f"{path}: the {self.FORMAT.name} cannot be used: {problems[0]}; {self.FORMAT.spoilt}")

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
        return self._select("study = ? AND number > ? AND kind <> 'mark'", study, after)

    def marks(self, study: str) -> list[Stored]:
        """The marks in the data of a study as they were read, in their order: each when it was new or had changed."""
        return self._select("study = ? AND kind = 'mark'", study)

    def _select(self, condition: str, *values: str | int) -> list[Stored]:
        query = f"SELECT * FROM acts WHERE {condition} ORDER BY number"
        with self._named():
            with self._lock:
                rows = self._connection.execute(query, values).fetchall()
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
    is_score = act.subject_kind == "score"
    has_comment = bool((act.comment or "").strip())
    try:
        json.dumps(_cells(act), ensure_ascii=False).encode()  # half a surrogate pair cannot be encoded
    except UnicodeEncodeError:
        yield "holds text that is not Unicode", False
    try:
        yield "needs a UUID", str(uuid.UUID(act.act_id)) == act.act_id
    except ValueError:
        yield "needs a UUID", False
    yield "names no study, response or rater", bool(act.study and act.response_id and act.rater_id.strip())
    yield f"of kind {act.kind!r} is unknown", says or act.kind in ("undo", "submit", "note", "mark")
    yield f"on a {act.subject_kind!r} is unknown", is_score or act.subject_kind == "label"
    yield "that undoes another names it, and no other act does", (act.undoes is not None) == (act.kind == "undo")
    if act.kind == "note":
        yield "that is a note has its words in its comment", has_comment
        yield "that is a note is about a score and its digest", is_score and bool(act.digest)
    if act.kind == "mark":
        yield "that is a mark is a score", is_score and act.criterion_id is None
        yield "that is a mark has a number", act.value is None or bool(_SCORE.fullmatch(act.value))
    elif not says:
        yield "that is no vote has no value", act.value is None
    else:
        value = act.value or ""
        is_value = bool((_SCORE if is_score else _LEVEL).fullmatch(value))
        yield "on a label names its concept, one on a score none", (act.criterion_id is None) == is_score
        yield "says neither a level or score nor 'x'", value == CANNOT_BE_JUDGED or is_value
        yield "that says something has the digest of what it is about", bool(act.digest)
        yield "that adjudicates records the discussion in its comment", act.kind == "vote" or has_comment


def _cells(act: Act) -> tuple[Any, ...]:
    return tuple(getattr(act, name) for name in _COLUMNS)


def _seal(row: tuple[Any, ...]) -> str:
    """A digest of a whole row: SQLite itself would not notice that a value was changed."""
    cells = [int(cell) if isinstance(cell, bool) else cell for cell in row]  # SQLite has no truth values
    return text_digest(json.dumps(cells))[:32]


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
