"""What has to be known of all rows before the first is written: ids, labels, and the splits that the source gives.

The texts pass by; what stays is a few words for each response.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.data import Source, Split
from rubricflow.tasks.core.stats.scores import OF_SEVERAL
from rubricflow.tasks.core.store.cells import likely_id
from rubricflow.tasks.core.store.source import Faults
from rubricflow.tasks.grading.ingest.canonical import Record, Scores, answers, chosen, items, marks, scored, scores
from rubricflow.tasks.grading.ingest.columns import Chunk, Decimals, look_at_decimals, name_of
from rubricflow.tasks.grading.ingest.oddities import Oddities
from rubricflow.tasks.grading.ingest.sources import Stream


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


def survey(
    streams: Sequence[Stream], plan: Split, target: str, limit: int | None = None, only: tuple[str, ...] = ()
) -> Survey:
    """Look at all rows of all sources; of responses named in `only`, or of all where it is empty, `limit` of each item
    are kept where there is a limit, and the items that have any. They are drawn by the digest of their ids: by chance
    as far as the texts go, the same in whatever order the files come, and a higher limit keeps all that a lower one
    does. Sources may hold items alone.

    InputErrors name all that is wrong, the first ones each by file, line, row, column and rule: a missing column or
    value, a duplicate id, an item repeated with another content, an unknown item or response, a score that is no finite
    number, a split of the source that has an author or item on two sides where `plan` keeps them whole, a response
    without an author where it needs one. Where items are lost it is not held against responses that theirs is unknown,
    and so on.
    """
    surveyed, faults = Survey(), Faults()
    surveyor = _Surveyor(surveyed, plan, target, faults)

    def read(section: str, look: Callable[[Source, pd.DataFrame], None]) -> None:
        for source, chunks, _ in streams:
            if getattr(source, section):
                with faults.gathering():
                    for frame in chunks(faults.add):
                        look(source, frame)

    read("items", surveyor.items)
    surveyor.knows_items = not faults.count
    read("responses", surveyor.responses)
    surveyed.drawn = surveyed.labelled[:]
    files = [stream.source.file for stream in streams if stream.source.responses]
    if not surveyed.places and (files or not surveyed.items) and not faults.count:
        raise InputError("no response is left to grade", file=files[0] if files else None)
    surveyor.knows_responses = not faults.lost_rows
    read("scored", surveyor.scores)
    read("marks", surveyor.marks)
    for stream in streams:
        faults.locate(stream.source.file, stream.path, stream.lines_of)
    faults.refuse()
    # A response with a chosen label and another one would have been labelled anyway.
    splits = zip(surveyed.given, surveyed.labelled, surveyed.drawn, strict=True)
    surveyed.given = ["chosen" if labelled and not drawn else split for split, labelled, drawn in splits]
    if files and (limit is not None or only):
        of_item: dict[str, list[str]] = {}
        for response_id in set(only) & surveyed.places.keys() if only else surveyed.places:
            of_item.setdefault(surveyed.item_id[surveyed.places[response_id]], []).append(response_id)
        surveyed.items = {key: row for key, row in surveyed.items.items() if key in of_item}
        surveyed.kept = bytearray(len(surveyed.kept))
        for ids in of_item.values():
            drawn = ids if limit is None else nsmallest(limit, ids, key=_by_chance)
            for response_id in drawn:
                surveyed.kept[surveyed.places[response_id]] = True
    return surveyed


def _by_chance(response_id: str) -> bytes:
    return hashlib.sha256(response_id.encode()).digest()


@dataclass
class _Surveyor:
    """Adds the rows of chunks to a survey, by the sections of their sources."""

    surveyed: Survey
    plan: Split
    target: str
    faults: Faults
    knows_items: bool = True
    """Whether the items are all there, so that an unknown one is an error."""
    knows_responses: bool = True
    sides: dict[str, str] = field(default_factory=dict)
    """Author or item → the split that the source gives it."""
    decimals: Decimals = field(default_factory=dict)
    said: dict[tuple[str, ...], set[int]] = field(default_factory=lambda: defaultdict(set))
    """(Rater) or (rater, criterion) → the places of the responses that were scored or marked."""

    def items(self, source: Source, frame: pd.DataFrame) -> None:
        for number, row in items(source, frame, self.faults.add):
            known = self.surveyed.items.setdefault(row["item_id"], row)
            if known != row:
                other = next(name for name in row if known[name] != row[name])
                rule = f"item '{row['item_id']}' is given twice with different content"
                self.faults.add(InputError(rule, file=source.file, row=number, field=other))

    def responses(self, source: Source, frame: pd.DataFrame) -> None:
        surveyed, some = self.surveyed, answers(source, frame, self.faults.add)
        authors = {author: author for author in surveyed.author_id[-1:]}
        rows = zip(some.rows, some.response_id, some.item_id, some.author_id, some.split, strict=True)
        for number, response_id, item_id, author_id, split in rows:
            if not (response_id and item_id in surveyed.items):
                self.faults.lost_rows = True
            if response_id and item_id:  # that they are empty is reported already
                self._check_response(source, number, response_id, item_id, author_id, split)
            if not response_id or response_id in surveyed.places or item_id not in surveyed.items:
                continue
            surveyed.places[response_id] = len(surveyed.places)
            # One string for all responses of an item or author, not one for each.
            surveyed.item_id.append(surveyed.items[item_id]["item_id"])
            surveyed.author_id.append(authors.setdefault(author_id, author_id))
            surveyed.given.append(split)
            surveyed.kept.append(True)
        surveyed.oddities.look(some)
        look_at_decimals(Chunk(source, frame, self.faults.add), self.decimals)
        surveyed.labelled += self._labelled(scores(source, frame, self.faults.add), len(some.rows))

    def _check_response(
        self, source: Source, number: int, response_id: str, item_id: str, author_id: str | None, split: str | None
    ) -> None:
        """Reports what is wrong with a response, given those before it."""
        by, hint = self.plan.by, None
        whole = {"response": None, "author": author_id, "item": item_id}[by]
        if response_id in self.surveyed.places:
            rule, name = f"response id '{response_id}' occurs twice", "response_id"
        elif item_id not in self.surveyed.items and self.knows_items:
            rule, name, hint = f"item '{item_id}' is unknown", "item_id", likely_id(item_id, self.surveyed.items)
        elif by == "author" and split is None and author_id is None:
            rule = f"a split by author needs an author for every response; '{response_id}' has none"
            name = "author_id"
        elif split is not None and whole is not None and self.sides.setdefault(whole, split) != split:
            rule = f"{by} '{whole}' is on two sides, '{self.sides[whole]}' and '{split}'"
            name, hint = "split", f"split.by is {by}"
        else:
            return
        column = name_of(source.responses.get(name, name))
        self.faults.add(InputError(rule, file=source.file, row=number, field=column, hint=hint))

    def _labelled(self, graded: Sequence[Scores], count: int) -> bytearray:
        """Whether each answer of a chunk has a score that counts as the target, see `target_scores`."""
        labelled = bytearray(count)
        for rater in graded:
            if rater.rater == self.target or (self.target in OF_SEVERAL and rater.kind == "human"):
                for at, score in enumerate(rater.score):
                    labelled[at] |= score is not None
        return labelled

    def scores(self, source: Source, frame: pd.DataFrame) -> None:
        surveyed = self.surveyed
        rows, ids = scored(source, frame, surveyed.places, self.faults.add)
        look_at_decimals(Chunk(source, frame, self.faults.add), self.decimals)
        picked, graded = chosen(source, frame, self.faults.add), scores(source, frame, self.faults.add)
        if not self.knows_responses:
            return
        field, labelled = name_of(source.scored or ""), self._labelled(graded, len(ids))
        places = [surveyed.places.get(response_id) for response_id in ids]
        for row, (number, response_id, place) in enumerate(zip(rows, ids, places, strict=True)):
            if place is None:
                self._unknown_response(response_id, source, number, field)
                continue
            for rater in graded:
                if self._is_repeated(place, rater.rater):
                    rule = f"rater '{rater.rater}' scores response '{response_id}' twice"
                    self.faults.add(InputError(rule, file=source.file, row=number, field=field))
            surveyed.labelled[place] |= labelled[row]
            surveyed.drawn[place] |= labelled[row] and not picked[row]

    def marks(self, source: Source, frame: pd.DataFrame) -> None:
        some = marks(source, frame, self.faults.add)
        if not self.knows_responses:
            return
        rows = zip(some.rows, some.response_id, some.rater_id, some.criterion_id, strict=True)
        for number, response_id, rater_id, criterion_id in rows:
            place = self.surveyed.places.get(response_id)
            if place is None:
                self._unknown_response(response_id, source, number, name_of(source.marks["response_id"]))
            elif self._is_repeated(place, rater_id, criterion_id):
                rule = f"rater '{rater_id}' marks criterion '{criterion_id}' of response '{response_id}' twice"
                field = name_of(source.marks["criterion_id"])
                self.faults.add(InputError(rule, file=source.file, row=number, field=field))

    def _is_repeated(self, place: int, *words: str) -> bool:
        """Whether this was said of the response before."""
        known = self.said[words]
        is_known = place in known
        known.add(place)
        return is_known

    def _unknown_response(self, response_id: str, source: Source, row: int, field: str) -> None:
        hint = likely_id(response_id, self.surveyed.places)
        rule = f"response '{response_id}' is unknown"
        self.faults.add(InputError(rule, file=source.file, row=row, field=field, hint=hint))
