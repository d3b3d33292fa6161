"""The warehouse: shards whole or not at all, digests of the content alone, errors that say what to do."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.contracts.errors import ContractError, StoreError
from tasks.contracts.tables import Attempts, Calibrations, Items, Metrics, TableRef
from tasks.store.warehouse import MARKER, Run, Warehouse, write_atomically

ROOT = Path(__file__).parents[3]


def item(key: str, **changes: Any) -> dict[str, Any]:
    return {"item_id": key, "question": "Why?", "key_elements": ["a", "b"], "type": "t", "rubric_id": "r"} | changes


def metric(value: float | None) -> dict[str, Any]:
    names = ("metric", "rater_a", "rater_b", "slice", "value_of", "resampled")
    return dict.fromkeys(names, "x") | {"stage": "raw", "value": value, "n": 1, "unscored": 0, "undefined_draws": 0}


def attempt(**changes: Any) -> dict[str, Any]:
    row = {"response_id": "r", "rater_id": "m", "sample": 0, "part": "all", "attempt": 0, "role": "grade", "seed": 0}
    return row | {"request_digest": "d", "model": "m", "violations": [], "stored": False, "latency_s": 1.0} | changes


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
    nulls = {"context": None, "reference_answer": None}
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
    file.unlink()
    with pytest.raises(StoreError, match="holds 1 rows where 2 were written; remove run one"):
        run.read(ref)


def test_a_broken_mark_is_named(run: Run) -> None:
    written(run, "ingest", [item("a")])
    (run.folder / "_done" / "ingest" / "00.json").write_text("{")
    with pytest.raises(StoreError, match="a done-mark of stage 'ingest' cannot be read"):
        run.ref(Items, "ingest")


def test_once_makes_once(run: Run) -> None:
    made: list[int] = []
    for _ in range(2):
        run.once("ingest", lambda: made.append(1) or {Items: [item("a")]})  # type: ignore[func-returns-value]
    assert (made, run.done("ingest", "all")) == ([1], True)


# --- digests


@settings(max_examples=15, deadline=None)
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
    digests = [written(run, f"s{i}", [item("a") | change, item("b")]).digest for i, change in enumerate([{}, *CHANGES])]
    assert len(set(digests)) == len(digests)


def test_the_digest_sees_the_last_bit_of_a_number(run: Run) -> None:
    values = [0.1, math.nextafter(0.1, 1), None, math.nan, math.inf, -math.inf, 0.0, 1e300]
    digests = [written(run, f"s{i}", [metric(value)], row=Metrics).digest for i, value in enumerate(values)]
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


def test_a_shard_without_its_mark_is_not_there(run: Run) -> None:
    ref = written(run, "ingest", [item("a")])
    whole = run.folder / "items" / "ingest" / "00.parquet"
    whole.with_name("01.parquet").write_bytes(whole.read_bytes())
    assert not run.done("ingest", "01")
    assert run.ref(Items, "ingest") == ref
    assert run.read(ref)["item_id"].to_pylist() == ["a"]
    assert sum(batch.num_rows for batch in run.batches(ref)) == 1


KILLED = """
import os, signal, sys
from tasks.contracts.tables import Items, Metrics
from tasks.store import warehouse
from tasks.store.warehouse import Warehouse
left = int(sys.argv[2])
write = warehouse.write_atomically
def until(path, content):
    global left
    if left == 0:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f".{path.name}.1.tmp").write_bytes(content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    write(path, content)
run = Warehouse.open(sys.argv[1]).run("one")
warehouse.write_atomically = until
item = {"item_id": "a", "question": "Why?", "key_elements": [], "type": "t", "rubric_id": "r"}
run.commit("ingest", "all", {Items: [item], Metrics: []})
"""


@pytest.mark.parametrize("writes", [0, 1, 2], ids=["first file", "second file", "mark"])
def test_a_killed_commit_leaves_nothing_and_is_made_good(tmp_path: Path, writes: int) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "w"), str(writes)]
    killed = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    run = Warehouse.open(tmp_path / "w").run("one")
    assert not run.done("ingest", "all")
    with pytest.raises(StoreError, match="holds no table"):
        run.ref(Items, "ingest")
    run.commit("ingest", "all", {Items: [item("a")], Metrics: []})
    assert run.read(run.ref(Items, "ingest"))["item_id"].to_pylist() == ["a"]
    assert run.ref(Metrics, "ingest").rows == 0


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


def test_a_file_in_place_of_a_folder_is_an_error(run: Run) -> None:
    run.folder.write_text("in the way")
    with pytest.raises(StoreError, match="cannot write"):
        run.commit("ingest", "all", {Items: [item("a")]})


def test_rows_that_break_the_contract_write_no_mark(run: Run) -> None:
    with pytest.raises(ContractError):
        run.commit("ingest", "all", {Items: [item("a", question=None)]})
    assert not run.done("ingest", "all")


def test_a_commit_again_replaces_the_shard(run: Run) -> None:
    first = written(run, "ingest", [item("a")])
    assert written(run, "ingest", [item("b"), item("c")]) != first
    assert pq.read_table(run.folder / "items" / "ingest" / "00.parquet").num_rows == 2


# --- opening


def test_a_new_folder_becomes_a_warehouse_and_opens_again(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "deep" / "house")
    assert Warehouse.open(str(house.root)) == house
    assert house.runs() == []


def test_what_a_killed_first_opening_left_is_no_foreign_thing(tmp_path: Path) -> None:
    (tmp_path / f".{MARKER}.77.tmp").write_bytes(b'{"for')
    assert Warehouse.open(tmp_path).root == tmp_path


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ('{"format": 2}', "has format 2; this version reads format 1"),
        ("{", "cannot be used"),
        ("[]", "cannot be used"),
        ("{}", "cannot be used"),
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


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    with pytest.raises(StoreError, match="cannot write"):
        Warehouse.open(tmp_path)


def test_runs_are_listed_by_the_age_of_their_manifest(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "w")
    for age, name in enumerate(["b", "c", "a"]):
        path = house.run(name).folder / "manifest.json"
        write_atomically(path, json.dumps({}).encode())
        os.utime(path, (age, age))
    assert house.runs() == ["b", "c", "a"]
