"""What workers and their command must share: what is kept between pieces of work, and marks that both see."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from builders.rows import response
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import BackendError, StoreError
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.monitor.shared_stage import WorkerCache, require_same_code, require_visible
from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse


class Model:
    """Something large."""


@given(st.lists(st.sampled_from([b"one", b"other"]), min_size=1, max_size=20))
def test_a_process_holds_the_model_of_the_last_command_alone(sent: list[bytes]) -> None:
    cache, opened = WorkerCache(), list[weakref.ref[Model]]()

    def opening(previous: list[weakref.ref[Model]]) -> Callable[[], Model]:
        def open_model() -> Model:
            assert not any(model() for model in previous), "another one is let go before"
            model = Model()
            opened.append(weakref.ref(model))
            return model

        return open_model

    for command in sent:
        cache.get_or_open(command, opening(opened))
    assert len(opened) == 1 + sum(before != after for before, after in pairwise(sent))
    assert opened[-1]() is not None


def test_threads_of_a_worker_open_a_model_once() -> None:
    cache, opened = WorkerCache(), list[int]()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: cache.get_or_open(b"command", lambda: opened.append(n) or n), range(50)))
    assert len(opened) == 1


def written(place: Path) -> Run:
    run = Warehouse.open(place).run("run")
    run.commit("ingest", "all", {Responses: [response("r")]})
    return run


def test_a_worker_needs_the_command_s_code_and_its_warehouse(tmp_path: Path) -> None:
    run = written(tmp_path / "house")
    require_same_code(run, "ingest", "all", code_digest())
    with pytest.raises(BackendError, match="another version"):
        require_same_code(run, "ingest", "all", "another")
    with pytest.raises(BackendError, match="does not see"):
        require_same_code(Warehouse.open(tmp_path / "other").run("run"), "ingest", "all", code_digest())


def test_a_shard_that_is_not_here_is_named(tmp_path: Path) -> None:
    run = written(tmp_path / "house")
    require_visible(run, ("ingest", "00001"), ("ingest", "all"))
    with pytest.raises(StoreError, match=r"a worker finished ingest 00001, and .* does not hold it"):
        require_visible(run, ("ingest", "00001"))
