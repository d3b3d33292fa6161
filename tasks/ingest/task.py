"""The door of ingest: source files in, canonical tables out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa
from prefect import task

from tasks.contracts.errors import InputError
from tasks.contracts.reference import TableRef
from tasks.contracts.schema import Row
from tasks.contracts.settings.study import Split, Study
from tasks.contracts.tables.data import Items, Responses, Units
from tasks.contracts.tables.judging import Gradings, Judgments
from tasks.ingest.canonical import answer_tables, answers, grading_table, mark_table, marks, scored, scores
from tasks.ingest.sources import Stream, evaluation_only, streams
from tasks.ingest.split import split
from tasks.ingest.survey import Survey, survey
from tasks.stats.target import MEAN
from tasks.store.naming import named
from tasks.store.warehouse import Run

T = TypeVar("T")


class Ingested(NamedTuple):
    """What ingest writes; gradings and judgments are those of people, and those that the source recorded of a
    machine."""

    items: TableRef
    responses: TableRef
    units: TableRef
    gradings: TableRef
    judgments: TableRef


@task(task_run_name=named("ingest"))
def ingest(run: Run, study: Study, base: Path, limit: int | None = None) -> Ingested:
    """Read the sources, map them, cut units, and split; with a limit only the first responses of each item.

    The sources are read twice, a chunk at a time: first to refuse what is wrong and to draw the split, so that nothing
    is written of bad input, then to write a shard for each chunk. Where nothing may be fitted on the data, all of it is
    test data, whatever a source says. InputError for bad input (see `chunks` and `survey`), or a target that is no
    person of the sources.
    """
    if not run.done("ingest", "all"):
        sources = streams(study.data, base)
        target = study.evaluation.target
        kinds = {rater.rater: rater.kind for source, _ in sources for rater in source.scores}
        people = sorted(rater for rater, kind in kinds.items() if kind != "replayed")
        if kinds and target not in {MEAN, *people}:
            rule = f"'{target}' is no rater of the sources; there are {', '.join(people) or 'none that are people'}"
            raise InputError(rule, field="evaluation.target")
        found = survey(sources, study.split, target, limit)
        sides = _sides(found, study.split)
        if evaluation_only(study.data):
            sides = [side and "test" for side in sides]
        for number, tables in enumerate(_shards(sources, found, sides)):
            run.commit("ingest", f"{number:05d}", tables)
        # The last shard says that the others are all there.
        run.commit(
            "ingest", "all", {Items: found.items.values(), Responses: [], Units: [], Gradings: [], Judgments: []}
        )
    return Ingested(*(run.ref(row, "ingest") for row in (Items, Responses, Units, Gradings, Judgments)))


def _sides(found: Survey, plan: Split) -> list[str | None]:
    """The split of each response by its place; None beyond the limit."""

    def within(column: Iterable[T]) -> list[T]:
        return list(compress(column, found.kept))

    known = within(found.places), within(found.item_id), within(found.author_id), within(found.given)
    drawn = iter(split(*known, within(found.labelled), plan))
    return [next(drawn) if kept else None for kept in found.kept]


def _shards(
    sources: Sequence[Stream], found: Survey, sides: Sequence[str | None]
) -> Iterator[dict[type[Row], pa.Table]]:
    """The tables of each chunk of responses, then of scores and of marks in files of their own."""
    for source, chunks in (stream for stream in sources if stream.source.responses):
        for frame in chunks():
            some = answers(source, frame)
            mine = [sides[found.places[key]] for key in some.response_id]
            if any(mine):
                yield answer_tables(some, scores(source, frame), mine)
    for source, chunks in (stream for stream in sources if stream.source.scored):
        for frame in chunks():
            _, ids = scored(source, frame, found.places)
            places = [found.places[key] for key in ids]
            keep = [at for at, place in enumerate(places) if sides[place] is not None]
            items = [found.item_id[place] for place in places]
            yield {Gradings: grading_table(ids, items, scores(source, frame), keep)}
    for source, chunks in (stream for stream in sources if stream.source.marks):
        for frame in chunks():
            given = marks(source, frame)
            yield {Judgments: mark_table(given, [sides[found.places[key]] is not None for key in given.response_id])}
