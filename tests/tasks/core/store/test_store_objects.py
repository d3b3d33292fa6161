"""The four verbs: the same for a folder and for a bucket, racing writers and bad moods included."""

from __future__ import annotations

import os
import pickle
import string
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from datetime import timedelta
from itertools import count
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from builders.buckets import moody, new_bucket
from builders.rows import item
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.exceptions import GenericError

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.store import objects
from rubricflow.tasks.core.store.objects import Bucket, Folder, Requests, in_words, requests_sent, url_of
from rubricflow.tasks.core.store.part import listed_once, look_again
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

WRITERS = 12
NAMES = st.text(string.ascii_lowercase + string.digits + "-_. é+%", min_size=1, max_size=8).filter(
    lambda name: name.strip(". ") == name and not name.endswith(".tmp")
)
KEYS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
CONTENTS = st.binary(max_size=64)
ACTS = st.lists(st.tuples(st.sampled_from(["put", "put_new"]), KEYS, CONTENTS), max_size=8)


@pytest.fixture(params=["folder", "bucket"])
def new_store(request: Any) -> Callable[[], Folder | Bucket]:
    """A function that makes an empty store of either kind."""
    if request.param == "folder":
        return lambda: Folder(Path(tempfile.mkdtemp()) / "house")
    endpoint = request.getfixturevalue("server")
    return lambda: Bucket(new_bucket(endpoint))


def _fits(key: str, contents: dict[str, bytes]) -> bool:
    """Whether a folder can hold the key too: none is a file and a folder at once."""
    return not any(other.startswith(f"{key}/") or key.startswith(f"{other}/") for other in contents)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=ACTS)
def test_a_store_holds_what_was_put(new_store: Callable[[], Folder | Bucket], acts: Any) -> None:
    store, contents = new_store(), dict[str, bytes]()
    for verb, key, content in acts:
        if not _fits(key, contents):
            continue
        if verb == "put":
            store.put(key, content)
            contents[key] = content
        else:
            assert store.put_new(key, memoryview(content)) == contents.setdefault(key, content)
    assert {key: store.get(key) for key in contents} == contents
    assert list(store.versions("")) == sorted(contents)
    assert store.names("") == sorted({key.partition("/")[0] for key in contents})
    for folder in {key.rpartition("/")[0] for key in contents} - {""}:
        below = [key.removeprefix(f"{folder}/") for key in contents if key.startswith(f"{folder}/")]
        assert list(store.versions(folder)) == sorted(below)
        assert store.names(folder) == sorted({key.partition("/")[0] for key in below})


def test_what_is_not_there_is_none(new_store: Callable[[], Folder | Bucket]) -> None:
    store = new_store()
    store.put("a/b", b"1")
    assert (store.get("a"), store.get("a/b/c"), store.get("x"), store.get("a/")) == (None, None, None, None)
    assert (store.names("x"), store.names("a/b"), store.versions("x")) == ([], [], {})


def test_of_racing_writers_one_wins_and_all_know_it(new_store: Callable[[], Folder | Bucket]) -> None:
    store, start = new_store(), Barrier(WRITERS)

    def write(number: int) -> bytes:
        start.wait()
        return store.put_new("mark", b"%d" % number)

    with ThreadPoolExecutor(WRITERS) as pool:
        standing = set(pool.map(write, range(WRITERS)))
    assert standing == {store.get("mark")}


def test_another_content_is_another_version(new_store: Callable[[], Folder | Bucket]) -> None:
    store = new_store()
    store.put("a", b"1")
    before = store.versions("")
    store.put("a", b"2")
    assert store.versions("") != before


def test_a_store_goes_to_another_process(new_store: Callable[[], Folder | Bucket]) -> None:
    store = new_store()
    store.put("a", b"1")
    assert pickle.loads(pickle.dumps(store)).get("a") == b"1"


def test_a_refusal_reads_the_same_and_tells_no_secret(server: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for store in (Folder(tmp_path / "file"), Bucket("s3://nobody/house")):
        with pytest.raises(StoreError, match=r"(cannot (write|read)|cannot be written).*what is finished stays") as no:
            store.put("a", b"")
        assert "not-told" not in str(no.value)
    with pytest.raises(StoreError, match=r"s3://nobody/house/a cannot be listed: there is no such bucket"):
        Bucket("s3://nobody/house").names("a")


def test_who_has_no_credentials_is_told_so_at_once(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_bucket(server)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setattr(objects, "_STRANGER", objects._STRANGER / 100)
    with moody(server, lambda verb, path, times: 403) as (metadata, _):
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata)
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", metadata)
        objects._client.cache_clear()
        with pytest.raises(StoreError, match=r"no credentials are set: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
            Bucket(url).get("a")
    objects._client.cache_clear()


def test_a_store_that_is_away_is_asked_again(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_bucket(server)
    with moody(server, lambda verb, path, times: 500 if times < 3 else None) as (endpoint, asked):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        objects._client.cache_clear()
        store = Bucket(url)
        store.put("a", b"1")
        assert store.put_new("b", b"2") == b"2"
        assert (store.get("a"), store.names(""), list(store.versions(""))) == (b"1", ["a", "b"], ["a", "b"])
    assert asked["PUT", f"/{url[5:]}/b"] == 3
    objects._client.cache_clear()


def test_a_store_that_stays_away_ends_with_a_sentence(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url = new_bucket(server)
    monkeypatch.setattr(objects, "_PATIENCE", objects._PATIENCE / 1000)
    with moody(server, lambda verb, path, times: 503) as (endpoint, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        objects._client.cache_clear()
        with pytest.raises(StoreError, match=r"house/a cannot be read: the store answers 503 Service Unavailable"):
            Bucket(url).get("a")
    objects._client.cache_clear()


@pytest.mark.parametrize(
    ("place", "url"),
    [
        ("s3://b", "s3://b"),
        ("s3://b/p/q/", "s3://b/p/q"),
        (Path("s3://b/p"), "s3://b/p"),
        ("data/warehouse", None),
        ("s3", None),
        ("/s3:/b", None),
    ],
)
def test_places(place: str | Path, url: str | None) -> None:
    assert url_of(place) == url


class BreakingStore:
    """A store of the library whose every request breaks some times before it is answered."""

    def __init__(self, behind: Any, breaks: int) -> None:
        self._behind, self._left = behind, Counter[str]()
        self._breaks = breaks

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        def request(*args: Any, **kwargs: Any) -> Any:
            self._left[verb] += 1
            if self._left[verb] % (self._breaks + 1):
                raise GenericError("HTTP error: error sending request")
            return getattr(self._behind, verb)(*args, **kwargs)

        return request


def test_a_request_whose_connection_breaks_is_made_again(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Bucket(new_bucket(server))
    broken = BreakingStore(objects._client(store.url, os.getpid()), breaks=2)
    monkeypatch.setattr(objects, "_PAUSE_S", 0.0)
    monkeypatch.setattr(objects, "_client", lambda *_: broken)
    store.put("a/one", b"1")
    assert store.put_new("a/two", b"2") == b"2"
    assert store.put_new("a/two", b"3") == b"2"
    assert store.get("a/one") == b"1"
    assert store.names("a") == ["one", "two"]
    assert sorted(store.versions("a")) == ["one", "two"]


def test_a_store_that_is_gone_is_an_error_after_a_while(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Bucket(new_bucket(server))
    broken = BreakingStore(objects._client(store.url, os.getpid()), breaks=10**9)
    monkeypatch.setattr(objects, "_PAUSE_S", 0.01)
    monkeypatch.setattr(objects, "_PATIENCE", timedelta(seconds=0.1))
    monkeypatch.setattr(objects, "_client", lambda *_: broken)
    with pytest.raises(StoreError, match="cannot be read: HTTP error"):
        store.get("a")


# What a look at a bucket's run costs in requests, and that looking less often misreads nothing.


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


def test_a_folder_sends_no_requests(tmp_path: Path) -> None:
    before, run = requests_sent(), opened(tmp_path / "house")
    with listed_once():
        fill(run, "ingest", range(3))
        assert run.finished("ingest", ["000", "002", "009"]) == {"000", "002"}
        assert read(run) == ["ingest-0", "ingest-1", "ingest-2"]
    assert requests_sent() == before


def test_requests_in_words() -> None:
    found = in_words(Requests(reads=1_200, writes=1, listings=1))
    assert found == "1,202 requests to the store (to read: 1,200, to write: 1, listings: 1)"
