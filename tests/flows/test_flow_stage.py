"""A stage says in one line what came of it; where its checkpoint stops the run, the log and an event say so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.flows import stage
from rubricflow.flows.stage import references, rows_of, staged
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

ITEM = {"item_id": "i", "question": "Why?", "key_elements": [], "type": "t", "rubric_id": "r"}
REFS = st.builds(
    lambda table, part, rows: TableRef(table=table, stage=part, path=f"run/{table}/{part}", digest="d", rows=rows),
    st.sampled_from(["items", "responses", "rater_effects"]),
    st.sampled_from(["one", "two"]),
    st.just(7),
)
NAMED = st.text(max_size=2)
NESTED = st.recursive(
    REFS | st.none() | NAMED,
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(NAMED, inner),
)


def write(run: Run, text: str, fails: bool = False) -> TableRef:
    """A door that writes an item."""
    run.commit("ingest", "all", {Items: [ITEM | {"question": text}]})
    return run.ref(Items, "ingest")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Warehouse.open(tmp_path / "house").run("study-0123456789")


@given(NESTED)
def test_rows_of_a_table_are_counted_once_however_often_it_comes_in(values: Any) -> None:
    tables = list(references(values))
    told = rows_of([*tables, *tables])
    parts = {(table.table, table.path) for table in tables}
    assert sum(int(number) for number in re.findall(r"\d+", told)) == 7 * len(parts)
    assert "_" not in told


def test_a_stage_has_one_line_with_rows_and_seconds_once(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "checked", lambda run, written: written)
    first, again = (staged(run, write, "Why?") for _ in range(2))
    assert first == again
    (line,) = capsys.readouterr().err.splitlines()  # what was done before is not told again
    assert re.fullmatch(r"ingest: 1 item; 0 quarantined, 0 warnings; [\d.]+ s", line)


def test_a_checkpoint_that_stops_the_run_is_an_event(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    def refusing(run: Run, written: TableRef) -> TableRef:
        raise ContractError("a rule is broken")

    monkeypatch.setattr(stage, "checked", refusing)
    monkeypatch.setattr(stage, "announce", lambda *words, **payload: told.append((*words, payload)))
    with pytest.raises(ContractError):
        staged(run, write, "Why?")
    assert told == [("rubricflow.checkpoint.failed", run.run_id, {"stage": "ingest", "quarantined": 0})]
    assert capsys.readouterr().err == "ingest: stopped at its checkpoint; 0 quarantined, 0 warnings\n"
