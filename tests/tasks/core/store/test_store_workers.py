"""What workers and their command must share: what is kept between pieces of work, and marks that both see."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders.rows import response
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import BackendError, StoreError
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.core.store.workers import Desks, from_anywhere, refuse_stranger, refuse_unseen


@given(st.lists(st.sampled_from([b"one", b"two"]), max_size=20))
def test_a_desk_is_opened_anew_only_where_the_command_changes(commands: list[bytes]) -> None:
    desks, opened = Desks(), list[bytes]()
    for command in commands:
        assert desks.desk(command, lambda: opened.append(command) or command) == command  # noqa: B023
    changes = [now for before, now in zip([None, *commands], commands, strict=False) if now != before]
    assert opened == changes


def test_threads_of_a_worker_open_a_desk_once() -> None:
    desks, opened = Desks(), list[int]()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: desks.desk(b"command", lambda: opened.append(n) or n), range(50)))
    assert len(opened) == 1


def written(place: Path) -> Run:
    run = Warehouse.open(place).run("run")
    run.commit("ingest", "all", {Responses: [response("r")]})
    return run


def test_a_worker_needs_the_command_s_code_and_its_warehouse(tmp_path: Path) -> None:
    run = written(tmp_path / "house")
    refuse_stranger(run, "ingest", "all", code_digest())
    with pytest.raises(BackendError, match="another version"):
        refuse_stranger(run, "ingest", "all", "another")
    with pytest.raises(BackendError, match="does not see"):
        refuse_stranger(Warehouse.open(tmp_path / "other").run("run"), "ingest", "all", code_digest())


def test_a_shard_that_is_not_here_is_named(tmp_path: Path) -> None:
    run = written(tmp_path / "house")
    refuse_unseen(run, "ingest", ["all"])
    with pytest.raises(StoreError, match=r"a worker finished ingest 00001, and .* does not hold it"):
        refuse_unseen(run, "ingest", ["all", "00001"])


def test_a_run_is_found_from_any_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(from_anywhere(written(Path("house"))))
    monkeypatch.chdir("/")
    assert pickle.loads(sent).done("ingest", "all")
