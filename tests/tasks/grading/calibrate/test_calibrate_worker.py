"""Packs predicted by workers: the same tables as in one process, whoever predicts them, in whatever order."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders.models import byte_model
from texts_scene import plan, run_of

from rubricflow.tasks.core.contracts.errors import BackendError, StoreError
from rubricflow.tasks.core.contracts.settings.engine import HERE, Placement
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.core.store.workers import Desks
from rubricflow.tasks.grading.calibrate import run_texts, task
from rubricflow.tasks.grading.calibrate.assignment import GradingPack, PredictionAssignment
from rubricflow.tasks.grading.calibrate.key_ranges import packs
from rubricflow.tasks.grading.calibrate.progress import PackProgress
from rubricflow.tasks.grading.calibrate.task import calibrate
from rubricflow.tasks.grading.calibrate.worker import PredictionWorker, sent_off

DASK = Placement(engine="dask")
PACK = 20
WORDS = plan(features=["judge", "characters"])
"""It reads texts, and needs no model for that."""


class Engine:
    """Stands for a cluster: its crew takes every piece in an order of its own, in two workers that share nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int = 0, dies_after: int | None = None) -> None:
        self.pieces, self._order, self._left = list[str](), random.Random(seed), dies_after
        self._workers = PredictionWorker(Desks()), PredictionWorker(Desks())
        self.room = 2
        monkeypatch.setattr(task, "on_engine", lambda placement, name, work: work(self))
        monkeypatch.setattr(task, "SHARD_ROWS", PACK)

    def each(self, task: object, pieces: dict[str, tuple[Any, ...]], at_once: int, done: Callable[..., None]) -> None:
        names = sorted(pieces)
        self._order.shuffle(names)
        for number, name in enumerate(names):
            if number == self._left:
                raise KeyboardInterrupt
            sent, _, pack = pieces[name]
            self.pieces.append(name)
            done(name, self._workers[number % 2].predict(sent, pickle.loads(pack)))


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


@pytest.mark.parametrize("seed", range(3))
def test_workers_write_what_one_process_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    engine = Engine(monkeypatch, seed)
    run, refs = run_of(tmp_path / "here")
    here = calibrate.fn(run, WORDS, *refs)
    other, refs = run_of(tmp_path / "there")
    assert calibrate.fn(other, WORDS, *refs, placement=DASK) == here
    assert len(engine.pieces) == 5
    assert other.read(here.predictions).equals(run.read(here.predictions))
    assert other.shards("calibrate") == run.shards("calibrate")


@pytest.mark.parametrize("placement", [DASK, HERE], ids=lambda placement: placement.engine)
def test_a_killed_command_goes_on_here_or_there_and_predicts_no_pack_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, placement: Placement
) -> None:
    run, refs = run_of(tmp_path / "whole")
    whole = calibrate.fn(run, WORDS, *refs)
    run, refs = run_of(tmp_path / "killed")
    killed = Engine(monkeypatch, dies_after=2)
    with pytest.raises(KeyboardInterrupt):
        calibrate.fn(run, WORDS, *refs, placement=DASK)
    written, commit = list[str](), Run.commit
    monkeypatch.setattr(Run, "commit", lambda *shard: (written.append(shard[2]), commit(*shard)))
    monkeypatch.setattr(task, "fit_items", lambda *_: pytest.fail("it was fitted again"))
    Engine(monkeypatch)
    assert calibrate.fn(run, WORDS, *refs, placement=placement) == whole
    before = [name.split()[-1] for name in killed.pieces]
    assert sorted([*before, *written]) == ["all", *(f"predictions-{number:05d}" for number in range(5))]


@pytest.mark.parametrize(("features", "rows"), [(["judge"], PACK), (["judge", "characters"], 1_000)])
def test_what_takes_no_time_is_not_shared_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, features: list[str], rows: int
) -> None:
    engine = Engine(monkeypatch)
    monkeypatch.setattr(task, "SHARD_ROWS", rows)
    run, refs = run_of(tmp_path)
    assert calibrate.fn(run, plan(features=features), *refs, placement=DASK).predictions.rows == 84
    assert engine.pieces == []


def test_a_worker_of_another_version_or_another_warehouse_refuses(tmp_path: Path) -> None:
    assignment, (pack, *_) = assigned(tmp_path)
    sent = sent_off(assignment)
    with pytest.raises(BackendError, match="has another version of rubricflow"):
        PredictionWorker(Desks()).predict(pickle.dumps(sent._replace(code="another")), pack)
    elsewhere = Warehouse.open(tmp_path / "elsewhere").run("small")
    moved = sent._replace(assignment=assignment._replace(run=elsewhere))
    with pytest.raises(BackendError, match=r"does not see .*elsewhere.*folder that all machines share"):
        PredictionWorker(Desks()).predict(pickle.dumps(moved), pack)


def test_a_pack_that_the_command_does_not_see_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(monkeypatch)
    monkeypatch.setattr(PredictionWorker, "predict", lambda *_: PACK)
    run, refs = run_of(tmp_path)
    with pytest.raises(StoreError, match="name a warehouse that all see"):
        calibrate.fn(run, WORDS, *refs, placement=DASK)
    assert len(engine.pieces) == 1


def test_what_is_sent_is_small_and_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assignment, (_, pack, *_) = assigned(Path("relative"))
    (tmp_path / "model").mkdir()
    model = assignment.plan.model_copy(update={"language_model": "model"})
    assert sent_off(assignment._replace(plan=model)).assignment.plan.language_model == str(tmp_path / "model")
    sent = pickle.dumps(sent_off(assignment))
    assert len(sent) + len(pickle.dumps(pack)) < 4_000
    monkeypatch.chdir("/")
    assert PredictionWorker(Desks()).predict(sent, pack) == pack.rows


def test_a_worker_loads_a_model_once_for_all_packs_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, states = list[str](), run_texts.HiddenStates
    monkeypatch.setattr(run_texts, "HiddenStates", lambda folder: (loaded.append(folder), states(folder))[1])
    folder = str(byte_model(tmp_path / "model"))
    run, refs = run_of(tmp_path / "house")
    engine = Engine(monkeypatch)
    calibrate.fn(run, plan(features=["judge", "hidden"], language_model=folder), *refs, placement=DASK)
    assert len(engine.pieces) == 5
    assert loaded == [folder] * 3  # the command to fit, and two workers


def test_lines_come_now_and_then_and_one_at_the_end() -> None:
    lines, now = list[tuple[str, float]](), SimpleNamespace(seconds=0.0)
    progress = PackProgress(100, lambda *line: lines.append(line), lambda: now.seconds)
    progress.passed(20)
    for _ in range(8):
        now.seconds += 2.0
        progress.predicted(10)
    assert lines == [
        ("calibrate: 50/100 gradings predicted, 5/s, about 10 s left", 0.5),
        ("calibrate: 80/100 gradings predicted, 5/s, about 4 s left", 0.8),
        ("calibrate: 100/100 gradings predicted, 5/s", 1.0),
    ]
