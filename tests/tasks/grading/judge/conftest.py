"""Fixtures of the judge's tests."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from builders.cases import case

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.rows import Case, Rater


@pytest.fixture
def case_of() -> Callable[..., Case]:
    """Makes a case of a bundle and a text."""
    return case


@pytest.fixture
def grade_all() -> Callable[..., SimpleNamespace]:
    """Grades cases by a script: the rows of the three tables, held against their contracts, and the backend."""

    def grade(cases, script, mender=None):
        backend = Scripted(script)
        rater = Rater("scripted:test", "llm", backend, mender)
        with ReplyStore(":memory:") as replies:
            found = grade_batch(cases, rater, replies)
        tables = SimpleNamespace(backend=backend)
        for row, table in found.tables().items():
            setattr(tables, row.table, conform(row, table).to_pylist(maps_as_pydicts="strict"))
        return tables

    return grade
