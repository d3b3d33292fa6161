"""The rows that a checkpoint refused, as rows of `quarantine`: what a person needs to see without the table itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tasks.check.finding import Finding, broken, shown
from tasks.check.typed import READ, Footer
from tasks.store.part import opened

LONGEST_KEY = 1_000
"""Characters of a row's key that are kept."""
LONGEST_CONTENT = 10_000
"""Characters of a row's JSON that are kept."""


def refused(findings: Iterable[Finding], stage: str, files: Sequence[Footer]) -> list[dict[str, object]]:
    """The rows of a table that break a rule which stops the run, REFUSED at most for each rule; a key that comes again
    is numbered."""
    found = [finding for finding in broken(findings) if finding.at]
    key = found[0].row.key if found else ()
    told = _told(files, sorted({place for finding in found for place in finding.at}), key)
    records: list[dict[str, object]] = []
    for finding in found:
        seen: Counter[str] = Counter()
        for row_key, content in (told[place] for place in finding.at):
            seen[row_key] += 1
            again = f" ({seen[row_key]})" if seen[row_key] > 1 else ""
            records.append(
                {
                    "stage": stage,
                    "table_name": finding.row.table,
                    "row_key": row_key + again,
                    "rule": finding.expectation.rule,
                    "column": ", ".join(finding.expectation.columns),
                    "reason": finding.demand,
                    "content": content,
                }
            )
    return records


def _told(files: Sequence[Footer], places: Sequence[int], key: Sequence[str]) -> dict[int, tuple[str, str]]:
    """Place, counted over all files → the key and the content of the row there."""
    wanted, found, start = np.asarray(places, dtype=np.int64), {}, 0
    for file in files:
        if np.searchsorted(wanted, start) < np.searchsorted(wanted, start + file.rows):
            with opened(file.path) as parquet:
                at = start
                for batch in parquet.iter_batches(READ):
                    here = wanted[(wanted >= at) & (wanted < at + batch.num_rows)]
                    for place in here.tolist():
                        [row] = batch.slice(place - at, 1).to_pylist(maps_as_pydicts="lossy")
                        found[place] = _key(row, key), _content(row)
                    at += batch.num_rows
        start += file.rows
    return found


def _key(row: Mapping[str, Any], key: Sequence[str]) -> str:
    return shown(" / ".join(str(row.get(name)) for name in key), LONGEST_KEY)


def _content(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=str)[:LONGEST_CONTENT]
