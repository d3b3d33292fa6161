"""The tables: one frozen pydantic model each, documented column by column; here are all those of a run."""

from __future__ import annotations

from rubricflow.tasks.core.contracts.schema import Row
from rubricflow.tasks.core.contracts.tables import (
    bottleneck,
    calibration,
    data,
    edit,
    evaluation,
    judging,
    people,
    reward,
    rubrics,
)

_MODULES = (data, rubrics, judging, calibration, evaluation, people, reward, bottleneck, edit)
TABLES: tuple[type[Row], ...] = tuple(
    row
    for module in _MODULES
    for row in vars(module).values()
    if isinstance(row, type) and issubclass(row, Row) and row not in (Row, evaluation.Numbers)
)
"""In the order of their modules; the numbers of experiments are of no run."""
BY_NAME: dict[str, type[Row]] = {row.table: row for row in TABLES}
