"""How often each value stands in a column of a run's table: rows pass by, counts stay."""

from __future__ import annotations

from collections import Counter

import pyarrow.compute as pc

from tasks.contracts.reference import TableRef
from tasks.store.warehouse import Run


def counted(run: Run, ref: TableRef, column: str) -> dict[str, int]:
    """Value -> number of its rows, for a column of texts without nulls; StoreError if they are not all there."""
    counts: Counter[str] = Counter()
    for batch in run.batches(ref, [column]):
        for row in pc.value_counts(batch[column]).to_pylist():
            counts[row["values"]] += row["counts"]
    return dict(counts)
