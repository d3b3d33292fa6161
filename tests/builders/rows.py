"""Rows of the tables with what no row can do without; `changes` are columns by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.schema import Row
from rubricflow.tasks.core.store.catalogue import joined_views

Record = dict[str, Any]


def item(item_id: str = "i", **changes: Any) -> Record:
    return {"item_id": item_id, "question": "Why?", "key_elements": [], "type": "item", "rubric_id": item_id} | changes


def response(response_id: str = "r", item_id: str = "i", **changes: Any) -> Record:
    row = {"response_id": response_id, "item_id": item_id, "text": "Because.", "split": "test", "groups": {}}
    return row | changes


def rubric(rubric_id: str = "i", **changes: Any) -> Record:
    row = {"rubric_id": rubric_id, "title": "", "origin": "authored", "content": "{}", "lint": [], "calls": []}
    return row | changes


def locked(bundle: Bundle, rubric_id: str = "i") -> Record:
    return {"rubric_id": rubric_id, "bundle_id": bundle.bundle_id, "content": bundle.canonical()}


def grading(response_id: str = "r", rater_id: str = "m", score: float | None = 1.0, **changes: Any) -> Record:
    """One of a model, or of a person where the rater's id begins with h; without a score there was no reply."""
    row = {"response_id": response_id, "item_id": "i", "rater_id": rater_id, "sample": 0, "score": score}
    row |= {"rater_kind": "human" if rater_id.startswith("h") else "llm", "trait_scores": {}, "signals": {}}
    why = {"status": "scored"} if score is not None else {"status": "unscored", "unscored_reason": "no_reply"}
    return row | why | changes


def judgment(
    response_id: str = "r", criterion_id: str = "P", level: int | None = 1, rater_id: str = "m", **changes: Any
) -> Record:
    """One of a model, or of a person where the rater's id begins with h; without a level there was no reply."""
    row = {"response_id": response_id, "criterion_id": criterion_id, "rater_id": rater_id, "sample": 0}
    row |= {"rater_kind": "human" if rater_id.startswith("h") else "llm", "evidence": [], "action": "none"}
    row |= {"decision": level, "stated": level, "unscored_reason": "no_reply" if level is None else None}
    return row | changes


def attempt(response_id: str = "r", **changes: Any) -> Record:
    """A first call, answered and not stored."""
    row = {"response_id": response_id, "rater_id": "m", "sample": 0, "part": "all", "attempt": 0, "role": "grade"}
    asked = {"request_digest": f"d-{response_id}", "model": "m", "seed": 0, "reply": "{}", "violations": []}
    return row | asked | {"mends": [], "memory": [], "characters": {}, "stored": False, "latency_s": 1.0} | changes


def metric(metric: str = "qwk", value: float | None = 0.5, **changes: Any) -> Record:
    """A figure of rater m against the target, over all responses."""
    row = {"metric": metric, "rater_a": "target", "rater_b": "m", "stage": "raw", "slice": "all", "value_of": "all"}
    return row | {"value": value, "n": 1, "unscored": 0, "resampled": "author", "undefined_draws": 0} | changes


def connected(tables: Mapping[type[Row], pa.Table]) -> duckdb.DuckDBPyConnection:
    """A database with these tables and the views that join them, as `catalogue` makes one of a run."""
    connection = duckdb.connect()
    for row, table in tables.items():
        connection.register(f"rows_of_{row.table}", table)
        connection.execute(f"CREATE VIEW {row.table} AS SELECT * FROM rows_of_{row.table}")
    joined_views(connection, "run")
    return connection
