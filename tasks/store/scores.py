"""Reading what the score frame is made from, some items at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tasks.contracts.reference import TableRef
from tasks.stats.scores import PROBABILITIES, ScoreTables, narrow
from tasks.store.counted import counted
from tasks.store.ordered import packed
from tasks.store.shards import give_back
from tasks.store.warehouse import Run

BATCH = 20_000
"""Responses read at a time, more only of an item that has more."""
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
    """What the score frame is made from, some items at a time: no texts, and of a grading only score and signals.

    predicted: columns of `predictions` beside the score; signals: whether the machine's signals are wanted.
    """
    sizes = counted(run, responses, "item_id")
    kinds = run.read(items, ["item_id", "type"])
    for names in packed(sizes, BATCH) or [[]]:
        some = pc.field("item_id").isin(pa.array(names, pa.string()))
        columns = ["response_id", "score", *(["signals"] if signals else [])]
        yield ScoreTables(
            kinds,
            run.read(responses, ["response_id", "item_id", "author_id", "split", "groups"], some),
            run.read(people, ["response_id", "rater_id", "rater_kind", "score"], some),
            narrow(run.batches(gradings, columns, where=some)),
            run.read(predictions, ["response_id", "score", *predicted], some),
        )
        give_back()
