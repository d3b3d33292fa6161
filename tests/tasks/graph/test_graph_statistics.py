"""Statistics of graphs, on numbers worked by hand."""

from __future__ import annotations

import pytest

from tasks.contracts.errors import ContractError
from tasks.graph.statistics import statistics

ROWS = [
    {"criteria": 10, "candidates": 30, "kept": 6, "invalid": 1, "failed": 0, "roles_missing": 2},
    {"criteria": 4, "candidates": 2, "kept": 0, "invalid": 0, "failed": 1, "roles_missing": 0},
]


def test_the_statistics_are_those_of_table_14() -> None:
    assert statistics(ROWS) == [
        ("rubrics", 2.0),
        ("criteria", 7.0),
        ("candidates", 16.0),
        ("kept", 3.0),
        ("update_size", 10.0),
        ("non_empty", 0.5),
        ("invalid", 0.5),
        ("failed", 0.5),
        ("roles_missing", 1.0),
    ]


def test_no_graphs_have_no_statistics() -> None:
    with pytest.raises(ContractError, match="there is no graph"):
        statistics([])
