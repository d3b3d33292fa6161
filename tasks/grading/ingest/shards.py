"""The shards of the canonical tables, a chunk of a source each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from operator import and_
from typing import TypeVar

import pyarrow as pa

from rubricflow.tasks.core.contracts.schema import Row
from rubricflow.tasks.core.contracts.settings.study import Split
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.grading.ingest.canonical import answers, marks, scored, scores
from rubricflow.tasks.grading.ingest.rows import answer_tables, grading_tables, mark_table
from rubricflow.tasks.grading.ingest.sources import Stream
from rubricflow.tasks.grading.ingest.split import split
from rubricflow.tasks.grading.ingest.survey import Survey

T = TypeVar("T")


def sides(surveyed: Survey, plan: Split, able: bytearray | None = None) -> list[str | None]:
    """The split of each response by its place; None beyond the limit.

    able: whether the judge can grade each response, where that is known; a label of one that it cannot is not drawn.
    """

    def within(column: Iterable[T]) -> list[T]:
        return list(compress(column, surveyed.kept))

    labelled = surveyed.labelled if able is None else bytes(map(and_, surveyed.labelled, able))
    known = within(surveyed.places), within(surveyed.item_id), within(surveyed.author_id), within(surveyed.given)
    drawn = iter(split(*known, within(labelled), plan))
    return [next(drawn) if kept else None for kept in surveyed.kept]


def shards(
    sources: Sequence[Stream], surveyed: Survey, side_of: Sequence[str | None]
) -> Iterator[dict[type[Row], pa.Table]]:
    """The tables of each chunk of responses, then of scores and of marks in files of their own."""
    for source, chunks, _ in (stream for stream in sources if stream.source.responses):
        for frame in chunks():
            some = answers(source, frame)
            mine = [side_of[surveyed.places[key]] for key in some.response_id]
            if any(mine):
                yield answer_tables(some, scores(source, frame), mine)
    for source, chunks, _ in (stream for stream in sources if stream.source.scored):
        for frame in chunks():
            _, ids = scored(source, frame, surveyed.places)
            places = [surveyed.places[key] for key in ids]
            keep = [at for at, place in enumerate(places) if side_of[place] is not None]
            items = [surveyed.item_id[place] for place in places]
            yield grading_tables(ids, items, scores(source, frame), keep)
    for source, chunks, _ in (stream for stream in sources if stream.source.marks):
        for frame in chunks():
            given = marks(source, frame)
            yield {
                Judgments: mark_table(given, [side_of[surveyed.places[key]] is not None for key in given.response_id])
            }
