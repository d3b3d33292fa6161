"""Sums over rows that count responses, as counts.py makes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rubricflow.tasks.core.display import say
from rubricflow.tasks.grading.report.sections import NamedCount

Row = Mapping[str, Any]


def reasons(rows: Iterable[Row], column: str, names: Mapping[str, str]) -> tuple[NamedCount, ...]:
    """Counts by reason, largest first."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row[column] or "reason not given"] += row["n"]
    largest_first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(NamedCount(names.get(reason, say.worded(reason)), count) for reason, count in largest_first)


def total(rows: Iterable[Row], where: Callable[[Row], Any] = bool) -> int:
    """Responses in the rows that a condition holds for."""
    return sum(row["n"] for row in rows if where(row))
