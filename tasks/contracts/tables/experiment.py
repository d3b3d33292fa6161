"""The table of an experiment's numbers."""

from __future__ import annotations

from typing import Annotated, ClassVar

from annotated_types import Ge

from tasks.contracts.schema import Row


class Numbers(Row):
    """One number of an experiment's tables."""

    table: ClassVar[str] = "numbers"
    key: ClassVar[tuple[str, ...]] = ("table_id", "row", "column")

    table_id: str
    """The table: gao_5, rulers_2 and others, by paper and number there."""
    title: str
    """Its title; it says so where a rater is simulated."""
    row: Annotated[int, Ge(0)]
    """Number of the row, from 0."""
    label: str
    """What the row is about: its first cells."""
    column: str
    """Heading of the column."""
    value: float | None
    """The number; null where it is undefined, or where the cell is a text."""
    text: str | None
    """The text of a cell that is none; null otherwise."""
    low: float | None
    """Lower end of the 95% interval."""
    high: float | None
    """Upper end."""
    se: float | None
    """Bootstrap standard error."""
