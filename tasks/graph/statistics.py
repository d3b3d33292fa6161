"""What the graphs of many rubrics look like (GEAR, Tables 3 and 14)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tasks.contracts.errors import ContractError


def statistics(graphs: Iterable[Mapping[str, Any]]) -> list[tuple[str, float]]:
    """(name, value) in the order of Table 14, and then what an annotation left open.

    graphs: rows of `graphs`. All but the number of rubrics and the rate are means over rubrics. The update size is what
    one aggregation goes through: criteria and kept edges. ContractError where there is no graph.
    """
    rows = list(graphs)
    if not rows:
        raise ContractError("there is no graph to take statistics of")

    def mean(*columns: str) -> float:
        return sum(float(row[column]) for row in rows for column in columns) / len(rows)

    return [
        ("rubrics", float(len(rows))),
        ("criteria", mean("criteria")),
        ("candidates", mean("candidates")),
        ("kept", mean("kept")),
        ("update_size", mean("criteria", "kept")),
        ("non_empty", sum(row["kept"] > 0 for row in rows) / len(rows)),
        ("invalid", mean("invalid")),
        ("failed", mean("failed")),
        ("roles_missing", mean("roles_missing")),
    ]
