"""The tables of checkpoints: what was expected, and which rows were refused."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from rubricflow.tasks.core.contracts.schema import Row


class Checks(Row):
    """The result of one expectation at one checkpoint."""

    table: ClassVar[str] = "checks"
    key: ClassVar[tuple[str, ...]] = ("stage", "table_name", "rule", "column")

    stage: str
    """The stage whose output was checked."""
    table_name: str
    """The table."""
    rule: str
    """The expectation."""
    column: str
    """The column or columns."""
    severity: Annotated[
        Literal["critical", "warning"], {"critical": "stops the run", "warning": "is counted in the report"}
    ]
    """What a failure does."""
    outcome: Annotated[
        Literal["passed", "failed", "error"],
        {"passed": "every row keeps it", "failed": "some break it", "error": "the check could not run"},
    ]
    """What was found."""
    rows: Annotated[int, Ge(0)]
    """Rows looked at."""
    unexpected: Annotated[int, Ge(0)]
    """Rows that break the rule."""
    first: list[str]
    """Keys of the first of them."""
    detail: str | None
    """The rule's parameters, or the exception."""


class Quarantine(Row):
    """A row that a checkpoint refused."""

    table: ClassVar[str] = "quarantine"
    key: ClassVar[tuple[str, ...]] = ("stage", "table_name", "row_key", "rule", "column")

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
