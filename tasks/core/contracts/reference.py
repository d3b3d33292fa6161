"""What doors pass to each other instead of rows."""

from __future__ import annotations

from rubricflow.tasks.core.contracts.schema import Frozen


class TableRef(Frozen):
    """A reference to one writer's part of a table; what doors pass to each other instead of rows."""

    table: str
    """Name of the table."""
    stage: str
    """The stage that wrote it."""
    path: str
    """Its folder, relative to the warehouse."""
    digest: str
    """SHA-256 of the sorted logical content without volatile columns, the same however it is sharded."""
    rows: int
    """Number of rows."""
