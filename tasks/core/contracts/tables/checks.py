"""The tables of checkpoints: what was expected, and which rows were refused."""

from __future__ import annotations

from typing import Annotated

from rubricflow.tasks.core.contracts.schema import Natural, Row


class Checks(Row, table="checks", key=("stage", "table_name", "rule", "column")):
    """The result of one expectation at one checkpoint."""

    stage: str
    """The stage whose output was checked."""
    table_name: str
    """The table."""
    rule: str
    """The expectation."""
    column: str
    """The column or columns."""
    severity: Annotated[str, {"critical": "stops the run", "warning": "is counted in the report"}]
    """What a failure does."""
    outcome: Annotated[
        str,
        {"passed": "every row keeps it", "failed": "some break it", "error": "the check could not run"},
    ]
    """What was found."""
    rows: Natural
    """Rows looked at."""
    unexpected: Natural
    """Rows that break the rule."""
    first: list[str]
    """Keys of the first of them."""
    detail: str | None
    """The rule's parameters, or the exception."""


class Quarantine(Row, table="quarantine", key=("stage", "table_name", "row_key", "rule", "column")):
    """A row that a checkpoint refused."""

    stage: str
    """The stage whose output was checked."""
    table_name: str
    """The table."""
    row_key: str
    """The row's key."""
    rule: str
    """The expectation that it breaks."""
    column: str
    """The column or columns."""
    reason: str
    """The rule in words, and what was there instead."""
    content: str
    """The row as JSON (cut at 10,000 characters)."""
