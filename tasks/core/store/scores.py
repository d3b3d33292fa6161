"""Reading scores and marks: what the score frame is made from, some items at a time, and how many are marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.stats.promise import MarkedAnswers
from rubricflow.tasks.core.stats.scores import PROBABILITIES, ScoreTables, narrow, target_scores
from rubricflow.tasks.core.store.catalogue import counted
from rubricflow.tasks.core.store.ordered import packed
from rubricflow.tasks.core.store.warehouse import Run, give_back

BATCH = 20_000
"""Responses read at a time."""
EVALUATED = ("text_only", "low", "high", "risk", "route", PROBABILITIES)
"""What the evaluation looks at of a prediction beside its score."""


def read_scores(
    run: Run,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    gradings: TableRef,
    predictions: TableRef,
    *,
    predicted: Sequence[str] = EVALUATED,
    signals: bool = True,
) -> Iterator[ScoreTables]:
    """What the score frame is made from, some responses at a time: no texts, and of a grading only score and signals.

    predicted: columns of `predictions` beside the score; signals: whether the machine's signals are wanted.
    """
    kinds = run.read(items, ["item_id", "type"])
    columns = ["response_id", "score", *(["signals"] if signals else [])]
    for some in _together(run, responses):
        yield ScoreTables(
            kinds,
            run.read(responses, ["response_id", "item_id", "author_id", "split", "groups"], some),
            run.read(people, ["response_id", "rater_id", "rater_kind", "score"], some),
            narrow(run.batches(gradings, columns, where=some)),
            run.read(predictions, ["response_id", "score", *predicted], some),
        )
        give_back()


def read_marked(run: Run, responses: TableRef, people: TableRef, target: str) -> list[MarkedAnswers]:
    """How many answers every item has, marked ones, and marked ones that a promise may rest on, by the ids of items."""
    given = target_scores(run.read(people, ["response_id", "rater_id", "rater_kind", "score"]), target)["response_id"]
    parts = [pa.table({"item_id": pa.array([], pa.string())} | dict.fromkeys(_COUNTED, pa.array([], pa.int64())))]
    for batch in run.batches(responses, ["response_id", "item_id", "split", "text"]):
        marked = pc.is_in(batch["response_id"], value_set=given)
        counting = pc.and_(marked, pc.is_in(batch["split"], value_set=pa.array(CALIBRATES)))
        words = pc.count_substring_regex(batch["text"], r"[^\s\p{Z}]+")
        columns = (pa.repeat(1, len(batch)), marked, counting, words)
        counts = dict(zip(_COUNTED, (column.cast(pa.int64()) for column in columns), strict=True))
        rows = pa.table({"item_id": batch["item_id"]} | counts)
        parts.append(_summed(rows))
    rows = _summed(pa.concat_tables(parts)).sort_by("item_id")
    return [MarkedAnswers(**row) for row in rows.to_pylist()]


_COUNTED = ("answers", "marked", "counting", "words")


def _summed(rows: pa.Table) -> pa.Table:
    sums = rows.group_by("item_id", use_threads=False).aggregate([(name, "sum") for name in _COUNTED])
    return sums.rename_columns(["item_id", *_COUNTED])


def _together(run: Run, responses: TableRef) -> Iterator[pc.Expression]:
    """Which rows are read together: those of some items or, of an item with many responses, from one id to another."""
    sizes = counted(run, responses, "item_id")
    for names in packed(sizes, BATCH) or [[]]:
        of_items = pc.field("item_id").isin(pa.array(names, pa.string()))
        if sum(sizes[name] for name in names) <= BATCH:
            yield of_items
            continue
        ids = run.read(responses, ["response_id"], of_items)["response_id"]
        ordered = ids.take(pc.sort_indices(ids))
        response_id = pc.field("response_id")
        for start in range(0, len(ordered), BATCH):
            first, last = ordered[start], ordered[min(start + BATCH, len(ordered)) - 1]
            yield of_items & (response_id >= first) & (response_id <= last)
