"""The database over all runs: what every run's own tables say, wherever it is opened from and whoever has it open."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import duckdb
import pytest

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.tables import TABLES
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.store.catalogue import (
    DATABASE,
    SCRIPT,
    ask,
    follow_move,
    joins,
    reads_elsewhere,
    write_database,
)
from rubricflow.tasks.core.store.files import sealed
from rubricflow.tasks.core.store.warehouse import ARMS, EXPERIMENTS, Run, Warehouse

ITEM = {"item_id": "i", "question": "Why?", "key_elements": [], "type": "t", "rubric_id": "r"}
NAMES = [*(row.table for row in TABLES), *joins()]


def finish(run: Run) -> Run:
    """The run with a manifest, as far as the database reads one."""
    manifest = {
        "run_id": run.run_id,
        "written": "2026-11-22T12:00:00+02:00",
        "grade_digest": "d",
        "identity": {"study": {"name": "autumn", "judge": {"backend": "replay"}}, "limit": None},
    }
    (run.folder / "manifest.json").write_bytes(sealed(manifest))
    return run


def asked(database: Path, query: str) -> list[tuple[object, ...]]:
    """What a client answers that only reads."""
    with duckdb.connect(str(database), read_only=True) as client:
        return client.execute(query).fetchall()


def test_every_view_holds_the_rows_of_the_run(finished: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = write_database(finish(finished).warehouse).resolve()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    counted = f"SELECT {', '.join(f'(SELECT count(*) FROM {name})' for name in NAMES)}"
    rows, runs = asked(database, counted), asked(database, 'SELECT study, backend, "limit" FROM runs')
    scored = asked(database, "SELECT DISTINCT run_id FROM scores")
    (finished.folder / "manifest.json").unlink()  # it is no whole one, and the run is other tests', too
    assert rows == ask(finished, counted).fetchall()
    assert (runs, scored) == ([("autumn", "replay", None)], [(finished.run_id,)])


def test_the_name_of_the_folder_does_no_harm(tmp_path: Path) -> None:
    folder, alike = (f'it\'s a=b $x é \n "q" {ending}' for ending in ("[1]*", "1xx"))
    for place in (folder, alike):
        run = Warehouse.open(tmp_path / place).run("one")
        run.commit("ingest", "all", {Items: [ITEM | {"item_id": place}]})
        finish(run)
    assert asked(write_database(Warehouse.open(tmp_path / folder)), "SELECT run_id, item_id FROM items") == [
        ("one", folder)
    ]


def test_a_new_run_is_seen_and_one_that_did_not_finish_is_not(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "house")
    for name in ("one", "two", "three"):
        house.run(name).commit("ingest", "all", {Items: [ITEM]})
    finish(house.run("one"))
    database = write_database(house)
    made = os.stat(database).st_ino
    assert asked(database, "SELECT run_id FROM items") == [("one",)]
    finish(house.run("two"))
    assert write_database(house).stat().st_ino == made  # nothing to write anew
    assert asked(database, "SELECT run_id FROM items ORDER BY 1") == [("one",), ("two",)]


def test_who_has_it_open_locks_nobody_out(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "house")
    house.run("one").commit("ingest", "all", {Items: [ITEM]})
    finish(house.run("one"))
    database = write_database(house)
    with duckdb.connect(str(database)) as client:
        (house.root / SCRIPT).unlink()
        assert write_database(house) == database
        assert client.execute("SELECT count(*) FROM items").fetchall() == [(1,)]
    assert asked(database, "SELECT count(*) FROM items") == [(1,)]
    assert not (house.root / ".aside").exists()


def test_the_script_makes_the_same_views(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "house")
    house.run("one").commit("ingest", "all", {Items: [ITEM]})
    finish(house.run("one"))
    write_database(house)
    with duckdb.connect() as client:
        client.execute((house.root / SCRIPT).read_text())
        assert client.execute("SELECT run_id, item_id FROM items").fetchall() == [("one", "i")]
        assert client.execute("SELECT count(*) FROM scores").fetchall() == [(0,)]


def test_a_warehouse_that_was_moved_or_copied_is_never_read_at_its_old_place(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "house")
    house.run("one").commit("ingest", "all", {Items: [ITEM]})
    finish(house.run("one"))
    write_database(house)
    shutil.copytree(house.root, tmp_path / "copy")
    copied = Warehouse.open(tmp_path / "copy")
    for name in ("items", "runs"):
        with pytest.raises(duckdb.Error, match="the warehouse was moved or copied"):
            asked(copied.root / DATABASE, f"SELECT count(*) FROM {name}")
    assert (reads_elsewhere(house), reads_elsewhere(copied)) == (False, True)
    copied.run("two").commit("ingest", "all", {Items: [ITEM]})
    finish(copied.run("two"))
    follow_move(copied)
    assert not reads_elsewhere(copied)
    assert asked(copied.root / DATABASE, "SELECT run_id FROM items ORDER BY 1") == [("one",), ("two",)]
    assert asked(house.root / DATABASE, "SELECT run_id FROM items") == [("one",)]
    house.root.rename(tmp_path / "moved")
    with pytest.raises(duckdb.Error):
        asked(tmp_path / "moved" / DATABASE, "SELECT count(*) FROM items")


def test_the_database_answers_where_it_is_attached_under_another_name(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "house")
    house.run("one").commit("ingest", "all", {Items: [ITEM]})
    finish(house.run("one"))
    database = write_database(house)
    with duckdb.connect() as client:
        client.execute(f"ATTACH '{database}' AS mine (READ_ONLY)")
        assert client.execute("SELECT run_id FROM mine.items").fetchall() == [("one",)]


def test_a_database_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "house")
    finish_folder = house.run("one")
    finish_folder.commit("ingest", "all", {Items: [ITEM]})
    finish(finish_folder)
    (house.root / DATABASE).mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        write_database(house)


def test_arms_of_an_experiment_are_known(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "house")
    assert house.arms() == set()
    folder = house.root / EXPERIMENTS / "try"
    folder.mkdir(parents=True)
    (folder / ARMS).write_text('{"plain": "try-plain-0123456789"}')
    assert house.arms() == {"try-plain-0123456789"}
    (folder / ARMS).write_text("[]")
    with pytest.raises(StoreError, match="run the experiment again"):
        house.arms()
