"""Deterministic splits by id, and the shards of the canonical tables, a chunk of a source each.

The same ids and seed give the same split on any machine, in any order of the rows.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import Row
from rubricflow.tasks.core.contracts.settings.data import Split
from rubricflow.tasks.core.contracts.settings.judge import Foreign
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.llm.foreign import foreign_rows, foreign_score, is_off_scale
from rubricflow.tasks.core.store.cells import quoted
from rubricflow.tasks.grading.ingest.canonical import (
    answer_tables,
    answers,
    grading_tables,
    mark_table,
    marks,
    scored,
    scores,
)
from rubricflow.tasks.grading.ingest.sources import Stream
from rubricflow.tasks.grading.ingest.survey import Survey

T = TypeVar("T")


def splits(surveyed: Survey, plan: Split, able: bytearray | None = None) -> list[str | None]:
    """The split of each response by its place; None beyond the limit.

    able: whether the judge can grade each response, where that is known; a label of one that it cannot is not drawn.
    """
    labelled = surveyed.labelled
    if able is not None:
        labelled = bytearray(has & can for has, can in zip(labelled, able, strict=True))

    def within(column: Iterable[T]) -> list[T]:
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
        return sorted(names, key=lambda name: hashlib.sha256(f"{plan.seed}:{name}".encode()).digest())

    drawn = {}
    if plan.shares:
        sizes, before = Counter(str(wholes[at]) for at in free), 0
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


def shards(
    sources: Sequence[Stream], surveyed: Survey, split_of: Sequence[str | None]
) -> Iterator[dict[type[Row], pa.Table]]:
    """The tables of each chunk of responses, then of scores and of marks in files of their own. split_of: of each
    response, by its place; None for one to leave out."""
    for source, chunks, _ in sources:
        for frame in chunks() if source.responses else ():
            some = answers(source, frame)
            mine = [split_of[surveyed.places[key]] for key in some.response_id]
            if any(mine):
                yield answer_tables(some, scores(source, frame), mine)
    for source, chunks, _ in sources:
        for frame in chunks() if source.scored else ():
            _, ids = scored(source, frame, surveyed.places)
            places = [surveyed.places[key] for key in ids]
            keep = [at for at, place in enumerate(places) if split_of[place] is not None]
            yield grading_tables(ids, [surveyed.item_id[place] for place in places], scores(source, frame), keep)
    for source, chunks, _ in sources:
        for frame in chunks() if source.marks else ():
            given = marks(source, frame)
            is_graded = [split_of[surveyed.places[key]] is not None for key in given.response_id]
            yield {Judgments: mark_table(given, is_graded)}


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
