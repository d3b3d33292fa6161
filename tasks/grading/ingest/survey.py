"""What has to be known of all rows before the first is written: ids, labels, and what the source says of the split.

The texts pass by; what stays is a few words for each response.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Source, Split
from rubricflow.tasks.core.stats.scores import OF_SEVERAL
from rubricflow.tasks.core.store.cells import likely_id
from rubricflow.tasks.core.store.faults import Faults
from rubricflow.tasks.grading.ingest.canonical import (
    Answers,
    ChunkMarks,
    Record,
    Scores,
    answers,
    chosen,
    items,
    look_at_decimals,
    marks,
    scored,
    scores,
)
from rubricflow.tasks.grading.ingest.columns import name_of
from rubricflow.tasks.grading.ingest.firsts import Repeats
from rubricflow.tasks.grading.ingest.oddities import Oddities
from rubricflow.tasks.grading.ingest.sources import Stream
from rubricflow.tasks.grading.ingest.words import Decimals


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
    oddities: Oddities = field(default_factory=Oddities)
    """What is odd about the texts."""


def survey(streams: Sequence[Stream], plan: Split, target: str, limit: int | None = None) -> Survey:
    """Look at all rows of all sources; with a limit, `limit` responses of each item are kept, and the items that have
    any. They are drawn by the digest of their ids: by chance as far as the texts go, the same in whatever order the
    files come, and a higher limit keeps all that a lower one does. Sources may hold items alone.

    InputErrors name all that is wrong, the first ones each by file, line, row, column and rule: a missing column or
    value, a duplicate id, an item repeated with another content, an unknown item or response, a score that is no finite
    number, a split of the source that has an author or item on two sides where `plan` keeps them whole, a response
    without an author where it needs one. Where items are lost it is not held against responses that theirs is unknown,
    and so on.
    """
    surveyed, faults = Survey(), Faults()
    look = _Look(surveyed, plan, faults)
    _survey_items(surveyed, streams, faults)
    look.knows_items = not faults.count
    _survey_responses(surveyed, streams, look, target, faults)
    files = [stream.source.file for stream in streams if stream.source.responses]
    if not surveyed.places and (files or not surveyed.items) and not faults.count:
        raise InputError("no response is left to grade", file=files[0] if files else None)
    knows_responses = not faults.lost_rows
    _survey_scores(surveyed, streams, target, knows_responses, faults)
    _survey_marks(surveyed, streams, knows_responses, faults)
    for stream in streams:
        faults.locate(stream.source.file, stream.path, stream.lines_of)
    faults.refuse()
    # A label beside which there is one that was not chosen would have been there anyway.
    sides = zip(surveyed.given, surveyed.labelled, surveyed.drawn, strict=True)
    surveyed.given = ["chosen" if labelled and not drawn else side for side, labelled, drawn in sides]
    if files and limit is not None:
        _keep(surveyed, limit)
    return surveyed


def _keep(surveyed: Survey, limit: int) -> None:
    """Keeps `limit` responses of each item, and the items that have any."""
    of_item: dict[str, list[str]] = {}
    for response_id, place in surveyed.places.items():
        of_item.setdefault(surveyed.item_id[place], []).append(response_id)
    surveyed.items = {key: row for key, row in surveyed.items.items() if key in of_item}
    surveyed.kept = bytearray(len(surveyed.kept))
    for ids in of_item.values():
        for response_id in nsmallest(limit, ids, key=lambda name: hashlib.sha256(name.encode()).digest()):
            surveyed.kept[surveyed.places[response_id]] = True


def _survey_items(surveyed: Survey, streams: Sequence[Stream], faults: Faults) -> None:
    for source, chunks, _ in (stream for stream in streams if stream.source.items):
        with faults.gathering():
            for frame in chunks(faults.add):
                _items(surveyed, source, items(source, frame, faults.add), faults)


def _survey_responses(surveyed: Survey, streams: Sequence[Stream], look: _Look, target: str, faults: Faults) -> None:
    for source, chunks, _ in (stream for stream in streams if stream.source.responses):
        decimals = Decimals()
        with faults.gathering():
            for frame in chunks(faults.add):
                some = answers(source, frame, faults.add)
                look.add(source, some)
                surveyed.oddities.look(some)
                look_at_decimals(source, frame, decimals, faults.add)
                surveyed.labelled += _labelled(scores(source, frame, faults.add), target, len(some.rows))
    surveyed.drawn = surveyed.labelled[:]


def _survey_scores(
    surveyed: Survey, streams: Sequence[Stream], target: str, knows_responses: bool, faults: Faults
) -> None:
    graded = Repeats()
    for source, chunks, _ in (stream for stream in streams if stream.source.scored):
        decimals = Decimals()
        with faults.gathering():
            for frame in chunks(faults.add):
                rows, ids = scored(source, frame, surveyed.places, faults.add)
                look_at_decimals(source, frame, decimals, faults.add)
                picked, marked = chosen(source, frame, faults.add), scores(source, frame, faults.add)
                if knows_responses:
                    _scores(surveyed, source, rows, ids, picked, marked, target, graded, faults)


def _survey_marks(surveyed: Survey, streams: Sequence[Stream], knows_responses: bool, faults: Faults) -> None:
    marked = Repeats()
    for source, chunks, _ in (stream for stream in streams if stream.source.marks):
        with faults.gathering():
            for frame in chunks(faults.add):
                chunk = marks(source, frame, faults.add)
                if knows_responses:
                    _marks(surveyed, source, chunk, marked, faults)


def _items(surveyed: Survey, source: Source, rows: Iterable[tuple[int, Record]], faults: Faults) -> None:
    for number, row in rows:
        known = surveyed.items.setdefault(row["item_id"], row)
        if known != row:
            other = next(name for name in row if known[name] != row[name])
            rule = f"item '{row['item_id']}' is given twice with different content"
            faults.add(InputError(rule, file=source.file, row=number, field=other))


@dataclass
class _Look:
    """Adds responses to a survey, chunk by chunk."""

    surveyed: Survey
    plan: Split
    faults: Faults
    knows_items: bool = True
    """Whether the items are all there, so that an unknown one is an error."""
    sides: dict[str, str] = field(default_factory=dict)
    """Author or item → the side on which the source has it."""

    def add(self, source: Source, some: Answers) -> None:
        surveyed, names = self.surveyed, {name: name_of(column) for name, column in source.responses.items()}
        authors = {author: author for author in surveyed.author_id[-1:]}
        rows = zip(some.rows, some.response_id, some.item_id, some.author_id, some.split, strict=True)
        for number, response_id, item_id, author_id, side in rows:
            if not (response_id and item_id in surveyed.items):
                self.faults.lost_rows = True
            error = self._error(source, number, response_id, item_id, author_id, side, names)
            if error is not None:
                self.faults.add(error)
            if not response_id or response_id in surveyed.places or item_id not in surveyed.items:
                continue
            surveyed.places[response_id] = len(surveyed.places)
            # One string for all responses of an item or author, not one for each.
            surveyed.item_id.append(surveyed.items[item_id]["item_id"])
            surveyed.author_id.append(authors.setdefault(author_id, author_id))
            surveyed.given.append(side)
            surveyed.kept.append(True)

    def _error(
        self,
        source: Source,
        number: int,
        response_id: str,
        item_id: str,
        author_id: str | None,
        side: str | None,
        names: Mapping[str, str],
    ) -> InputError | None:
        """What is wrong with a response, given those before it."""

        def error(rule: str, name: str, hint: str | None = None) -> InputError:
            return InputError(rule, file=source.file, row=number, field=names.get(name, name), hint=hint)

        if not (response_id and item_id):
            return None  # it is told already that they are empty
        if response_id in self.surveyed.places:
            return error(f"response id '{response_id}' occurs twice", "response_id")
        if item_id not in self.surveyed.items and self.knows_items:
            return error(f"item '{item_id}' is unknown", "item_id", likely_id(item_id, self.surveyed.items))
        if self.plan.by == "author" and side is None and author_id is None:
            rule = f"a split by author needs an author for every response; '{response_id}' has none"
            return error(rule, "author_id")
        whole = self._whole(author_id, item_id)
        if side is not None and whole is not None and self.sides.setdefault(whole, side) != side:
            rule = f"{self.plan.by} '{whole}' is on two sides, '{self.sides[whole]}' and '{side}'"
            return error(rule, "split", f"split.by is {self.plan.by}")
        return None

    def _whole(self, author_id: str | None, item_id: str) -> str | None:
        return {"response": None, "author": author_id, "item": item_id}[self.plan.by]


def _labelled(graded: Iterable[Scores], target: str, count: int) -> bytearray:
    """Whether each answer of a chunk has a score that counts as the target, see `target_scores`."""
    surveyed = bytearray(count)
    for one in graded:
        if one.rater == target or (target in OF_SEVERAL and one.kind == "human"):
            for at, score in enumerate(one.score):
                surveyed[at] |= score is not None
    return surveyed


def _scores(
    surveyed: Survey,
    source: Source,
    rows: Sequence[int],
    ids: Sequence[str],
    chosen: Sequence[bool],
    graded: Sequence[Scores],
    target: str,
    known: Repeats,
    faults: Faults,
) -> None:
    """Scores in a file of their own."""
    field, labelled = name_of(source.scored or ""), _labelled(graded, target, len(ids))
    places = [surveyed.places.get(response_id) for response_id in ids]
    repeated = {of_rater.rater: known.add(places, [of_rater.rater] * len(places)) for of_rater in graded}
    for row, (number, response_id, place) in enumerate(zip(rows, ids, places, strict=True)):
        if place is None:
            faults.add(_unknown_response(response_id, surveyed, source.file, number, field))
            continue
        for rater in (name for name, is_repeated in repeated.items() if is_repeated[row]):
            rule = f"rater '{rater}' scores response '{response_id}' twice"
            faults.add(InputError(rule, file=source.file, row=number, field=field))
        surveyed.labelled[place] |= labelled[row]
        surveyed.drawn[place] |= labelled[row] and not chosen[row]


def _unknown_response(response_id: str, surveyed: Survey, file: str, row: int, field: str) -> InputError:
    hint = likely_id(response_id, surveyed.places)
    return InputError(f"response '{response_id}' is unknown", file=file, row=row, field=field, hint=hint)


def _marks(surveyed: Survey, source: Source, some: ChunkMarks, known: Repeats, faults: Faults) -> None:
    names = {name: name_of(column) for name, column in source.marks.items()}
    places = [surveyed.places.get(response_id) for response_id in some.response_id]
    repeated = known.add(places, [*zip(some.rater_id, some.criterion_id, strict=True)])
    for row, (number, response_id, place) in enumerate(zip(some.rows, some.response_id, places, strict=True)):
        if place is None:
            faults.add(_unknown_response(response_id, surveyed, source.file, number, names["response_id"]))
        elif repeated[row]:
            rater_id, criterion_id = some.rater_id[row], some.criterion_id[row]
            rule = f"rater '{rater_id}' marks criterion '{criterion_id}' of response '{response_id}' twice"
            faults.add(InputError(rule, file=source.file, row=number, field=names["criterion_id"]))
