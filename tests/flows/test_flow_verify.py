"""`rubricflow verify`: a warehouse as it was written is said to be so, and all that is not is listed."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from builders.command import command

from rubricflow.flows.plan import planned, record
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.store.catalogue import write_database
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.people.review.ledger import Act, Ledger

STUDY = """
name: small
data: {sources: [{file: items.csv, items: {item_id: id, question: question}}]}
rubrics: {derive: {origin: reference_answer, scale: {min: 0, max: 4}}}
judge: {protocol: rulers, backend: replay, model: m}
"""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Two runs of one stage, of which one finished; a reply; a vote."""
    (tmp_path / "study.yaml").write_text(STUDY)
    (tmp_path / "items.csv").write_text("id,question\ni,Why?\n")
    item = {"item_id": "i", "question": "Why?", "key_elements": [], "type": "t", "rubric_id": "r"}
    for limit in (1, 2):
        job = planned(load_study(tmp_path / "study.yaml"), tmp_path, tmp_path / "house", limit)
        job.run.commit("ingest", "all", {Items: [item]})
    record(job, [job.run.ref(Items, "ingest")])
    with ReplyStore(tmp_path / "house" / "replies.sqlite") as replies:
        replies.put_many([("a", "m", Reply(text="level 1"))])
    act = Act(str(uuid.uuid4()), "small", "vote", "label", "r1", "c1", "2", "Ann", digest="d")
    with Ledger(tmp_path / "house" / "votes.sqlite") as ledger:
        ledger.add(act)
    return tmp_path / "house"


def said(house: Path, *words: str) -> tuple[int, str]:
    result = command("verify", *words, "--warehouse", house)
    return result.exit_code, result.output


def test_what_was_left_alone_is_said_to_be_so(house: Path) -> None:
    code, told = said(house)
    assert code == 0, told
    assert told.count("items of ingest: 1 rows in 1 files") == 2
    assert "inputs: 1 of 1 as they were" in told
    assert "none: the run did not finish" in told
    assert "replies.sqlite: 1 replies" in told
    assert "votes.sqlite: 1 acts" in told
    assert told.endswith(f"all of it is as it was written: {house}\n")


def test_an_input_that_changed_or_is_gone_is_told_and_no_fault(house: Path) -> None:
    (house.parent / "items.csv").write_text("id,question\ni,What?\n")
    assert "0 of 1 as they were; changed since: items.csv" in said(house)[1]
    (house.parent / "items.csv").unlink()
    code, told = said(house)
    assert "0 of 1 as they were; gone: items.csv" in told
    assert code == 0


def test_all_that_is_wrong_is_listed_once(house: Path) -> None:
    runs = sorted(path.parent for path in house.glob("*/_done"))
    for run in runs:
        file = run / "items" / "ingest" / "all.parquet"
        content = bytearray(file.read_bytes())
        content[60] ^= 1
        file.write_bytes(content)
    for name, statement in (
        ("replies.sqlite", "UPDATE replies SET reply = replace(reply, '1', '2')"),
        ("votes.sqlite", "DELETE FROM acts"),
    ):
        with closing(sqlite3.connect(house / name)) as raw:
            raw.execute("DROP TRIGGER IF EXISTS no_delete")
            raw.execute(statement)
            raw.commit()
    code, told = said(house)
    assert code == 2
    assert f"rubricflow: 4 wrong in {house}:" in told
    for what in (*(f"{run}/items/ingest/all.parquet was changed" for run in runs), "request a was", "act 1 is missing"):
        assert told.count(what) == 1
    code, told = said(house, runs[0].name)
    assert f"rubricflow: 3 wrong in {house}:" in told
    assert runs[1].name not in told


@pytest.mark.parametrize("words", [("nothing",), ()])
def test_what_is_not_there_is_said(tmp_path: Path, words: tuple[str, ...]) -> None:
    code, told = said(tmp_path / "house", *words)
    assert (code, told) == (2, f"rubricflow: there is no warehouse {tmp_path / 'house'}\n")


def test_a_run_that_is_not_there_is_said(house: Path) -> None:
    code, told = said(house, "other")
    assert code == 2
    assert "no run 'other'" in told


def test_parquet_of_no_run_is_named_wherever_it_lies(house: Path) -> None:
    finished = next(house.glob("*/manifest.json")).parent
    (begun,) = (path.parent for path in house.glob("*/_done") if path.parent != finished)
    whole = (finished / "items" / "ingest" / "all.parquet").read_bytes()
    strays = [
        *(
            finished / name
            for name in ("x.parquet", "items/x.parquet", "items/ingest/x.parquet", "items/o/all.parquet")
        ),
        *(begun / name for name in ("items/ingest/x.parquet", "new/judge/x.parquet", "items/judge/a/x.parquet")),
        *(house / name for name in ("x.parquet", "other/x.parquet", "experiments/try/items/i/x.parquet")),
        finished / "responses" / "ingest" / "all.parquet",
    ]
    left = [begun / "items" / "judge" / "0001.parquet", house / "killed" / "items" / "ingest" / "all.parquet"]
    left += [house / "experiments" / "try" / "numbers.parquet"]
    for path in (*strays, *left):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(whole)
    code, told = said(house)
    assert code == 2
    assert f"{len(strays)} wrong in {house}" in told
    assert all(f"{path} is " in told for path in strays)
    assert not any(f"{path} is " in told for path in left)


def test_views_of_a_warehouse_that_was_moved_are_named_until_a_command_makes_them_anew(house: Path) -> None:
    write_database(Warehouse.open(house))
    assert said(house)[0] == 0
    moved = house.rename(house.with_name("moved"))
    code, told = said(moved)
    assert code == 2
    assert "warehouse.duckdb: its views read another folder" in told
    command("sql", "SELECT 1", "--warehouse", moved)
    assert said(moved)[0] == 0
