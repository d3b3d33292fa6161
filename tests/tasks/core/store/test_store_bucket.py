"""A warehouse in a bucket: what runs, machines and crashes make of it is what a folder would hold."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from builders.buckets import moody
from builders.rows import item, metric

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.store import objects
from rubricflow.tasks.core.store.catalogue import ask
from rubricflow.tasks.core.store.manifest import look_at_run
from rubricflow.tasks.core.store.warehouse import ARMS, EXPERIMENTS, Run, Warehouse
from rubricflow.tasks.people.review.ledger import ledger_file

SHARDS = 10


def opened(url: str | Path) -> Run:
    return Warehouse.open(url).run("one")


def fill(run: Run, *keys: str, stage: str = "ingest") -> None:
    for key in keys:
        run.commit(stage, key, {Items: [item(f"{key}-{number}") for number in range(3)], Metrics: [metric()]})


def ids(run: Run) -> list[str]:
    return [str(key) for key in run.read(run.ref(Items, "ingest"))["item_id"].to_pylist()]


@contextmanager
def watched(server: str, monkeypatch: pytest.MonkeyPatch, mood: Any = lambda *_: None) -> Iterator[Any]:
    """What is asked of the store meanwhile."""
    with moody(server, mood) as (endpoint, asked):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        objects._client.cache_clear()
        yield asked
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    objects._client.cache_clear()


def test_references_rows_and_their_order_are_those_of_a_folder(url: str, tmp_path: Path) -> None:
    runs = [opened(tmp_path / "folder"), opened(url)]
    for run in runs:
        fill(run, "00010", "00002", "a", "a-b", "all")
    assert len({run.ref(Items, "ingest").model_dump_json() for run in runs}) == 1
    assert len({tuple(ids(run)) for run in runs}) == 1
    assert len({tuple(ask(run, "SELECT item_id FROM items").fetchall()) for run in runs}) == 1
    assert len({tuple(run.stages(Items)) for run in runs}) == 1
    assert len({tuple(path.name for path in run.marks()) for run in runs}) == 1


def test_another_machine_reads_what_one_wrote(url: str, machine: Callable[[str], None]) -> None:
    first = opened(url)
    fill(first, "0", "1")
    there = pickle.dumps(first)
    machine("second")
    second = pickle.loads(there)
    assert second.folder != first.folder
    assert (second.done("ingest", "0"), second.done("ingest", "2")) == (True, False)
    assert ids(second) == ids(first)
    fill(second, "2")
    assert opened(url).shards("ingest").keys() == {"0", "1", "2"}
    assert ids(first) == ids(second)


def test_a_mirror_stands_for_its_bucket(url: str) -> None:
    run = opened(url)
    assert Warehouse.open(run.warehouse.root) == run.warehouse
    assert (run.place, str(run.warehouse.root) in repr(run.warehouse.place)) == (f"{url}/one", False)


def test_writers_of_one_shard_leave_it_once(url: str, tmp_path: Path, machine: Callable[[str], None]) -> None:
    """Each has another mirror, as on machines of their own."""
    writers, start = [], Barrier(3)
    for number in range(3):
        machine(str(number))
        writers.append(opened(url))

    def write(run: Run) -> None:
        start.wait()
        run.commit("ingest", "0", {Items: [item("a"), item("b")]})

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, writers))
    assert [ids(run) for run in writers] == [["a", "b"]] * 3
    files = writers[0].warehouse.objects.names("one/items/ingest")
    assert len(files) >= 1  # those of losers stay, and nobody reads them


@pytest.mark.parametrize("is_bucket", [True, False])
def test_a_sweep_removes_what_is_old_and_unmarked_alone(url: str, tmp_path: Path, is_bucket: bool) -> None:
    run = opened(url if is_bucket else tmp_path / "folder")
    fill(run, "0", "all")
    stray = run.file("items", "ingest", "1", "lost" if is_bucket else "")
    run.warehouse.write(stray, b"half")
    before = set(run.warehouse.versions(run.folder))
    assert run.sweep(3600) == 0
    assert run.sweep(-5) == 1
    assert before - set(run.warehouse.versions(run.folder)) == {stray.relative_to(run.folder).as_posix()}
    assert len(ids(run)) == 6


def test_a_copy_or_a_sweep_killed_at_any_file_leaves_what_is_marked_whole(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, copy = opened(url), opened(tmp_path / "copy")
    fill(run, "0", "1", "all")
    run.warehouse.write(run.folder / "pages" / "a.html", b"page")
    strays = [run.file("items", "ingest", "9", f"lost{number}") for number in range(3)]
    for stray in strays:
        run.warehouse.write(stray, b"half")
    write, left = Warehouse.write, [0]

    def dying(warehouse: Warehouse, path: Path, content: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        write(warehouse, path, content)

    with monkeypatch.context() as patch:
        patch.setattr(Warehouse, "write", dying)
        kills = 0
        while True:
            left[0] = kills
            try:
                run.copy_to(copy)
                break
            except KeyboardInterrupt:
                kills += 1
            assert not [problem for look in look_at_run(copy) for problem in look.problems]
    assert kills == 2 * 3 + 1 + 3  # files of shards, the page, marks
    assert copy.ref(Items, "ingest") == run.ref(Items, "ingest")
    run.warehouse.delete(strays[:1])  # a sweep that was killed
    assert (run.sweep(-5), run.sweep(-5)) == (2, 0)
    assert not [problem for look in look_at_run(run) for problem in look.problems]
    assert len(ids(run)) == 9


@pytest.mark.parametrize("is_bucket", [True, False])
def test_a_copy_in_a_folder_is_the_run(url: str, tmp_path: Path, is_bucket: bool) -> None:
    run, copy = opened(url if is_bucket else tmp_path / "folder"), opened(tmp_path / "copy")
    fill(run, "0", "1", "all")
    fill(run, "0", stage="judge")
    run.warehouse.write(run.folder / "pages" / "a.html", b"page")
    assert run.copy_to(copy) == run.copy_to(copy) == 9
    assert copy.ref(Items, "ingest") == run.ref(Items, "ingest")
    assert ids(copy) == ids(run)
    assert [path.relative_to(copy.folder) for path in copy.marks()] == [
        path.relative_to(run.folder) for path in run.marks()
    ]
    assert not [problem for look in look_at_run(copy) for problem in look.problems]
    assert (copy.folder / "pages" / "a.html").read_bytes() == b"page"


def test_a_file_without_a_mark_is_not_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the files and the mark."""
    run = opened(url)
    fill(run, "0")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Warehouse, "write_new", killed)
        with pytest.raises(KeyboardInterrupt):
            fill(run, "1")
    assert not run.done("ingest", "1")
    assert len(run.warehouse.objects.names("one/items/ingest")) == 2
    assert ids(run) == ["0-0", "0-1", "0-2"]
    assert ask(run, "SELECT count(*) FROM items").fetchall() == [(3,)]
    fill(run, "1")
    assert len(ids(run)) == 6


def test_a_torn_mirror_is_mended_from_the_bucket(url: str) -> None:
    run = opened(url)
    fill(run, "0")
    for file in run.parts(Items, "ingest"):
        file.write_bytes(file.read_bytes()[:-9])
    assert len(ids(opened(url))) == 3


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda content: content[:-9], "cannot be read|was changed"),
        (lambda content: content + b"x", "was changed|cannot"),
    ],
)
def test_a_spoilt_object_is_named_by_its_address(
    url: str, machine: Callable[[str], None], spoil: Callable[[bytes], bytes], words: str
) -> None:
    run = opened(url)
    fill(run, "0")
    key = f"one/items/ingest/{run.warehouse.objects.names('one/items/ingest')[0]}"
    run.warehouse.objects.put(key, spoil(run.warehouse.objects.get(key) or b""))
    machine("second")
    with pytest.raises(StoreError, match=f"{url}/one/items/ingest/.*({words})"):
        opened(url).ref(Items, "ingest")
    problems = [problem for look in look_at_run(opened(url)) for problem in look.problems]
    assert [url in problem for problem in problems] == [True]


def test_a_changed_mark_is_named_by_its_address(url: str, machine: Callable[[str], None]) -> None:
    run = opened(url)
    fill(run, "0")
    run.warehouse.objects.put("one/_done/ingest/0.json", b"{}")
    machine("second")
    with pytest.raises(StoreError, match=f"{url}/one/_done/ingest/0.json: this done-mark cannot be read"):
        opened(url).ref(Items, "ingest")


def test_a_table_of_many_shards_takes_a_handful_of_requests(
    url: str, server: str, machine: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(opened(url), *(f"{number:03d}" for number in range(SHARDS)))
    opened(url).ref(Metrics, "ingest")  # who wrote many of them leaves the index
    machine("second")
    run = opened(url)
    with watched(server, monkeypatch) as asked:
        ref = run.ref(Items, "ingest")
        marks = sum(times for (_, path), times in asked.items() if "items/ingest" not in path)
        files = sum(times for (_, path), times in asked.items() if "items/ingest" in path)
        assert (marks, files) == (2, SHARDS)
        run.read(ref)
        assert sum(asked.values()) <= SHARDS + 5


def test_an_old_or_broken_index_misleads_nobody(url: str, machine: Callable[[str], None]) -> None:
    run = opened(url)
    fill(run, *(f"{number:03d}" for number in range(SHARDS)))
    whole = ids(run)
    run.commit("ingest", "000", {Items: [item("new")]})
    machine("second")
    assert ids(opened(url)) == ["new", *whole[3:]]
    for content in (b"", b"{", b"[]", b'{"000.json": 3}', b'{"000.json": ["x", "y"]}'):
        run.warehouse.objects.put("one/_index/ingest.json", content)
        machine(f"after {content!r}")
        assert ids(opened(url)) == ["new", *whole[3:]], content


def test_503_and_slow_answers_cost_time_alone(url: str, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def mood(verb: str, path: str, times: int) -> float | int | None:
        return 503 if times == 1 else 0.05

    with watched(server, monkeypatch, mood):
        run = opened(url)
        fill(run, "0", "1")
        assert len(ids(run)) == 6


def test_files_that_libraries_write_are_shared(url: str, machine: Callable[[str], None]) -> None:
    run = opened(url)
    site = run.folder / "data_docs"
    (site / "deep").mkdir(parents=True)
    (site / "deep" / "page.html").write_text("<p>")
    run.warehouse.share(site)
    run.warehouse.write(run.folder / "report.html", b"<html>")
    machine("second")
    other = opened(url)
    assert [path.read_text() for path in other.warehouse.fetch_folder(other.folder / "data_docs")] == ["<p>"]
    assert other.fetched("report.html").read_bytes() == b"<html>"
    assert not other.fetched("none.html").exists()


def test_what_is_gone_from_the_bucket_is_gone(url: str) -> None:
    """Somebody removed it there, and the mirror still has it."""
    run = opened(url)
    fill(run, "0")
    run.folder.joinpath("report.html").write_bytes(b"old")
    assert not run.fetched("report.html").exists()
    (run.folder / "_done" / "ingest" / "1.json").write_bytes(b"{}")
    assert not run.done("ingest", "1")


def test_runs_are_listed_by_when_they_finished(url: str, machine: Callable[[str], None]) -> None:
    house = Warehouse.open(url)
    for name, written in (("b", "2026-01-01"), ("a", "2026-01-02"), ("c", "2026-01-03")):
        house.write(house.root / name / "manifest.json", json.dumps({"written": written}).encode())
    house.write(house.root / EXPERIMENTS / "e" / ARMS, json.dumps({"arm": "a"}).encode())
    fill(house.run("one"), "0")
    machine("second")
    house = Warehouse.open(url)
    assert (house.runs(), house.arms(), house.begun()) == (["b", "a", "c"], {"a"}, ["a", "b", "c", "one"])


def test_a_foreign_prefix_is_left_alone(url: str) -> None:
    objects.Bucket(url).put("thesis.docx", b"")
    with pytest.raises(
        StoreError, match="holds other things and is no rubricflow warehouse; name an empty or new pref"
    ):
        Warehouse.open(url)
    assert objects.Bucket(url).names("") == ["thesis.docx"]


def test_votes_are_refused_and_nothing_is_lost(url: str) -> None:
    """They would lie in the mirror, which may be removed."""
    with pytest.raises(StoreError, match=f"{url}: votes are kept in a SQLite file, which an object store cannot hold"):
        ledger_file(Warehouse.open(url).root)


def test_a_bucket_has_no_reply_store_of_its_own(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="which an object store cannot hold; name a file or a database by --replies"):
        _ = Warehouse.open(url).replies
    monkeypatch.setenv("RUBRICFLOW_REPLIES", "postgresql://me:hidden@host/db")
    house = Warehouse.open(url)
    assert (house.replies, "hidden" in repr(house)) == ("postgresql://me:hidden@host/db", False)
    monkeypatch.delenv("RUBRICFLOW_REPLIES")
    assert pickle.loads(pickle.dumps(house)).replies == "postgresql://me:hidden@host/db"


@pytest.mark.parametrize("is_bucket", [True, False])
def test_what_is_dropped_is_gone_on_every_machine_and_the_rest_stays(
    is_bucket: bool, url: str, tmp_path: Path, machine: Callable[[str], None]
) -> None:
    place = url if is_bucket else tmp_path / "folder"
    run = opened(place)
    fill(run, "0", "1")
    fill(run, *(str(number) for number in range(SHARDS)), stage="parts")
    machine("second")
    assert len(opened(place).shards("parts")) == SHARDS  # an index of their marks is written
    run.drop("parts")
    run.drop("parts")
    for where in (run, opened(place)):
        assert (where.shards("parts"), where.stages(Items), len(ids(where))) == ({}, ["ingest"], 6)
    assert not [name for name in run.warehouse.versions(run.folder) if "parts" in name]
    fill(run, "0", stage="parts")
    assert set(opened(place).shards("parts")) == {"0"}
