"""Rows in an order, streamed from shards."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.store import ordered
from rubricflow.tasks.core.store.ordered import ROWS, in_order, packed
from rubricflow.tasks.core.store.warehouse import Warehouse

COLUMNS = ("item_id", "response_id", "text")


def written(folder, rows, shards):
    run = Warehouse.open(folder / "house").run("run")
    for n in range(shards):
        run.commit("ingest", f"{n:05d}", {Responses: rows[n::shards]})
    return run, run.ref(Responses, "ingest")


def row(item, response):
    made = {"item_id": item, "response_id": response, "author_id": None, "text": f"{item} says {response}"}
    return made | {"split": "test", "groups": {}}


def listed(batches):
    return [tuple(record.values()) for batch in batches for record in batch.to_pylist()]


def test_another_run_s_table_is_read_by_its_reference(tmp_path):
    run, ref = written(tmp_path, [row("i", "r")], 1)
    assert listed(in_order(run.warehouse.run("other"), ref, ("text",), ("response_id",))) == [("i says r",)]


def test_rows_come_a_batch_at_a_time(tmp_path):
    run, ref = written(tmp_path, [row("i", f"{n:05d}") for n in range(5_000)], 1)
    sizes = [batch.num_rows for batch in in_order(run, ref, ("response_id",), ("response_id",))]
    assert sum(sizes) == 5_000
    assert max(sizes) <= ROWS


def test_a_lost_file_is_named(tmp_path):
    run, ref = written(tmp_path, [row("i", "r")], 1)
    (run.folder / "responses" / "ingest" / "00000.parquet").unlink()
    with pytest.raises(StoreError, match=r"00000\.parquet is lost"):
        list(in_order(run, ref, ("text",), ("response_id",)))


ID = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
ROW = st.tuples(
    ID, ID, st.one_of(st.just(""), st.text("aé\U0001f600", max_size=9), st.integers(0, 3_000).map("x".__mul__))
)


@settings(max_examples=8)
@given(st.lists(ROW, max_size=60), st.integers(1, 4), st.sampled_from([1, 40, 1_000, 2**20]))
def test_it_is_a_plain_sort_however_unequal_the_rows_and_however_small_the_piles(rows, shards, pile):
    with tempfile.TemporaryDirectory() as folder:
        run, ref = written(Path(folder), [row(*ids) | {"text": text} for *ids, text in rows], shards)
        there = [tuple(record[name] for name in COLUMNS) for record in run.read(ref).to_pylist()]
        found = listed(in_order(run, ref, COLUMNS, COLUMNS[:2], pile))
        assert found == sorted(there, key=lambda record: record[:2])  # both are stable
        assert not (run.warehouse.root / ".aside").exists()


def test_columns_come_as_they_are_asked_for_and_need_not_hold_the_key(tmp_path):
    run, ref = written(tmp_path, [row("i", "b"), row("i", "a")], 1)
    assert listed(in_order(run, ref, ("text", "item_id"), ("response_id",))) == [("i says a", "i"), ("i says b", "i")]


def test_no_pile_holds_much_more_than_it_may_beside_its_longest_row(tmp_path, monkeypatch):
    rows = [row("i", f"{n:04d}") | {"text": "x" * (100_000 if n == 500 else n % 300)} for n in range(1_000)]
    run, ref = written(tmp_path, rows, 3)
    sizes, read = [], ordered._sorted
    monkeypatch.setattr(ordered, "_sorted", lambda path: sizes.append(batches := list(read(path))) or batches)
    list(in_order(run, ref, ("text",), ("response_id",), 5_000))
    lengths = [sorted(len(text) for batch in batches for (text,) in listed([batch])) for batches in sizes]
    assert len(lengths) > 20
    assert max(sum(some[:-1]) for some in lengths) <= 5_000


def test_a_sort_that_is_left_early_leaves_nothing(tmp_path):
    run, ref = written(tmp_path, [row("i", f"{n:05d}") for n in range(5_000)], 1)
    rows = in_order(run, ref, ("text",), ("response_id",), 1_000)
    next(rows)
    assert list((run.warehouse.root / ".aside").glob("sort-*"))
    rows.close()
    assert not (run.warehouse.root / ".aside").exists()


KILLED = """
import os, signal, sys
from rubricflow.tasks.core.store import ordered
from rubricflow.tasks.core.store.ordered import in_order
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.store.warehouse import Warehouse
run = Warehouse.open(sys.argv[1]).run("run")
rows = in_order(run, run.ref(Responses, "ingest"), ("text",), ("response_id",), 100)
next(rows)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_sort_put_aside_goes_when_the_warehouse_is_opened(tmp_path):
    run, ref = written(tmp_path, [row("i", f"{n:05d}") for n in range(100)], 1)
    living = in_order(run, ref, ("text",), ("response_id",), 100)
    first = next(living)
    root = Path(__file__).parents[4]
    command = [sys.executable, "-c", KILLED, str(run.warehouse.root)]
    killed = subprocess.run(command, cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(list((run.warehouse.root / ".aside").iterdir())) == 2
    Warehouse.open(run.warehouse.root)
    assert len(list((run.warehouse.root / ".aside").iterdir())) == 1  # of the sort that goes on
    assert listed([first, *living]) == [(f"i says {n:05d}",) for n in range(100)]
    assert not (run.warehouse.root / ".aside").exists()


def test_a_disk_without_room_for_the_rows_is_named(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs to mount a disk, which only root may on a Linux machine")
    try:
        rows = [row("i", f"{n:05d}") | {"text": os.urandom(500).hex()} for n in range(2_000)]
        run, ref = written(disk, rows, 1)
        with pytest.raises(
            StoreError, match=r"run/responses/ingest cannot be sorted in .*/\.aside: .*No space left.*make"
        ):
            list(in_order(run, ref, ("text",), ("response_id",)))
        assert not (run.warehouse.root / ".aside").exists()
        assert len(run.read(ref)) == 2_000
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)  # Arrow may still close a file


def test_items_are_packed_whole_in_their_order() -> None:
    assert packed({"c": 4, "a": 6, "b": 4, "d": 30, "e": 1}, 10) == [["a", "b"], ["c"], ["d"], ["e"]]
