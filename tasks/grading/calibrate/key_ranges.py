"""The packs that a run's gradings are predicted in: which there are, and the gradings of each, read by its keys."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.store.ordered import in_order
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.calibrate.assignment import GradingPack
from rubricflow.tasks.grading.calibrate.rows import GRADING, whole_responses

KEYS = ("item_id", "response_id")


def in_packs(run: Run, gradings: TableRef, rows: int) -> Iterator[tuple[str, pa.Table]]:
    """Name and gradings of every pack, columns GRADING, in the order of KEYS; see `whole_responses`."""
    return _numbered(whole_responses(in_order(run, gradings, GRADING, KEYS), rows))


def packs(run: Run, gradings: TableRef, rows: int) -> Iterator[GradingPack]:
    """The packs of `in_packs` without their gradings, for which only keys are read."""
    for name, keys in _numbered(whole_responses(in_order(run, gradings, KEYS, KEYS), rows)):
        first, last = keys.take([0, len(keys) - 1]).select(KEYS).to_pylist()
        yield GradingPack(
            name, len(keys), (first["item_id"], first["response_id"]), (last["item_id"], last["response_id"])
        )


def gradings_of(run: Run, gradings: TableRef, pack: GradingPack) -> pa.Table:
    """The gradings of a pack as `in_packs` gives them, read from the files that hold any of its keys; StoreError if
    they are not as many."""
    rows = run.read(gradings, GRADING, _between(pack.first, pack.last))
    if len(rows) != pack.rows:
        raise StoreError(f"{gradings.path}: {pack.name} has {len(rows)} rows, not {pack.rows}; {run.mend()}")
    return rows.take(pc.sort_indices(rows, [(name, "ascending") for name in KEYS]))  # a stable sort


def _numbered(tables: Iterator[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    return ((f"predictions-{number:05d}", table) for number, table in enumerate(tables))


def _between(first: tuple[str, str], last: tuple[str, str]) -> pc.Expression:
    """Whether a row's keys lie in this range, both ends included; a file outside of it is not read."""
    item, response = (pc.field(name) for name in KEYS)
    from_first = (item > first[0]) | ((item == first[0]) & (response >= first[1]))
    to_last = (item < last[0]) | ((item == last[0]) & (response <= last[1]))
    return from_first & to_last
