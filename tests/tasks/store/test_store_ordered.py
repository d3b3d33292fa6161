"""Rows in an order, streamed from shards."""

import pytest

from tasks.contracts.errors import StoreError
from tasks.contracts.tables import Responses
from tasks.store.ordered import ROWS, in_order, packed
from tasks.store.warehouse import Warehouse

IDS = ["b", "a", "Z", "é", "z", "e\u0301", "\U0001f600", "\uffee", "10", "9", "a b", "ß", "ss"]
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


@pytest.mark.parametrize("shards", [1, 3])
def test_rows_of_all_shards_come_in_the_order_of_code_points(tmp_path, shards):
    rows = [row(item, f"{item}{name}") for name in IDS for item in reversed(IDS)]
    run, ref = written(tmp_path, rows, shards)
    found = listed(in_order(run, ref, COLUMNS, COLUMNS[:2]))
    assert found == sorted(tuple(record[name] for name in COLUMNS) for record in rows)


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


def test_items_are_packed_whole_in_their_order() -> None:
    assert packed({"c": 4, "a": 6, "b": 4, "d": 30, "e": 1}, 10) == [["a", "b"], ["c"], ["d"], ["e"]]
