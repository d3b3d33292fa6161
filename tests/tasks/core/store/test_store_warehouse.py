"""The warehouse: shards whole or not at all, digests of the content alone, errors that say what to do."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from builders.rows import attempt, item, metric
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import ContractError, StoreError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.contracts.tables.judging import Attempts
from rubricflow.tasks.core.contracts.tables.rubrics import Rubrics
from rubricflow.tasks.core.store import objects
from rubricflow.tasks.core.store.catalogue import ask
from rubricflow.tasks.core.store.files import named, write_atomically
from rubricflow.tasks.core.store.objects import MARKER
from rubricflow.tasks.core.store.warehouse import Run, Warehouse


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Warehouse.open(tmp_path / "warehouse").run("one")


def written(run: Run, stage: str, *shards: list[dict[str, Any]], row: Any = Items) -> TableRef:
    for number, rows in enumerate(shards):
        run.commit(stage, f"{number:02d}", {row: rows})
    return run.ref(row, stage)


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*.tmp")]


# --- references, reading


def test_rows_come_back_as_they_were_written(run: Run) -> None:
    rows = [item("a", context="\x00 é\r\n"), item("b", question="x" * 2**20)]
    ref = written(run, "ingest", rows)
    nullable = ("context", "reference_answer", "key_weights", "misconceptions", "criteria", "reference_answers")
    nulls = dict.fromkeys((*nullable, "rubric_text"))
    assert run.read(ref).to_pylist() == [nulls | row for row in rows]
    assert (ref.table, ref.stage, ref.path, ref.rows) == ("items", "ingest", "one/items/ingest", 2)


def test_columns_and_conditions_are_read_alone(run: Run) -> None:
    ref = written(run, "ingest", [item("a"), item("b")], [item("c")])
    assert run.read(ref, ["item_id"], ds.field("item_id") > "a").to_pydict() == {"item_id": ["b", "c"]}


def test_batches_hold_at_most_so_many_rows(run: Run) -> None:
    ref = written(run, "ingest", [item(str(i)) for i in range(7)], [])
    batches = list(run.batches(ref, ["item_id"], rows=3))
    assert [key for batch in batches for key in batch["item_id"].to_pylist()] == [str(i) for i in range(7)]
    assert max(batch.num_rows for batch in batches) == 3


def test_a_stage_without_the_table_has_no_reference(run: Run) -> None:
    written(run, "ingest", [item("a")])
    with pytest.raises(StoreError, match="run one: stage 'ingest' holds no table 'metrics'"):
        run.ref(Metrics, "ingest")
    with pytest.raises(StoreError, match="run one: stage 'lock' holds no table 'items'"):
        run.ref(Items, "lock")


def test_a_lost_or_broken_file_is_an_error_not_fewer_rows(run: Run) -> None:
    ref = written(run, "ingest", [item("a")], [item("b")])
    file = run.folder / "items" / "ingest" / "01.parquet"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(StoreError, match="one/items/ingest cannot be read"):
        run.read(ref)
    with pytest.raises(StoreError, match=r"items/ingest/01\.parquet cannot be read: .*; remove .*/one and grade"):
        run.ref(Items, "ingest")
    file.unlink()
    with pytest.raises(StoreError, match=r"holds 1 rows where 2 were written; remove .*/one and grade"):
        run.read(ref)
    with pytest.raises(StoreError, match=r"items/ingest/01\.parquet is lost, and its shard is marked as done; remove"):
        run.ref(Items, "ingest")


def without(table: pa.Table) -> pa.Table:
    return table.drop_columns(["context", "type"])


def of_text(table: pa.Table) -> pa.Table:
    return table.set_column(0, "item_id", pa.array([1]))


def with_more(table: pa.Table) -> pa.Table:
    return table.append_column("difficulty", pa.array([0.5]))


@pytest.mark.parametrize(
    ("change", "columns"), [(without, "context, type"), (of_text, "item_id"), (with_more, "difficulty")]
)
def test_a_table_of_another_version_is_named(run: Run, change: Callable[[pa.Table], pa.Table], columns: str) -> None:
    written(run, "ingest", [item("a")])
    file = run.folder / "items" / "ingest" / "00.parquet"
    pq.write_table(change(pq.read_table(file)), file)
    rule = f"written by another version of rubricflow: its table differs in {columns}; ask the run with that"
    with pytest.raises(StoreError, match=rule):
        run.ref(Items, "ingest")
    with pytest.raises(StoreError, match=rule):
        ask(run, "SELECT 1")


MARKS = ["", "{", "[]", "null", '{"items": 1}', '{"items": {"rows": 1}}', '{"items": {"rows": "x", "content": [1, 2]}}']


@pytest.mark.parametrize("content", MARKS)
def test_a_broken_mark_is_named(run: Run, content: str) -> None:
    written(run, "ingest", [item("a")])
    (run.folder / "_done" / "ingest" / "00.json").write_text(content)
    for look in (lambda: run.ref(Items, "ingest"), lambda: ask(run, "SELECT 1")):
        with pytest.raises(StoreError, match=r"_done/ingest/00\.json: this done-mark cannot be read: .*; remove"):
            look()


def test_once_makes_once(run: Run) -> None:
    made: list[int] = []
    for _ in range(2):
        run.once("ingest", lambda: made.append(1) or {Items: [item("a")]})  # type: ignore[func-returns-value]
    assert (made, run.done("ingest", "all")) == ([1], True)


# --- digests


@settings(max_examples=15)
@given(st.permutations(range(6)), st.lists(st.integers(0, 6), max_size=3).map(sorted))
def test_the_digest_does_not_see_order_or_shards(order: list[int], cuts: list[int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        house = Warehouse.open(Path(folder) / "w")
        rows = [item(str(i)) for i in range(6)]
        edges = [0, *cuts, 6]
        parts = [[rows[i] for i in order[a:b]] for a, b in pairwise(edges)]
        assert written(house.run("a"), "s", *parts).digest == written(house.run("b"), "s", rows).digest


CHANGES: list[dict[str, Any]] = [
    {"item_id": "c"},
    {"question": "why?"},
    {"question": "Why? "},
    {"question": "Why?\x00"},
    {"context": ""},
    {"context": "null"},
    {"key_elements": ["b", "a"]},
    {"key_elements": ["a,b"]},
    {"key_elements": []},
    {"rubric_id": "t", "type": "r"},
]


def test_the_digest_changes_with_any_value(run: Run) -> None:
    whole = item("a", key_elements=["a", "b"], type="t", rubric_id="r")
    digests = [written(run, f"s{i}", [whole | change, item("b")]).digest for i, change in enumerate([{}, *CHANGES])]
    assert len(set(digests)) == len(digests)


def test_the_digest_sees_the_last_bit_of_a_number(run: Run) -> None:
    values = [0.1, math.nextafter(0.1, 1), None, math.nan, math.inf, -math.inf, 0.0, 1e300]
    digests = [written(run, f"s{i}", [metric(value=value)], row=Metrics).digest for i, value in enumerate(values)]
    assert len(set(digests)) == len(digests)


def test_the_digest_counts_repeated_rows(run: Run) -> None:
    digests = [written(run, f"s{n}", [item("a")] * n).digest for n in range(4)]
    assert len(set(digests)) == 4


def test_the_digest_does_not_see_volatile_columns(run: Run) -> None:
    rows = [attempt(), attempt(stored=True, latency_s=None), attempt(reply="x")]
    first, same, other = (written(run, f"s{i}", [row], row=Attempts).digest for i, row in enumerate(rows))
    assert first == same != other


def test_equal_content_of_two_tables_has_two_digests(run: Run) -> None:
    assert written(run, "s", []).digest != written(run, "t", [], row=Calibrations).digest


# --- whole or not at all


def test_a_folder_in_place_of_a_mark_is_named(run: Run) -> None:
    (run.folder / "_done" / "ingest" / "00.json").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"00\.json: this done-mark cannot be read: Is a directory"):
        run.ref(Items, "ingest")


def test_a_file_of_other_rows_than_its_mark_is_an_error(run: Run) -> None:
    written(run, "ingest", [item("a")], [])
    folder = run.folder / "items" / "ingest"
    (folder / "00.parquet").write_bytes((folder / "01.parquet").read_bytes())
    with pytest.raises(StoreError, match=r"00\.parquet holds 0 rows where 1 were written"):
        run.ref(Items, "ingest")


def test_what_a_killed_commit_left_goes_with_the_next_one(run: Run) -> None:
    left = run.folder / "items" / "ingest" / ".00.parquet.77.tmp"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"PAR1")
    run.commit("ingest", "all", {Items: [item("a")]})
    assert not left.exists()


def test_a_file_in_place_of_a_folder_is_an_error(run: Run) -> None:
    run.folder.write_text("in the way")
    with pytest.raises(StoreError, match="cannot write"):
        run.commit("ingest", "all", {Items: [item("a")]})


def test_a_shard_without_its_mark_is_not_there(run: Run) -> None:
    ref = written(run, "ingest", [item("a")])
    whole = run.folder / "items" / "ingest" / "00.parquet"
    whole.with_name("01.parquet").write_bytes(whole.read_bytes())
    assert not run.done("ingest", "01")
    assert run.ref(Items, "ingest") == ref
    assert run.read(ref)["item_id"].to_pylist() == ["a"]
    assert sum(batch.num_rows for batch in run.batches(ref)) == 1


@pytest.mark.parametrize("name", ["replace", "fsync"])
@pytest.mark.parametrize("call", [1, 2])
def test_a_failed_write_leaves_nothing_of_it(run: Run, monkeypatch: pytest.MonkeyPatch, name: str, call: int) -> None:
    """The first call is that of the table's file, the second that of the done-mark."""
    calls: list[Any] = []
    real = getattr(os, name)

    def failing(*arguments: Any, **more: Any) -> Any:
        calls.append(arguments)
        if len(calls) == call:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **more)

    monkeypatch.setattr(os, name, failing)
    with pytest.raises(StoreError, match=r"cannot write .*(all\.parquet|all\.json): No space left on device"):
        run.commit("ingest", "all", {Items: [item("a")]})
    assert len(calls) == call
    assert not run.done("ingest", "all")
    assert leftovers(run.folder) == []
    assert len(list(run.folder.rglob("*.parquet"))) == call - 1


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError):
        write_atomically(path, b"new")
    assert (path.read_bytes(), leftovers(tmp_path)) == (b"old", [])


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small disk of the test's own; a test that needs it is skipped where nothing may be mounted."""
    folder.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    try:
        made = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        made = False
    if not made:
        pytest.skip("needs to mount a disk, which only root may on a Linux machine")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_whole_shards_and_goes_on_when_it_is_freed(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=256k") as disk:
        run = Warehouse.open(disk / "w").run("one")
        noise = [[item(f"{n}-{i}", question=os.urandom(20_000).hex()) for i in range(2)] for n in range(8)]
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(100_000))
        with pytest.raises(
            StoreError, match=r"cannot write .*/0\d\.(parquet|json): No space left on device; what is finished"
        ):
            written(run, "ingest", *noise)
        whole = len(run.shards("ingest"))
        assert 0 < whole < len(noise)
        assert run.ref(Items, "ingest").rows == 2 * whole
        assert leftovers(disk) == []
        ballast.unlink()
        subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
        assert written(run, "ingest", *noise) == written(Warehouse.open(tmp_path / "v").run("one"), "ingest", *noise)


def test_a_read_only_disk_is_named(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=64k") as disk:
        Warehouse.open(disk / "w").run("one").commit("ingest", "all", {Items: [item("a")]})
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        run = Warehouse.open(disk / "w").run("one")
        assert run.ref(Items, "ingest").rows == 1
        with pytest.raises(StoreError, match=r"cannot write .*/w/one: Read-only file system"):
            run.commit("lock", "all", {Items: [item("a")]})
        with pytest.raises(StoreError, match=r"warehouse .*/new cannot be used: Read-only file system"):
            Warehouse.open(disk / "new")


def test_a_folder_that_nobody_can_make_is_named() -> None:
    if not Path("/proc/self").is_dir():
        pytest.skip("needs /proc, where even root makes no folder")
    with pytest.raises(StoreError, match="warehouse /proc/self/house cannot be used"):
        Warehouse.open("/proc/self/house")


def test_threads_write_one_path_without_mixing(tmp_path: Path) -> None:
    path, whole = tmp_path / "file", {bytes([n]) * 50_000 for n in range(4)}

    def writing(content: bytes) -> None:
        for _ in range(20):
            write_atomically(path, content)
            assert path.read_bytes() in whole

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(writing, whole))
    assert leftovers(tmp_path) == []


def test_threads_commit_one_shard_and_read_it_whole(run: Run) -> None:
    rows = [item(str(i)) for i in range(100)]
    ref = written(run, "ingest", rows)

    def working(number: int) -> None:
        for _ in range(10):
            run.commit("ingest", "00", {Items: rows[::-1] if number % 2 else rows})
            assert run.ref(Items, "ingest") == ref
            assert run.read(ref, ["item_id"]).num_rows == 100

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(working, range(4)))


def test_rows_that_break_the_contract_write_no_mark(run: Run) -> None:
    with pytest.raises(ContractError):
        run.commit("ingest", "all", {Items: [item("a", question=None)]})
    assert not run.done("ingest", "all")


def test_a_shard_killed_while_it_is_replaced_is_not_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.commit("ingest", "all", {Items: [item("a")], Metrics: []})

    def dying(path: Path, content: bytes) -> None:
        if path.parent.parent.name == "metrics":
            raise KeyboardInterrupt
        write_atomically(path, content)

    monkeypatch.setattr(objects, "write_atomically", dying)
    with pytest.raises(KeyboardInterrupt):
        run.commit("ingest", "all", {Items: [item("b")], Metrics: []})
    assert not run.done("ingest", "all")


def test_a_commit_of_the_same_leaves_the_files_alone(run: Run) -> None:
    rows = [attempt(), attempt(sample=1)]
    run.commit("judge", "all", {Attempts: rows})
    file = run.folder / "attempts" / "judge" / "all.parquet"
    first = file.stat()
    run.commit("judge", "all", {Attempts: [attempt(sample=1, latency_s=2.0, stored=True), attempt()]})
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    file.write_bytes(b"broken")
    run.commit("judge", "all", {Attempts: rows})
    assert run.read(run.ref(Attempts, "judge")).num_rows == 2
    (run.folder / "_done" / "judge" / "all.json").write_text("broken")
    run.commit("judge", "all", {Attempts: rows})
    assert run.ref(Attempts, "judge").rows == 2


def test_a_commit_again_replaces_the_shard(run: Run) -> None:
    first = written(run, "ingest", [item("a")])
    assert written(run, "ingest", [item("b"), item("c")]) != first
    assert pq.read_table(run.folder / "items" / "ingest" / "00.parquet").num_rows == 2


# --- opening


def test_a_new_folder_becomes_a_warehouse_and_opens_again(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "deep" / "house")
    assert Warehouse.open(str(house.root)) == house
    assert house.runs() == []


def test_a_new_folder_is_opened_by_many_at_once(tmp_path: Path) -> None:
    for number in range(6):
        start = threading.Barrier(6)

        def opening(name: int, folder: Path = tmp_path / str(number), start: threading.Barrier = start) -> None:
            start.wait()
            Warehouse.open(folder).run(f"run{name}").commit("ingest", "all", {Items: []})

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(opening, range(6)))
        assert len(list((tmp_path / str(number)).glob("*/_done/ingest/all.json"))) == 6


def test_a_warehouse_made_while_this_process_looked_is_no_foreign_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Path.iterdir

    def late(folder: Path) -> Iterator[Path]:
        (folder / MARKER).write_text('{"format": 1}')
        (folder / "replies.sqlite").touch()
        return look(folder)

    monkeypatch.setattr(Path, "iterdir", late)
    assert Warehouse.open(tmp_path).root == tmp_path


def test_what_a_killed_first_opening_left_is_no_foreign_thing(tmp_path: Path) -> None:
    (tmp_path / f".{MARKER}.77.tmp").write_bytes(b'{"for')
    assert Warehouse.open(tmp_path).root == tmp_path


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ('{"format": 2}', "has format 2; this version reads format 1: use the version of rubricflow that made it, or"),
        ('{"format": 0}', "has format 0; this version reads format 1: use the version of rubricflow that made it, or"),
        ("", "does not say its format"),
        ("{", "does not say its format"),
        ("[]", "does not say its format"),
        ("{}", "does not say its format"),
    ],
)
def test_another_format_is_refused(tmp_path: Path, marker: str, message: str) -> None:
    (tmp_path / MARKER).write_text(marker)
    with pytest.raises(StoreError, match=message):
        Warehouse.open(tmp_path)


def test_a_foreign_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(StoreError, match="holds other things and is no rubricflow warehouse"):
        Warehouse.open(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("place", ["file", "file/house"])
def test_a_file_is_no_warehouse(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match=r"cannot be used|cannot write"):
        Warehouse.open(tmp_path / place)


def test_runs_are_listed_by_the_age_of_their_manifest(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "w")
    for age, name in enumerate(["b", "c", "a"]):
        path = house.run(name).folder / "manifest.json"
        write_atomically(path, json.dumps({}).encode())
        os.utime(path, (age, age))
    assert house.runs() == ["b", "c", "a"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(StoreError, match="cannot write"):
        Warehouse.open(tmp_path)


# A task run's name tells whether its stage was there already.


def test_a_stage_that_finds_its_work_done_says_so(tmp_path: Path) -> None:
    run = Warehouse.open(tmp_path / "house").run("r")
    name = named("lock")
    assert name(parameters={"run": run}) == "lock"
    run.commit("lock", "all", {Rubrics: []})
    assert name(parameters={"run": run}) == "lock (resumed)"
    assert named("judge")(parameters={"run": run}) == "judge"
