"""What the columns of MOCHA need before they map: one row that holds everything becomes a row a candidate."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError

_KEYS = ("context", "question", "reference")
_CANDIDATES = (("candidate", "score", ""), ("candidate1", "score1", ":1"), ("candidate2", "score2", ":2"))
"""Key of a candidate, of its score, and what its id ends in; a minimal pair has two."""


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """A row a candidate; an item is what a data set asks with the same passage, question and reference.

    InputError for a data set that holds no records by id, or a record without its texts.
    """
    rows = list[dict[str, Any]]()
    for dataset in frame.columns:
        for name, record in _records(file, dataset, frame[dataset].iloc[0]):
            rows += _candidates(file, dataset, name, record)
    names = ("response_id", "item_id", "dataset", "source", *_KEYS, "candidate", "score")
    return pd.DataFrame(rows, columns=pd.Index(names), dtype=object)


def _records(file: str, dataset: str, records: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(records, dict) or not all(isinstance(record, dict) for record in records.values()):
        raise InputError("holds no records by id", file=file, field=dataset)
    yield from records.items()


def _candidates(file: str, dataset: str, name: str, record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    texts = {key: record.get(key) for key in _KEYS}
    candidates = [(record[key], record.get(score), end) for key, score, end in _CANDIDATES if key in record]
    needed = [*texts.values(), *(text for text, _, _ in candidates)]
    if not candidates or not all(isinstance(text, str) for text in needed):
        raise InputError("lacks one of its texts", file=file, field=f"{dataset}.{name}")
    identity = "\0".join((dataset, *map(str, texts.values())))
    item = f"{dataset}:{hashlib.sha256(identity.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
    source = (record.get("metadata") or {}).get("source")
    for candidate, score, end in candidates:
        ids = {"response_id": f"{dataset}:{name}{end}", "item_id": item, "dataset": dataset, "source": source}
        yield {**ids, **texts, "candidate": candidate, "score": score}
