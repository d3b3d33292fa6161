"""What has to be known of all rows before the first is written: ids, labels, and what the source says of the split.

The texts pass by; what stays is a few words for each response.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tasks.contracts.errors import InputError
from tasks.contracts.settings.study import Source, Split
from tasks.ingest.canonical import (
    Answers,
    ChunkMarks,
    Record,
    Scores,
    answers,
    chosen,
    items,
    marks,
    name_of,
    scored,
    scores,
)
from tasks.ingest.sources import Stream
from tasks.stats.target import OF_SEVERAL


@dataclass
class Survey:
    """The items, and the responses in the order of the sources: entry n of each list is of the response at place n."""

    items: dict[str, Record] = field(default_factory=dict)
    """Item → its row."""
    places: dict[str, int] = field(default_factory=dict)
    """Response → its place."""
    item_id: list[str] = field(default_factory=list)
    author_id: list[str | None] = field(default_factory=list)
    given: list[str | None] = field(default_factory=list)
    """The split that the source gives."""
    labelled: bytearray = field(default_factory=bytearray)
    """Whether it has a score by the target."""
    drawn: bytearray = field(default_factory=bytearray)
    """Whether it has one that was not chosen to be given."""
    kept: bytearray = field(default_factory=bytearray)
    """Whether it is within the limit."""


def survey(streams: Sequence[Stream], plan: Split, target: str, limit: int | None = None) -> Survey:
    """Look at all rows of all sources; with a limit, the first `limit` responses of each item are kept, and the items
    that have any. Sources may hold items alone.

    InputError names the file, row, field and rule: a missing column or value, a duplicate id, an item repeated with
    another content, an unknown item or response, a score that is no finite number, a split of the source that has an
    author or item on two sides where `plan` keeps them whole, a response without an author where it needs one.
    """
    found = Survey()
    for source, chunks in (stream for stream in streams if stream.source.items):
        for frame in chunks():
            _items(found, source, items(source, frame))
    look = _Look(found, plan, limit)
    for source, chunks in (stream for stream in streams if stream.source.responses):
        for frame in chunks():
            some = answers(source, frame)
            look.add(source, some)
            found.labelled += _labelled(scores(source, frame), target, len(some.rows))
    found.drawn = found.labelled[:]
    files = [stream.source.file for stream in streams if stream.source.responses]
    if not found.places and (files or not found.items):
        raise InputError("no response is left to grade", file=files[0] if files else None)
    graded: set[tuple[int, str]] = set()
    for source, chunks in (stream for stream in streams if stream.source.scored):
        for frame in chunks():
            named = scored(source, frame, found.places)
            _scores(found, source, *named, chosen(source, frame), scores(source, frame), target, graded)
    # A label beside which there is one that was not chosen would have been there anyway.
    sides = zip(found.given, found.labelled, found.drawn, strict=True)
    found.given = ["chosen" if labelled and not drawn else side for side, labelled, drawn in sides]
    marked: set[tuple[int, str, str]] = set()
    for source, chunks in (stream for stream in streams if stream.source.marks):
        for frame in chunks():
            _marks(found, source, marks(source, frame), marked)
    if files and limit is not None:
        found.items = {key: row for key, row in found.items.items() if look.counts[key]}
    return found


def _items(found: Survey, source: Source, rows: Iterable[tuple[int, Record]]) -> None:
    for number, row in rows:
        known = found.items.setdefault(row["item_id"], row)
        if known != row:
            other = next(name for name in row if known[name] != row[name])
            rule = f"item '{row['item_id']}' is given twice with different content"
            raise InputError(rule, file=source.file, row=number, field=other)


@dataclass
class _Look:
    """Adds responses to a survey, chunk by chunk."""

    found: Survey
    plan: Split
    limit: int | None
    counts: Counter[str] = field(default_factory=Counter)
    sides: dict[str, str] = field(default_factory=dict)
    """Author or item → the side on which the source has it."""

    def add(self, source: Source, some: Answers) -> None:
        found, names = self.found, {name: name_of(column) for name, column in source.responses.items()}
        authors = {author: author for author in found.author_id[-1:]}
        rows = zip(some.rows, some.response_id, some.item_id, some.author_id, some.split, strict=True)
        for number, response_id, item_id, author_id, side in rows:
            if response_id in found.places:
                rule = f"response id '{response_id}' occurs twice"
                raise InputError(rule, file=source.file, row=number, field=names["response_id"])
            if item_id not in found.items:
                rule = f"item '{item_id}' is unknown"
                raise InputError(rule, file=source.file, row=number, field=names["item_id"])
            whole = self._whole(author_id, item_id)
            if self.plan.by == "author" and side is None and author_id is None:
                rule = f"a split by author needs an author for every response; '{response_id}' has none"
                raise InputError(rule, file=source.file, row=number, field=names.get("author_id", "author_id"))
            if side is not None and whole is not None and self.sides.setdefault(whole, side) != side:
                rule = f"{self.plan.by} '{whole}' is on two sides, '{self.sides[whole]}' and '{side}'"
                hint = f"split.by is {self.plan.by}"
                raise InputError(rule, file=source.file, row=number, field=names["split"], hint=hint)
            self.counts[item_id] += 1
            found.places[response_id] = len(found.places)
            # One string for all responses of an item or author, not one for each.
            found.item_id.append(found.items[item_id]["item_id"])
            found.author_id.append(authors.setdefault(author_id, author_id))
            found.given.append(side)
            found.kept.append(self.limit is None or self.counts[item_id] <= self.limit)

    def _whole(self, author_id: str | None, item_id: str) -> str | None:
        return {"response": None, "author": author_id, "item": item_id}[self.plan.by]


def _labelled(graded: Iterable[Scores], target: str, count: int) -> bytearray:
    """Whether each answer of a chunk has a score that counts as the target, see `target_scores`."""
    found = bytearray(count)
    for one in graded:
        if one.rater == target or (target in OF_SEVERAL and one.kind == "human"):
            for at, score in enumerate(one.score):
                found[at] |= score is not None
    return found


def _scores(
    found: Survey,
    source: Source,
    rows: Sequence[int],
    ids: Sequence[str],
    chosen: Sequence[bool],
    graded: Sequence[Scores],
    target: str,
    known: set[tuple[int, str]],
) -> None:
    """Scores in a file of their own."""
    field, labelled = name_of(source.scored or ""), _labelled(graded, target, len(ids))
    for number, response_id, counts, picked in zip(rows, ids, labelled, chosen, strict=True):
        if response_id not in found.places:
            raise InputError(f"response '{response_id}' is unknown", file=source.file, row=number, field=field)
        for one in graded:
            key = (found.places[response_id], one.rater)
            if key in known:
                rule = f"rater '{one.rater}' scores response '{response_id}' twice"
                raise InputError(rule, file=source.file, row=number, field=field)
            known.add(key)
        found.labelled[found.places[response_id]] |= counts
        found.drawn[found.places[response_id]] |= counts and not picked


def _marks(found: Survey, source: Source, some: ChunkMarks, known: set[tuple[int, str, str]]) -> None:
    names = {name: name_of(column) for name, column in source.marks.items()}
    words: dict[str, str] = {}
    marks = zip(some.rows, some.response_id, some.rater_id, some.criterion_id, strict=True)
    for number, response_id, rater_id, criterion_id in marks:
        if response_id not in found.places:
            rule = f"response '{response_id}' is unknown"
            raise InputError(rule, file=source.file, row=number, field=names["response_id"])
        rater, criterion = words.setdefault(rater_id, rater_id), words.setdefault(criterion_id, criterion_id)
        key = (found.places[response_id], rater, criterion)
        if key in known:
            rule = f"rater '{rater_id}' marks criterion '{criterion_id}' of response '{response_id}' twice"
            raise InputError(rule, file=source.file, row=number, field=names["criterion_id"])
        known.add(key)
