"""Packs predicted by workers: the same tables as in one process, whoever predicts them, in whatever order."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from builders.crew import CrewHere, piece_arguments
from builders.models import byte_model
from builders.rows import grading
from hypothesis import given, settings
from hypothesis import strategies as st
from texts_scene import plan, run_of

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.settings.engine import HERE, Placement
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.monitor.shared_stage import Piece, do_piece
from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.calibrate import predictions, task
from rubricflow.tasks.grading.calibrate.calibration import read_calibration
from rubricflow.tasks.grading.calibrate.predictions import (
    GRADING,
    KEYS,
    GradingPack,
    PredictionAssignment,
    gradings_of,
    packs,
)
from rubricflow.tasks.grading.calibrate.task import calibrate, share_of

DASK = Placement(engine="dask")
PACK = 20
WORDS = plan(features=["judge", "characters"])
"""It reads texts, and needs no model for that."""


@pytest.fixture(autouse=True)
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "SHARD_ROWS", PACK)


def assigned(folder: Path) -> tuple[PredictionAssignment, list[GradingPack]]:
    """A run whose mappings are fitted, and its packs."""
    run, refs = run_of(folder / "house")
    items, responses, _, gradings, bundles = refs
    calibrate.fn(run, WORDS, *refs)
    for path in (run.folder / "_done" / "calibrate").glob("*.json"):
        if path.stem != "fitted":
            path.unlink()
    assignment = PredictionAssignment(run, WORDS.calibration, items, responses, gradings, bundles)
    return assignment, list(packs(run, gradings, PACK))


def test_workers_write_what_one_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crew = CrewHere(monkeypatch, seed=1)
    run, refs = run_of(tmp_path / "here")
    here = calibrate.fn(run, WORDS, *refs)
    other, refs = run_of(tmp_path / "there")
    assert calibrate.fn(other, WORDS, *refs, placement=DASK) == here
    assert len(crew.pieces) == 5
    assert other.read(here.predictions).equals(run.read(here.predictions))
    assert other.shards("calibrate") == run.shards("calibrate")


@pytest.mark.parametrize("placement", [DASK, HERE], ids=lambda placement: placement.engine)
def test_a_killed_command_goes_on_here_or_there_and_predicts_no_pack_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placement: Placement
) -> None:
    run, refs = run_of(tmp_path / "whole")
    whole = calibrate.fn(run, WORDS, *refs)
    run, refs = run_of(tmp_path / "killed")
    killed = CrewHere(monkeypatch, dies_after=2)
    with pytest.raises(KeyboardInterrupt):
        calibrate.fn(run, WORDS, *refs, placement=DASK)
    written, commit = list[str](), Run.commit
    monkeypatch.setattr(Run, "commit", lambda *shard: (written.append(shard[2]), commit(*shard)))
    monkeypatch.setattr(task, "fit_items", lambda *_: pytest.fail("it was fitted again"))
    CrewHere(monkeypatch)
    assert calibrate.fn(run, WORDS, *refs, placement=placement) == whole
    before = [name.split()[-1] for name in killed.pieces]
    assert sorted([*before, *written]) == ["all", *(f"predictions-{number:05d}" for number in range(5))]


@pytest.mark.parametrize(("features", "rows"), [(["judge"], PACK), (["judge", "characters"], 1_000)])
def test_what_takes_no_time_is_not_shared_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, features: list[str], rows: int
) -> None:
    crew = CrewHere(monkeypatch)
    monkeypatch.setattr(task, "SHARD_ROWS", rows)
    run, refs = run_of(tmp_path)
    assert calibrate.fn(run, plan(features=features), *refs, placement=DASK).predictions.rows == 84
    assert crew.pieces == []


def test_what_is_sent_is_small_and_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assignment, (_, pack, *_) = assigned(Path("relative"))
    (tmp_path / "model").mkdir()
    model = assignment.plan.model_copy(update={"language_model": "model"})
    assert share_of(assignment._replace(plan=model)).assignment.plan.language_model == str(tmp_path / "model")
    sent = piece_arguments(share_of(assignment), code_digest(), Piece("calibrate", pack.rows, pack.name, pack))
    assert sum(map(len, sent)) < 4_000
    monkeypatch.chdir("/")
    assert do_piece(*sent).counts.members == pack.rows


def test_hidden_states_are_one_more_block_and_a_worker_loads_the_model_once_for_all_packs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, states = list[str](), predictions.HiddenStates
    monkeypatch.setattr(predictions, "HiddenStates", lambda folder: (loaded.append(folder), states(folder))[1])
    folder = str(byte_model(tmp_path / "model"))
    run, refs = run_of(tmp_path / "house")
    crew = CrewHere(monkeypatch)
    done = calibrate.fn(run, plan(features=["judge", "hidden"], language_model=folder), *refs, placement=DASK)
    assert len(crew.pieces) == 5
    assert loaded == [folder] * 3  # the command to fit, and two workers
    for content in run.read(done.calibrations)["content"].to_pylist():
        blocks = {block.name for block in read_calibration(content).mapping.blocks}
        assert {"judge", "hidden"} <= blocks <= {"judge", "hidden", "item"}
    assert None not in run.read(done.predictions)["points_text"].to_pylist()


# Packs by their keys: every grading in exactly one of them, as a pass over all gradings in order cuts them.


ID = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3)
ITEMS = st.dictionaries(ID, st.dictionaries(ID, st.integers(1, 5), max_size=12), max_size=5)
"""Item → response → samples."""


def written(folder, items, order, shards):
    """The gradings in shards, in the order of `order`, each with a score of its own; responses are their item's."""
    rows = [
        grading(f"{response}@{item}", "m", 0.0, item_id=item, sample=sample)
        for item, responses in items.items()
        for response, samples in responses.items()
        for sample in range(samples)
    ]
    order.shuffle(rows)
    run = Warehouse.open(folder / "house").run("run")
    for number in range(shards):
        mine = [row | {"score": float(place)} for place, row in enumerate(rows)][number::shards]
        run.commit("judge", f"{number:05d}", {Gradings: mine})
    return run, run.ref(Gradings, "judge")


@settings(max_examples=15)
@given(ITEMS, st.randoms(use_true_random=False), st.integers(1, 4), st.integers(1, 9))
def test_a_pack_read_by_its_keys_is_what_a_pass_over_all_gradings_gives(items, order, shards, rows):
    with tempfile.TemporaryDirectory() as folder:
        run, gradings = written(Path(folder), items, order, shards)
        parted = list(packs(run, gradings, rows))
        read = [gradings_of(run, gradings, pack) for pack in parted]
        assert [pack.rows for pack in parted] == [len(table) for table in read]
        whole = run.read(gradings, GRADING).sort_by([(name, "ascending") for name in KEYS])
        together = pa.concat_tables(read) if read else whole
        assert together["response_id"].equals(whole["response_id"])
        assert sorted(map(str, together.to_pylist())) == sorted(map(str, whole.to_pylist()))
        of_packs = [table["response_id"].unique() for table in read]
        assert sum(map(len, of_packs)) == len(whole["response_id"].unique())
        assert sum(pack.rows for pack in parted) == gradings.rows
        assert not [pack for pack in parted[:-1] if pack.rows < rows]


def test_gradings_that_came_or_went_since_are_named(tmp_path):
    run, gradings = written(tmp_path, {"i": {"a": 1, "b": 2}}, random.Random(0), 1)
    (pack,) = packs(run, gradings, 9)
    with pytest.raises(StoreError, match="predictions-00000 has 3 rows, not 4"):
        gradings_of(run, gradings, pack._replace(rows=4))
