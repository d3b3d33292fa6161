"""What has to be known of all rows before the first is written: ids, labels, and the splits that the source gives; then
deterministic splits by id, and the shards of the canonical tables, a chunk of a source each.

The texts pass by; what stays is a few words for each response. The same ids and seed give the same split on any
machine, in any order of the rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import schema
from rubricflow.tasks.core.contracts.settings.data import Column, Split
from rubricflow.tasks.core.contracts.settings.judge import Foreign
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES, Responses
from rubricflow.tasks.core.contracts.tables.judging import Judgments, Preferences
from rubricflow.tasks.core.llm.foreign import foreign_rows, foreign_score, is_off_scale
from rubricflow.tasks.core.stats.scores import OF_SEVERAL
from rubricflow.tasks.core.store.cells import likely_id, quoted
from rubricflow.tasks.core.store.source import Faults
from rubricflow.tasks.core.text.digest import digest_bytes
from rubricflow.tasks.grading.ingest.canonical import (
    Record,
    Scores,
    Tables,
    answer_tables,
    answers,
    chosen,
    grading_tables,
    items,
    marks,
    pairs,
    preference_table,
    scored,
    scores,
)
from rubricflow.tasks.grading.ingest.columns import Chunk, Decimals, look_at_decimals
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

    def item_of(self, response_id: str) -> str:
        """The item of a response that is known."""
        return self.item_id[self.places[response_id]]


def survey(
    streams: Sequence[Stream],
    plan: Split,
    target: str,
    limit: int | None = None,
    only: tuple[str, ...] = (),
    keep: Callable[[Tables], object] | None = None,
) -> Survey:
    """Look at all rows of all sources; of responses named in `only`, or of all where it is empty, `limit` of each item
    are kept where there is a limit, and the items that have any. They are drawn by the digest of their ids: by chance
    as far as the texts go, the same in whatever order the files come, and a higher limit keeps all that a lower one
    does. Sources may hold items alone. keep: is given the tables of each chunk of responses, then of scores and of
    marks in files of their own, until something is wrong.

    InputErrors name all that is wrong, the first ones each by file, line, row, column and rule: a missing column or
    value, a duplicate id, an item repeated with another content, an unknown item or response, a score that is no finite
    number, a split of the source that has an author or item on two sides where `plan` keeps them whole, a response
    without an author where it needs one. Where items are lost it is not held against responses that theirs is unknown,
    and so on.
    """
    surveyed, faults = Survey(), Faults()
    surveyor = _Surveyor(surveyed, plan, target, faults, keep)

    def read(section: str, look: Callable[[Chunk], None]) -> None:
        for source, chunks, _ in streams:
            if getattr(source, section):
                with faults.gathering():
                    for frame in chunks(faults.add):
                        look(Chunk(source, frame, faults.add))

    read("items", surveyor.items)
    surveyor.knows_items = not faults.count
    read("responses", surveyor.responses)
    read("pairs", surveyor.pairs)
    surveyed.drawn = surveyed.labelled[:]
    files = [stream.source.file for stream in streams if stream.source.responses or stream.source.pairs]
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
        of_item = defaultdict[str, list[str]](list)
        for response_id in set(only) & surveyed.places.keys() if only else surveyed.places:
            of_item[surveyed.item_of(response_id)].append(response_id)
        surveyed.items = {key: row for key, row in surveyed.items.items() if key in of_item}
        surveyed.kept = bytearray(len(surveyed.kept))
        for ids in of_item.values():
            drawn = sorted(ids, key=digest_bytes)
            for response_id in drawn[:limit]:
                surveyed.kept[surveyed.places[response_id]] = True
    return surveyed


@dataclass
class _Surveyor:
    """Adds the rows of chunks to a survey, by the sections of their sources."""

    surveyed: Survey
    plan: Split
    target: str
    faults: Faults
    keep: Callable[[Tables], object] | None
    knows_items: bool = True
    """Whether the items are all there, so that an unknown one is an error."""
    knows_responses: bool = True
    sides: dict[str, str] = field(default_factory=dict)
    """Author or item → the split that the source gives it."""
    decimals: Decimals = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    """Response of a pair → the hash of its words, which all together may not be held."""
    said: dict[tuple[str, ...], set[int]] = field(default_factory=lambda: defaultdict(set))
    """(Rater) or (rater, criterion) → the places of the responses that were scored or marked."""

    def items(self, chunk: Chunk) -> None:
        for number, row in items(chunk):
            known = self.surveyed.items.setdefault(row["item_id"], row)
            if known != row:
                other = next(name for name in row if known[name] != row[name])
                chunk.refuse(number, other, f"item '{row['item_id']}' is given twice with different content")

    def responses(self, chunk: Chunk) -> None:
        surveyed, some = self.surveyed, answers(chunk)
        authors = {author: author for author in surveyed.author_id[-1:]}
        rows = zip(chunk.rows, some.response_id, some.item_id, some.author_id, some.split, strict=True)
        for number, response_id, item_id, author_id, split in rows:
            if not (response_id and item_id in surveyed.items):
                self.faults.lost_rows = True
            if response_id and item_id:  # that they are empty is reported already
                self._check_response(chunk, number, response_id, item_id, author_id, split)
            if not response_id or response_id in surveyed.places or item_id not in surveyed.items:
                continue
            surveyed.places[response_id] = len(surveyed.places)
            # One string for all responses of an item or author, not one for each.
            surveyed.item_id.append(surveyed.items[item_id]["item_id"])
            surveyed.author_id.append(authors.setdefault(author_id, author_id))
            surveyed.given.append(split)
            surveyed.kept.append(True)
        surveyed.oddities.look(some)
        graded = self._scores(chunk)
        surveyed.labelled += self._labelled(graded, len(chunk.rows))
        self._keep(lambda: answer_tables(some, graded))

    def _keep(self, make: Callable[[], Tables]) -> None:
        if self.keep and not self.faults.count:
            self.keep(make())

    def _check_response(
        self, chunk: Chunk, number: int, response_id: str, item_id: str, author_id: str | None, split: str | None
    ) -> None:
        """Reports what is wrong with a response, given those before it."""
        by, hint = self.plan.by, None
        whole = {"response": None, "author": author_id, "item": item_id}[by]
        if response_id in self.surveyed.places:
            rule, name = f"response id '{response_id}' occurs twice", "response_id"
        elif item_id not in self.surveyed.items and self.knows_items:
            rule = f"item '{item_id}' is unknown"
            name = "item_id"
            hint = likely_id(item_id, self.surveyed.items)
        elif by == "author" and split is None and author_id is None:
            rule = f"a split by author needs an author for every response; '{response_id}' has none"
            name = "author_id"
        elif split is not None and whole is not None and self.sides.setdefault(whole, split) != split:
            rule = f"{by} '{whole}' is on two sides, '{self.sides[whole]}' and '{split}'"
            name, hint = "split", f"split.by is {by}"
        else:
            return
        chunk.refuse(number, chunk.source.responses.get(name, name), rule, hint)

    def _scores(self, chunk: Chunk) -> list[Scores]:
        look_at_decimals(chunk, self.decimals)
        return scores(chunk)

    def _labelled(self, graded: Sequence[Scores], count: int) -> bytearray:
        """Whether each answer of a chunk has a score that counts as the target, see `target_scores`."""
        labelled = bytearray(count)
        for rater in graded:
            if rater.rater == self.target or (self.target in OF_SEVERAL and rater.kind == "human"):
                for at, score in enumerate(rater.score):
                    labelled[at] |= score is not None
        return labelled

    def scores(self, chunk: Chunk) -> None:
        surveyed = self.surveyed
        ids = scored(chunk, self.surveyed.places)
        graded = self._scores(chunk)
        picked = chosen(chunk)
        if not self.knows_responses:
            return
        column = chunk.source.scored or ""
        labelled = self._labelled(graded, len(ids))
        for row, (number, response_id) in enumerate(zip(chunk.rows, ids, strict=True)):
            place = self._known(chunk, number, column, response_id)
            if place is None:
                continue
            for rater in graded:
                if self._is_repeated(place, rater.rater):
                    chunk.refuse(number, column, f"rater '{rater.rater}' scores response '{response_id}' twice")
            surveyed.labelled[place] |= labelled[row]
            surveyed.drawn[place] |= labelled[row] and not picked[row]
        self._keep(lambda: grading_tables(ids, list(map(surveyed.item_of, ids)), graded))

    def marks(self, chunk: Chunk) -> None:
        table = marks(chunk)
        mapped = chunk.source.marks
        if not self.knows_responses:
            return
        said = table.select(["response_id", "rater_id", "criterion_id"]).to_pydict().values()
        for number, response_id, rater_id, criterion_id in zip(chunk.rows, *said, strict=True):
            place = self._known(chunk, number, mapped["response_id"], response_id)
            if place is not None and self._is_repeated(place, rater_id, criterion_id):
                rule = f"rater '{rater_id}' marks criterion '{criterion_id}' of response '{response_id}' twice"
                chunk.refuse(number, mapped["criterion_id"], rule)
        self._keep(lambda: {Judgments: table})

    def pairs(self, chunk: Chunk) -> None:
        """The answers of pairs as responses, one that is in several pairs once; then what people prefer."""
        some = pairs(chunk)
        mapped = chunk.source.pairs
        places = self.surveyed.places
        source = some.answers.source
        frame = some.answers.frame
        report = chunk.report
        for response_id, text, row in zip(frame["response_id"], frame["text"], some.answers.rows, strict=True):
            if self.texts.setdefault(response_id, hash(text)) != hash(text):
                rule = f"response '{response_id}' is given twice with different words"
                hint = "name a column of the pair's own id (pair_id), or of the answers' (response_a, response_b)"
                chunk.refuse(row, mapped["text_a"], rule, hint)
        is_new = ~(frame["response_id"].isin(places) | frame.duplicated("response_id"))
        self.responses(Chunk(source, frame[is_new], report))
        said = zip(chunk.rows, some.response_a, some.response_b, some.rater_id, some.winner, strict=True)
        for row, one, other, rater_id, winner in said:
            first, second = sorted((one, other))
            if one == other:
                chunk.refuse(row, mapped["text_b"], f"response '{one}' is paired with itself")
            elif winner and first in places and self._is_repeated(places[first], "pair", rater_id, second):
                chunk.refuse(row, mapped["winner"], f"rater '{rater_id}' prefers one of '{one}' and '{other}' twice")
        self._keep(lambda: {Preferences: preference_table(some)})

    def _is_repeated(self, place: int, *words: str) -> bool:
        """Whether this was said of the response before."""
        known = self.said[words]
        is_known = place in known
        known.add(place)
        return is_known

    def _known(self, chunk: Chunk, row: int, column: Column, response_id: str) -> int | None:
        """The place of a response; None once it is reported that it is unknown."""
        place = self.surveyed.places.get(response_id)
        if place is None:
            hint = likely_id(response_id, self.surveyed.places)
            chunk.refuse(row, column, f"response '{response_id}' is unknown", hint)
        return place


def splits(surveyed: Survey, plan: Split, able: bytearray | None = None) -> list[str | None]:
    """The split of each response by its place; None beyond the limit.

    able: whether the judge can grade each response, where that is known; a label of one that it cannot is not drawn.
    """
    labelled = surveyed.labelled
    if able is not None:
        labelled = bytearray(has & can for has, can in zip(labelled, able, strict=True))

    def within(column: Iterable[Any]) -> list[Any]:
        return list(compress(column, surveyed.kept))

    known = within(surveyed.places), within(surveyed.item_id), within(surveyed.author_id), within(surveyed.given)
    drawn = iter(split(*known, within(labelled), plan))
    return [next(drawn) if kept else None for kept in surveyed.kept]


def split(
    response_id: Sequence[str],
    item_id: Sequence[str],
    author_id: Sequence[str | None],
    given: Sequence[str | None],
    labelled: Sequence[int],
    plan: Split,
) -> list[str]:
    """'train', 'calibration', 'crossed' or 'test' for each response (or what the source gives, `given`, which wins
    where it gives anything); 'train' only where the plan names shares, and 'crossed' where it crosses.

    With shares, whole responses, authors or items, ordered by the SHA-256 of seed and id, fill train, then calibration,
    up to their shares of the free responses; the rest is test.

    Otherwise within each item (or the whole set, `plan.per`), whole responses, authors or items, ordered by the SHA-256
    of seed and id, are taken for calibration until they hold `plan.calibration` labelled responses, or half of the
    labelled; the rest is test. A response without a label is drawn only with an author or item that has labels (it
    calibrates nothing, but stays out of the test). By author or item, all of its responses are on one side, in all
    items: what the source leaves free follows what the source gives the others, which is one side for each author or
    item. A response whose label was chosen is on neither side, and means nothing for others.

    Where the plan crosses, every free response with a label is 'crossed'; the rest is test.
    """
    wholes: Sequence[str | None] = {"response": response_id, "author": author_id, "item": item_id}[plan.by]
    fixed = {whole: side for whole, side in zip(wholes, given, strict=True) if side not in (None, "chosen")}
    fixed.pop(None, None)
    sides = [side or fixed.get(whole) for whole, side in zip(wholes, given, strict=True)]
    free = [at for at, side in enumerate(sides) if side is None]
    if plan.cross:
        return [side or ("crossed" if has else "test") for side, has in zip(sides, labelled, strict=True)]

    def in_order(names: Mapping[str, int]) -> list[str]:
        return sorted(names, key=lambda name: digest_bytes(f"{plan.seed}:{name}"))

    drawn = {}
    if plan.shares:
        sizes = Counter(str(wholes[at]) for at in free)
        before = 0
        train, calibration, _ = plan.shares
        for whole in in_order(sizes):
            # What lies by its middle before a boundary is on that side: no side is short by a whole author.
            middle = (before + sizes[whole] / 2) / len(free)
            drawn[whole] = "train" if middle < train else "calibration" if middle < train + calibration else "test"
            before += sizes[whole]
    else:
        # An author answers several items and an item is whole: only responses can be drawn item by item.
        apart = plan.per == "item" and plan.by == "response"
        pools: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for at in free:
            pools[item_id[at] if apart else ""][str(wholes[at])] += bool(labelled[at])
        wanted = plan.calibration
        if plan.per == "item" and plan.by != "response":
            wanted *= len({item_id[at] for at in free})
        for labels in pools.values():
            left = min(wanted, sum(labels.values()) // 2)
            for whole in in_order(labels):
                if 0 < labels[whole] <= left:
                    left -= labels[whole]
                    drawn[whole] = "calibration"
    return [side or drawn.get(str(whole), "test") for whole, side in zip(wholes, sides, strict=True)]


def shards(chunks: Iterable[Tables], surveyed: Survey, split_of: Sequence[str | None]) -> Iterator[Tables]:
    """The tables of each chunk as they are to be stored: every response in its split, and nothing of those that have
    none. chunks: what the survey kept; split_of: of each response, by its place."""
    graded = pa.array([name for name, side in zip(surveyed.places, split_of, strict=True) if side], pa.string())
    field = schema(Responses).field("split")
    for tables in chunks:
        kept = {}
        for row, table in tables.items():
            names = ("response_a", "response_b") if row is Preferences else ("response_id",)
            for name in names:
                table = table.filter(pc.is_in(table[name], value_set=graded))
            kept[row] = table
        if Responses in kept:
            responses = kept[Responses]
            sides = [split_of[surveyed.places[name]] for name in responses["response_id"].to_pylist()]
            place = schema(Responses).get_field_index(field.name)
            kept[Responses] = responses.set_column(place, field, pa.array(sides, field.type))
        if Responses not in kept or len(kept[Responses]):
            yield kept


def gradable(surveyed: Survey, foreign: Foreign, base: Path) -> bytearray:
    """Whether each response, by its place, is within the limit and has a recorded reply that reads as a score on the
    judge's own scale, where the study gives one: the others can calibrate nothing.

    InputError names the table and the rule: see `foreign_rows`, and where no reply is about a response of the data, or
    none can be read.
    """
    replies = dict[str, str | None]()
    for row in foreign_rows(foreign, base):
        replies[row["response_id"]] = replies.get(row["response_id"]) or row["reply"]
    about = [name for name in surveyed.places if replies.get(name) is not None]
    if not about and surveyed.places:
        rule = f"no reply is about a response of the data, such as {quoted(next(iter(surveyed.places)))}"
        hint = f"the first is about {quoted(next(iter(replies)))}"
        raise InputError(rule, file=foreign.file, field="response_id", hint=hint)

    def can(name: str) -> bool:
        item_id = surveyed.item_id[surveyed.places[name]]
        score = foreign_score(foreign, item_id, name, replies[name] or "")
        return score is not None and not is_off_scale(score, foreign, item_id)

    able = bytearray(len(surveyed.places))
    for name in about:
        able[surveyed.places[name]] = surveyed.kept[surveyed.places[name]] and can(name)
    if about and not any(able) and not any(map(can, about)):
        rule = f"none of {len(about)} replies reads as a score; the first begins {quoted(replies[about[0]])}"
        keys = ["/".join([key] if isinstance(key, str) else key) for key in foreign.reader.json_keys]
        hint = f"looked for {' + '.join(keys) or 'the pattern'}"
        raise InputError(rule, file=foreign.file, field="judge.foreign.reader", hint=hint)
    return able


def drawn_in_words(surveyed: Survey, able: bytearray, split_of: Sequence[str | None]) -> str:
    """What calibrates, in words, and what it was drawn from; split_of: of each response, by its place."""
    usable = unusable = count = 0
    for labelled, can, side in zip(surveyed.labelled, able, split_of, strict=True):
        if labelled and side:
            usable, unusable = usable + bool(can), unusable + (not can)
            count += bool(can) and side in CALIBRATES
    return (
        f"split: {count} of {usable} labelled responses with a readable recorded reply calibrate; "
        f"{unusable} labelled ones have none"
    )
