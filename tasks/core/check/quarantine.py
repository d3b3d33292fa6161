"""The rows that a checkpoint refused, as rows of `quarantine`: what a person needs to see without the table itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from rubricflow.tasks.core.check.finding import Finding, broken, shown
from rubricflow.tasks.core.check.typed import READ, Footer
from rubricflow.tasks.core.store.part import open_parquet

LONGEST_KEY = 1_000
"""Characters of a row's key that are kept."""
LONGEST_CONTENT = 10_000
"""Characters of a row's JSON that are kept."""


def refused(findings: Iterable[Finding], stage: str, files: Sequence[Footer]) -> list[dict[str, object]]:
    """The rows of a table that break a rule which stops the run, REFUSED at most for each rule; a key that comes again
    is numbered."""
    findings_with_rows = [finding for finding in broken(findings) if finding.places]
    key = findings_with_rows[0].row.key if findings_with_rows else ()
    places = set(chain.from_iterable(finding.places for finding in findings_with_rows))
    rows_by_place = _rows_at(files, sorted(places), key)
    records: list[dict[str, object]] = []
    for finding in findings_with_rows:
        times: Counter[str] = Counter()
        for row_key, content in (rows_by_place[place] for place in finding.places):
            times[row_key] += 1
            again = f" ({times[row_key]})" if times[row_key] > 1 else ""
            records.append(_record(finding, stage, row_key + again, content))
    return records


def _record(finding: Finding, stage: str, row_key: str, content: str) -> dict[str, object]:
    """A row of `quarantine`."""
    return {
        "stage": stage,
        "table_name": finding.row.table,
        "row_key": row_key,
        "rule": finding.expectation.rule,
        "column": ", ".join(finding.expectation.columns),
        "reason": finding.demand,
        "content": content,
    }


def _rows_at(files: Sequence[Footer], places: Sequence[int], key: Sequence[str]) -> dict[int, tuple[str, str]]:
    """Place, counted over all files → the key and the content of the row there."""
    sorted_places = np.asarray(places, dtype=np.int64)
    rows: dict[int, tuple[str, str]] = {}
    start = 0
    for file in files:
        if np.searchsorted(sorted_places, start) < np.searchsorted(sorted_places, start + file.rows):
            with open_parquet(file.path) as parquet:
                batch_start = start
                for batch in parquet.iter_batches(READ):
                    here = sorted_places[
                        (sorted_places >= batch_start) & (sorted_places < batch_start + batch.num_rows)
                    ]
                    for place in here.tolist():
                        [row] = batch.slice(place - batch_start, 1).to_pylist(maps_as_pydicts="lossy")
                        rows[place] = _key(row, key), _content(row)
                    batch_start += batch.num_rows
        start += file.rows
    return rows


def _key(row: Mapping[str, Any], key: Sequence[str]) -> str:
    return shown(" / ".join(str(row.get(name)) for name in key), LONGEST_KEY)


def _content(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=str)[:LONGEST_CONTENT]
