"""Whatever happens to a file of a run, nobody reads other values than those that were written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.tables import BY_NAME, TABLES
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.store import part
from rubricflow.tasks.core.store.catalogue import ask, read_manifest
from rubricflow.tasks.core.store.files import file_digest, sealed, unsealed
from rubricflow.tasks.core.store.manifest import graded_by, look_at_run, write_manifest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

Seen = dict[str, list[Any]]


@dataclass(repr=False)
class Whole:
    """A run that nobody harmed, and what is seen of it."""

    run: Run
    seen: Seen


KINDS = ("*/*/*.parquet", "_done/*/*.json", "manifest.json")


def seen(run: Run) -> Seen:
    """Every reference of the run with its rows, what SQL counts, and the manifest."""
    counts = ask(run, f"SELECT {', '.join(f'(SELECT count(*) FROM {row.table})' for row in TABLES)}").fetchall()
    found: Seen = {"counts": counts, "manifest": [read_manifest(run)]}
    for row in TABLES:
        for stage in run.stages(row):
            ref = run.ref(row, stage)
            found[ref.path] = [ref, run.read(ref).to_pylist()]
    return found


@pytest.fixture(scope="module")
def whole(finished: Run, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A run whose manifest lists all its tables, two of them in several shards of one stage."""
    run = Warehouse.open(tmp_path_factory.mktemp("whole") / "house").run("one")
    for row in (Attempts, Bundles, Gradings, Items, Responses):
        for stage in finished.stages(row):
            run.commit(stage, row.table, {row: finished.read(finished.ref(row, stage))})
    response = {"item_id": "i", "author_id": None, "split": "test", "groups": {}}
    for number in range(4):
        rows = [response | {"response_id": f"{number}-{n}", "text": f"Text {n} of {number}."} for n in range(3)]
        run.commit("cut", f"{number:05d}", {Responses: rows})
    run.commit("cut", "all", {Items: []})
    refs = [run.ref(row, stage) for row in TABLES for stage in run.stages(row)]
    write_manifest(run, {"study": {"name": "s"}}, graded_by(run, "mean", {}), refs, run.folder)
    assert problems(run) == []
    return Whole(run, seen(run))


def problems(run: Run) -> list[str]:
    """All that a look at the whole run finds wrong."""
    return [problem for look in look_at_run(run) for problem in look.problems]


def flipped(data: st.DataObject, file: Path, other: Path) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 40), "flips")):
        content[data.draw(st.integers(0, len(content) - 1), "at")] ^= 1 << data.draw(st.integers(0, 7), "bit")
    file.write_bytes(content)


def cut(data: st.DataObject, file: Path, other: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: data.draw(st.integers(0, len(content) - 1), "length")])


def longer(data: st.DataObject, file: Path, other: Path) -> None:
    file.write_bytes(file.read_bytes() + data.draw(st.binary(min_size=1, max_size=99), "more"))


def lost(data: st.DataObject, file: Path, other: Path) -> None:
    file.unlink()


def replaced(data: st.DataObject, file: Path, other: Path) -> None:
    file.write_bytes(other.read_bytes())


def swapped(data: st.DataObject, file: Path, other: Path) -> None:
    ours, theirs = file.read_bytes(), other.read_bytes()
    file.write_bytes(theirs)
    other.write_bytes(ours)


def kept_in_time(harm: Callable[..., None]) -> Callable[..., None]:
    """The harm, with the file's time of change set back to what it was."""

    def do(data: st.DataObject, file: Path, other: Path) -> None:
        before = file.stat()
        harm(data, file, other)
        if file.exists():
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    return do


HARMS = [flipped, cut, longer, lost, replaced, swapped, kept_in_time(flipped)]


@settings(max_examples=8)
@given(data=st.data())
def test_a_harmed_file_is_named_or_read_as_it_was(whole: Whole, data: st.DataObject) -> None:
    run, before = whole.run, whole.seen
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(run.warehouse.root, Path(folder) / "house")
        copy = Warehouse.open(Path(folder) / "house").run(run.run_id)
        files = sorted(copy.folder.glob(data.draw(st.sampled_from(KINDS), "kind")))
        file, other = data.draw(st.sampled_from(files), "file"), data.draw(st.sampled_from(files), "other")
        data.draw(st.sampled_from(HARMS), "harm")(data, file, other)
        said = problems(copy) if (copy.folder / "manifest.json").exists() else ["manifest of one is lost"]
        try:
            assert seen(copy) == before
        except StoreError as error:
            for named in (str(error), " ".join(said)):
                assert any(path.stem in named and path.parent.name in named for path in (file, other)), named
        else:
            assert said == []


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Warehouse.open(tmp_path / "house").run("one")
    rows = [{"item_id": f"i{n}", "question": "Why?", "key_elements": [], "type": "t", "rubric_id": "r"} for n in (0, 1)]
    made.commit("ingest", "all", {Items: rows})
    return made


def edited(run: Run, change: Callable[[pa.Table], pa.Table], stage: str = "ingest", shard: str = "all") -> None:
    file = run.folder / "items" / stage / f"{shard}.parquet"
    pq.write_table(change(pq.read_table(file)), file)


def other_question(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("question")
    return table.set_column(at, table.schema.field(at), pa.array(["What?"] * len(table)))


def one_twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 1)] * 2)


@pytest.mark.parametrize("change", [other_question, one_twice])
def test_a_run_does_not_go_on_upon_changed_values(run: Run, change: Callable[[pa.Table], pa.Table]) -> None:
    edited(run, change)
    for resume in (
        lambda: run.done("ingest", "all"),
        lambda: run.once("ingest", dict),
        lambda: run.ref(Items, "ingest"),
        lambda: ask(run, "SELECT * FROM items"),
    ):
        with pytest.raises(StoreError, match=r"items/ingest/all\.parquet was changed since stage 'ingest' wrote it"):
            resume()


def test_volatile_columns_are_held_too(filled_run: Callable[..., Run]) -> None:
    run = filled_run()
    file = run.folder / "attempts" / "some" / "attempts.parquet"
    table = pq.read_table(file)
    at = table.schema.get_field_index("latency_s")
    pq.write_table(table.set_column(at, table.schema.field(at), pa.array([9.0] * len(table))), file)
    with pytest.raises(StoreError, match=r"attempts\.parquet was changed"):
        run.ref(BY_NAME["attempts"], "some")


def test_a_file_is_read_once_as_long_as_it_is_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def counted(path: Path) -> str:
        read.append(path)
        return file_digest(path)

    part.forget()
    monkeypatch.setattr(part, "file_digest", counted)
    monkeypatch.setattr(part, "_SETTLED_S", -1.0)  # as if it had been written long ago
    for _ in range(3):
        run.ref(Items, "ingest")
    assert len(read) == 1
    file = run.folder / "items" / "ingest" / "all.parquet"
    shutil.copyfile(file, file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)
    run.ref(Items, "ingest")
    assert len(read) == 2


def test_a_mark_that_was_sealed_anew_by_hand_is_seen_in_the_manifest(run: Run) -> None:
    refs = [run.ref(Items, "ingest")]
    write_manifest(run, {}, {}, refs, run.folder)
    rows = other_question(run.read(refs[0]))
    (run.folder / "_done" / "ingest" / "all.json").unlink()
    run.commit("ingest", "all", {Items: rows})
    rule = r"items/ingest is not the table that the run's manifest lists"
    with pytest.raises(StoreError, match=rule):
        read_manifest(run)
    with pytest.raises(StoreError, match=rule):
        write_manifest(run, {}, {}, [run.ref(Items, "ingest")], run.folder)
    with pytest.raises(StoreError, match=rule):
        ask(run, "SELECT 1")


@settings(max_examples=20)
@given(st.data(), st.dictionaries(st.text(max_size=5).filter(lambda key: key != "seal"), st.integers() | st.text()))
def test_a_sealed_file_is_what_was_sealed_or_an_error(data: st.DataObject, record: dict[str, Any]) -> None:
    content = bytearray(sealed(record))
    assert unsealed(bytes(content)) == record
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = unsealed(bytes(content))
    except ValueError:
        return
    assert found == record


def test_a_look_goes_on_past_every_fault(whole: Whole, tmp_path: Path) -> None:
    shutil.copytree(whole.run.warehouse.root, tmp_path / "house")
    run = Warehouse.open(tmp_path / "house").run(whole.run.run_id)
    (run.folder / "responses" / "cut" / "00001.parquet").unlink()
    (run.folder / "_done" / "cut" / "00002.json").unlink()
    (run.folder / "_done" / "some" / "attempts.json").write_text("{}")
    edited(run, other_question, "some", "items")
    looks = {look.subject: look for look in look_at_run(run)}
    wrong = {what: " ".join(look.problems) for what, look in looks.items() if look.problems}
    named = {"done-marks", "responses of cut", "items of some", "manifest", "grade_digest"}
    assert wrong.keys() == {*named, "other files"}  # what a lost done-mark spoke of is no part of the run
    assert "cut/00002.json is lost" in wrong["done-marks"]
    assert "some/attempts.json: this done-mark cannot be read" in wrong["done-marks"]
    assert "cut/00001.parquet is lost" in wrong["responses of cut"]
    assert "items.parquet was changed" in wrong["items of some"]
    assert looks["responses of cut"].amount == "9 rows in 3 files"


def test_a_look_makes_the_digests_again(run: Run) -> None:
    graded = graded_by(run, "mean", {})
    write_manifest(run, {}, graded | {"texts": "0" * 64}, [run.ref(Items, "ingest")], run.folder)
    assert problems(run) == [f"{run.folder}/manifest.json: the texts digest is not that of the tables"]


def test_a_look_adds_the_rows_up_again(run: Run) -> None:
    mark = run.folder / "_done" / "ingest" / "all.json"
    record = unsealed(mark.read_bytes())
    record["tables"]["items"]["content"][0] += 1
    mark.write_bytes(sealed(record))
    [problem] = problems(run)
    assert "all.parquet: its rows do not add up to what its done-mark says" in problem
