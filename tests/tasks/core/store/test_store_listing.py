"""What a look at a bucket's run costs in requests, and that looking less often misreads nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextvars import Context
from itertools import count
from pathlib import Path

import pytest
from builders.rows import item
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.store.objects import Requests, count_requests, in_words, requests_sent
from rubricflow.tasks.core.store.part import listed_once, look_again
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

Machine = Callable[[str], None]
STAGES = ("ingest", "judge")
STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "write elsewhere", "look"]), st.sampled_from(STAGES), st.integers(0, 12)),
    max_size=12,
)
_examples = count()


def opened(url: str | Path) -> Run:
    return Warehouse.open(url).run("one")


def fill(run: Run, stage: str, shards: range) -> None:
    for number in shards:
        run.commit(stage, f"{number:03d}", {Items: [item(f"{stage}-{number}")]})


def read(run: Run, stage: str = "ingest") -> list[str]:
    return [str(key) for key in run.read(run.ref(Items, stage))["item_id"].to_pylist()]


@pytest.mark.parametrize("shards", [10, 25])
def test_requests_beside_the_files_do_not_grow_with_shards(url: str, machine: Machine, shards: int) -> None:
    writer = opened(url)
    fill(writer, "ingest", range(shards))
    before = requests_sent()
    writer.ref(Items, "ingest")
    assert (requests_sent() - before) == Requests(writes=1, listings=1)  # its own marks are read from nowhere
    machine("second")
    reader = opened(url)
    before = requests_sent()
    assert len(read(reader)) == shards
    sent = requests_sent() - before
    assert sent == Requests(reads=1 + shards, listings=2)  # the index, and each file once
    before = requests_sent()
    assert len(read(reader)) == shards
    assert (requests_sent() - before) == Requests(listings=2)
    before = requests_sent()
    with listed_once():
        assert reader.finished("ingest", [f"{number:03d}" for number in range(2 * shards)]) == set(
            reader.shards("ingest")
        )
        assert len(read(reader)) == len(read(reader)) == shards
        assert reader.stages(Items) == ["ingest"]
    assert (requests_sent() - before) == Requests(listings=1)


def test_a_shard_in_a_listed_run_is_written_with_one_request_a_file(url: str) -> None:
    run = opened(url)
    with listed_once():
        run.marks()
        assert not run.done("judge", "000")
        fill(run, "judge", range(1))
        before = requests_sent()
        fill(run, "judge", range(1, 9))
        assert (requests_sent() - before) == Requests(writes=16)
        before = requests_sent()
        assert run.done("judge", "008")
        assert requests_sent() == before


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_within_a_listing_own_shards_count_at_once_and_others_after_another_look(
    url: str, machine: Machine, steps: list[tuple[str, str, int]]
) -> None:
    machine("first")
    run = Warehouse.open(f"{url}/{next(_examples)}").run("one")
    elsewhere = pickle.dumps(run)
    own: dict[str, set[str]] = {stage: set() for stage in STAGES}
    every: dict[str, set[str]] = {stage: set() for stage in STAGES}
    with listed_once():
        for what, stage, shard in steps:
            name = f"{shard:03d}"
            if what == "write":
                fill(run, stage, range(shard, shard + 1))
                own[stage].add(name)
            elif what == "write elsewhere":
                _write_elsewhere(elsewhere, stage, shard)
            else:
                assert run.done(stage, name) == (name in every[stage])
                own[stage] |= {name} & every[stage]
            if what != "look":
                every[stage].add(name)
            assert own[stage] <= run.shards(stage).keys() <= every[stage]
        look_again(run.folder)
        assert {stage: run.shards(stage).keys() for stage in STAGES} == every
        for stage in STAGES:
            assert not every[stage] or read(run, stage) == [f"{stage}-{int(name)}" for name in sorted(every[stage])]
    assert {stage: run.shards(stage).keys() for stage in STAGES} == every


def _write_elsewhere(run: bytes, stage: str, shard: int) -> None:
    """As another process does, which this one's listing does not hear of."""
    other = pickle.loads(run)
    Context().run(fill, other, stage, range(shard, shard + 1))


def test_of_two_writers_in_listed_runs_the_first_one_stays(url: str, machine: Machine) -> None:
    first = opened(url)
    with listed_once():
        assert first.marks() == []
        _write_elsewhere(pickle.dumps(first), "ingest", 0)
        (mark,) = first.warehouse.versions(first.folder / "_done").items()
        fill(first, "ingest", range(1))
        assert first.warehouse.versions(first.folder / "_done") == dict([mark])
        assert read(first) == ["ingest-0"]


def test_a_broken_mark_is_named_by_its_address_within_a_listing(url: str, machine: Machine) -> None:
    fill(opened(url), "ingest", range(3))
    opened(url).warehouse.objects.put("one/_done/ingest/001.json", b"{}")
    machine("second")
    with listed_once(), pytest.raises(StoreError, match=f"{url}/one/_done/ingest/001.json: this done-mark cannot"):
        opened(url).ref(Items, "ingest")


def test_a_folder_sends_no_requests(tmp_path: Path) -> None:
    before, run = requests_sent(), opened(tmp_path / "house")
    with listed_once():
        fill(run, "ingest", range(3))
        assert run.finished("ingest", ["000", "002", "009"]) == {"000", "002"}
        assert read(run) == ["ingest-0", "ingest-1", "ingest-2"]
    assert requests_sent() == before


def test_requests_in_words() -> None:
    before = requests_sent()
    count_requests(reads=2, writes=1)
    count_requests(listings=1)
    sent = requests_sent() - before
    assert in_words(sent) == "4 requests to the store (to read: 2, to write: 1, listings: 1)"
    assert in_words(Requests(reads=1_200)).startswith("1,200 requests to the store (to read: 1,200")
