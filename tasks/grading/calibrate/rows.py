"""The rows that calibration works on: one machine grading per response, with its split and its human score."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.stats.arrays import Bools
from rubricflow.tasks.core.stats.scores import OF_SEVERAL, target_scores
from rubricflow.tasks.grading.calibrate.samples import one_per_response
from rubricflow.tasks.grading.calibrate.texts import Blocks, taken

GRADING = [
    "response_id",
    "item_id",
    "rater_id",
    "sample",
    "score",
    "trait_scores",
    "signals",
    "status",
    "unscored_reason",
]
"""The columns of gradings that calibration reads."""


class Item(NamedTuple):
    """An item and its graded responses.

    rows: in the order of their ids, the columns of GRADING, `split`, `author_id`, the human score `target`, null
    without one, and `ratings`, how many persons' scores it is the mean of; blocks: what their texts tell, row by row,
    none where no mapping asks for it.
    """

    item_id: str
    bundle: Bundle
    rows: pa.Table
    blocks: Blocks = {}

    def take(self, start: int, length: int) -> Item:
        """Some neighbouring responses."""
        part = slice(start, start + length)
        return self._replace(rows=self.rows.slice(start, length), blocks=taken(self.blocks, part))

    def filter(self, rows: Bools) -> Item:
        """Some responses; rows: (n,)."""
        return self._replace(rows=self.rows.filter(pa.array(rows)), blocks=taken(self.blocks, rows))


def graded_items(
    bundle_of: Mapping[str, Bundle], gradings: pa.Table, responses: pa.Table, people: pa.Table, target: str
) -> list[Item]:
    """All items in the order of their ids, those without a grading too.

    bundle_of: item -> its bundle; gradings: one machine rater's, columns GRADING; responses: `response_id`, `split`,
    `author_id`; people: as `target_scores` reads it; target: a rater or 'mean'. ContractError for a grading of an item
    that has no bundle.
    """
    rows = one_per_response(gradings)
    human = target_scores(people, target)
    lookups = (
        ("split", responses, "split"),
        ("author_id", responses, "author_id"),
        ("target", human, "score"),
        ("ratings", _ratings(people, human, target), "ratings"),
    )
    for name, table, column in lookups:
        row_of_response = pc.index_in(rows["response_id"], value_set=table["response_id"])
        rows = rows.append_column(name, table[column].take(row_of_response))
    return by_item(bundle_of, rows)


def by_item(bundle_of: Mapping[str, Bundle], rows: pa.Table) -> list[Item]:
    """Rows of responses, one of each, as their items in the order of their ids, those without a row too.

    ContractError for rows of an item that has no bundle.
    """
    rows = rows.sort_by([("item_id", "ascending"), ("response_id", "ascending")]).combine_chunks()
    counts = rows.group_by("item_id").aggregate([("response_id", "count")]).to_pydict()
    sizes = dict(zip(counts["item_id"], counts["response_id_count"], strict=True))
    if unknown := sorted(sizes.keys() - bundle_of.keys()):
        raise ContractError(f"gradings name item '{unknown[0]}', which has no bundle")
    items, start = [], 0
    # Arrow and Python agree on the order of strings: by code point.
    for item_id in sorted(bundle_of):
        items.append(Item(item_id, bundle_of[item_id], rows.slice(start, sizes.get(item_id, 0))))
        start += sizes.get(item_id, 0)
    return items


def whole_responses(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Tables of `rows` rows, the last one of fewer, with all rows of a response in one table.

    batches: in the order of the responses, so that rows of the same one follow each other.
    """
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        while count > rows:
            table = pa.Table.from_batches(waiting)
            end = _end_of_response(table["response_id"], rows)
            if end == len(table):  # it may go on in the next batch
                break
            yield table.slice(0, end)
            waiting, count = table.slice(end).to_batches(), count - end
    if waiting:
        yield pa.Table.from_batches(waiting)


def _end_of_response(ids: pa.ChunkedArray, rows: int) -> int:
    """The first place from `rows` on at which another response begins, the end where there is none."""
    last = ids[rows - 1].as_py()
    others = pc.not_equal(ids.slice(rows), last)
    first = pc.index(others, True).as_py()
    return len(ids) if first < 0 else rows + int(first)


def only_rater(raters: Iterable[str]) -> str:
    """The rater of all gradings, '' without any; ContractError for several."""
    names = sorted(set(raters))
    if len(names) > 1:
        raise ContractError(f"gradings of one rater are calibrated at a time, not of {', '.join(names)}")
    return names[0] if names else ""


def _ratings(people: pa.Table, human: pa.Table, target: str) -> pa.Table:
    """Columns `response_id` and `ratings`: 1 for a rater's score, the number of persons for what is made of theirs."""
    if target not in OF_SEVERAL:
        return human.select(["response_id"]).append_column("ratings", pa.array([1] * len(human), pa.int64()))
    scores = people.filter(pc.and_(pc.equal(people["rater_kind"], "human"), pc.is_valid(people["score"])))
    return scores.group_by("response_id").aggregate([("score", "count")]).rename_columns(["response_id", "ratings"])
