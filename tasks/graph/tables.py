"""Tables of a run as graph building reads them."""

from __future__ import annotations

from tasks.contracts.bundle import unlocked
from tasks.contracts.reference import TableRef
from tasks.graph.subject import GraphSubject, subjects
from tasks.store.warehouse import Run


def rubric_subjects(run: Run, items: TableRef, bundles: TableRef) -> dict[str, GraphSubject]:
    """Rubric → what its graph is made of, in the order of the bundles."""
    columns = ["item_id", "rubric_id", "question", "context"]
    return subjects(run.read(items, columns).to_pylist(), unlocked(run.read(bundles).to_pylist()))
