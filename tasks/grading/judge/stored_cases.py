"""The cases of a run, read from its tables: of a shard, of an item, in the order in which pieces are cut."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.schema import TableRef, schema
from rubricflow.tasks.core.contracts.tables.data import UNREAD
from rubricflow.tasks.core.contracts.tables.judging import ShardInputs
from rubricflow.tasks.core.store.ordered import in_order
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.text.traces import trace_units
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.rows import Case

Sheet = tuple[Mapping[str, Any], Bundle, str]
"""An item's row, its bundle and the bundle's id."""


def sheets_of(run: Run, items: TableRef, bundles: TableRef) -> dict[str, Sheet]:
    """Item → its row, its bundle and the bundle's id; ContractError for a bundle that was changed."""
    rows = {row["rubric_id"]: row for row in run.read(bundles).to_pylist()}
    bundle_of, sheets = unlocked(rows.values()), {}
    for item in run.read(items).to_pylist():
        name = item["rubric_id"]
        sheets[item["item_id"]] = (item, bundle_of[name], rows[name]["bundle_id"])
    return sheets


def case_of(row: Mapping[str, Any], item: Mapping[str, Any], bundle: Bundle, bundle_id: str) -> Case:
    """A response to an item under its bundle. row: response_id, text and made_from, as `responses` has them."""
    return Case(
        response_id=row["response_id"],
        item_id=item["item_id"],
        text=row["text"],
        units=tuple((trace_units if row["made_from"] == "trace" else units)(row["text"])),
        question=item["question"],
        context=item["context"],
        bundle=bundle,
        bundle_id=bundle_id,
        reference_answer=item["reference_answer"],
        unread=row["made_from"] if row["made_from"] in UNREAD else None,
    )


def cases_of(run: Run, responses: TableRef, item: dict[str, Any], locked: dict[str, Any]) -> list[Case]:
    """The cases of an item in the order of their responses' ids; ContractError for a bundle that was changed."""
    rows = run.read(responses, ["response_id", "text", "made_from"], ds.field("item_id") == item["item_id"])
    bundle = Bundle.unlock(locked["bundle_id"], locked["content"])
    return [case_of(row, item, bundle, locked["bundle_id"]) for row in rows.sort_by("response_id").to_pylist()]


def in_shard_order(run: Run, responses: TableRef) -> Iterator[dict[str, Any]]:
    """Rows of `responses`, as far as a judge reads them, in the order in which shards are cut."""
    columns = tuple(column.name for column in schema(ShardInputs))
    for batch in in_order(run, responses, columns, ("item_id", "response_id")):
        yield from batch.to_pylist()
