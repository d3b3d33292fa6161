"""A table's rows in an order, streamed: what does not fit the memory given to it is sorted on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from tasks.contracts.errors import StoreError
from tasks.contracts.tables import BY_NAME, TableRef
from tasks.store.catalogue import pattern
from tasks.store.warehouse import Run

MEMORY = "64MB"
"""What the sort may hold."""
ROWS = 2_048


def in_order(run: Run, ref: TableRef, columns: Sequence[str], by: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """These columns of the rows behind a reference, in the order of the code points of the columns `by`, a batch at a
    time. StoreError if they are not all there."""
    owner = run.warehouse.run(Path(ref.path).parts[0])
    files = [pattern(path) for path in owner.parts(BY_NAME[ref.table], ref.stage)]
    wanted, order = (", ".join(f'"{name}"' for name in names) for names in (columns, by))
    query = f"SELECT {wanted} FROM read_parquet($files, hive_partitioning = false) ORDER BY {order}"
    with tempfile.TemporaryDirectory(prefix="rubricflow-sort-") as spill:
        connection = duckdb.connect(config={"memory_limit": MEMORY, "temp_directory": spill, "threads": 1})
        try:
            yield from connection.sql(query, params={"files": files}).to_arrow_reader(ROWS)
        except duckdb.Error as error:
            raise StoreError(f"{ref.path} cannot be read: {error}; {owner.mend()}") from error
        finally:
            connection.close()


def packed(counts: Mapping[str, int], rows: int) -> list[list[str]]:
    """Items in the order of their ids, as many together as have at most `rows` responses; a larger one alone."""
    packs: list[list[str]] = []
    free = 0
    for item_id in sorted(counts):
        if counts[item_id] > free:
            packs.append([])
            free = rows
        packs[-1].append(item_id)
        free -= counts[item_id]
    return packs
