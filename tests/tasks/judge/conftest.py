"""Fixtures of the judge's tests."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from tasks.contracts.schema import conform
from tasks.judge.grade import grade_batch
from tasks.judge.rows import Case, Rater
from tasks.llm.backends.scripted import Scripted
from tasks.llm.replies import ReplyStore
from tasks.text.units import units


@pytest.fixture
def case_of() -> Callable[..., Case]:
    """Makes a case of a bundle and a text."""

    def make(bundle, text="Plants need light. Water helps them grow.", response_id="r1", **more):
        known = {"question": "What do plants need?", "context": None} | more
        return Case(response_id, "i1", text, tuple(units(text)), bundle=bundle, bundle_id=bundle.bundle_id, **known)

    return make


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
