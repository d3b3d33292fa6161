"""Pieces that workers do: what a worker opens, which it passes over or refuses, and the line about all of them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from builders.crew import CrewHere, piece_arguments
from builders.rows import response

from rubricflow.tasks.core.contracts.backends import Choice
from rubricflow.tasks.core.contracts.errors import BackendError, StoreError
from rubricflow.tasks.core.contracts.settings.engine import Placement
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.llm.terms import sharing
from rubricflow.tasks.core.monitor.shared_stage import (
    Piece,
    PieceCounts,
    PieceProgress,
    PieceResult,
    SharedStage,
    do_piece,
    share_out,
    with_absolute_paths,
)
from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

DASK = Placement(engine="dask")
PIECES = [Piece(f"stage {n}", 2, f"{n:05d}", content=n) for n in range(5)]
opened: list[str] = []


def open_folder(assignment: str) -> str:
    opened.append(f"{assignment} shared by {sharing().workers}")
    return assignment


def write(folder: str, piece: Piece) -> PieceResult:
    Warehouse.open(folder).run("run").commit("stage", str(piece.shard), {Responses: [response(f"r{piece.content}")]})
    return PieceResult(PieceCounts(2, calls=piece.content), {f"digest {piece.content}": "no_reply"})


def lose(folder: str, piece: Piece) -> PieceResult:
    return PieceResult(PieceCounts(), {})


def stage_in(folder: Path, choice: Choice | None = None, work=write) -> SharedStage:
    run = Warehouse.open(folder).run("run")
    run.commit("ingest", "all", {Responses: []})
    return SharedStage("stage", "shards", run, str(folder), ("ingest", "all"), open_folder, work, choice)


def test_every_piece_is_done_once_and_a_worker_opens_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.clear()
    stage, counts = stage_in(tmp_path), list[PieceCounts]()
    crew = CrewHere(monkeypatch, seed=1)
    errors = share_out(stage, PIECES, DASK, counts.append, prepare=lambda: opened.append("prepared"))
    assert errors == {f"digest {n}": "no_reply" for n in range(5)}
    assert sorted(crew.pieces) == [piece.name for piece in PIECES]
    assert opened == ["prepared", *[f"{tmp_path} shared by 4"] * 2]
    assert sorted(one.calls for one in counts) == list(range(5))
    assert stage.run.ref(Responses, "stage").rows == 5


def test_a_shard_that_is_there_is_passed_over(tmp_path: Path) -> None:
    stage = stage_in(tmp_path)
    arguments = piece_arguments(stage, code_digest(), PIECES[3])
    assert do_piece(*arguments).counts == PieceCounts(2, calls=3)
    assert do_piece(*arguments) == PieceResult(PieceCounts(2), {})


def test_a_finished_shard_that_is_not_here_ends_it_after_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = CrewHere(monkeypatch)
    with pytest.raises(StoreError, match="name a warehouse that all see"):
        share_out(stage_in(tmp_path, work=lose), PIECES, DASK, lambda counts: None)
    assert len(crew.pieces) == 1


def test_a_worker_of_another_version_or_with_another_warehouse_refuses(tmp_path: Path) -> None:
    stage = stage_in(tmp_path / "house")
    with pytest.raises(BackendError, match="has another version of rubricflow"):
        do_piece(*piece_arguments(stage, "another", PIECES[0]))
    elsewhere = SharedStage(**{**vars(stage), "run": Warehouse.open(tmp_path / "elsewhere").run("run")})
    with pytest.raises(BackendError, match=r"does not see .*elsewhere.*folder that all machines share"):
        do_piece(*piece_arguments(elsewhere, code_digest(), PIECES[0]))


@pytest.mark.parametrize("replies", ["", "replies.sqlite"])
def test_a_run_is_found_from_any_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replies: str
) -> None:
    monkeypatch.setenv("RUBRICFLOW_REPLIES", replies)
    monkeypatch.chdir(tmp_path)
    run: Run = Warehouse.open("house").run("run")
    run.commit("ingest", "all", {Responses: []})
    sent = pickle.dumps(with_absolute_paths(run))
    monkeypatch.chdir("/")
    moved: Run = pickle.loads(sent)
    assert moved.done("ingest", "all")
    assert Path(str(moved.warehouse.replies)).parent == (tmp_path if replies else tmp_path / "house")


def test_the_last_line_counts_everything(tmp_path: Path) -> None:
    lines: list[tuple[str, float]] = []
    ticks = iter(range(0, 1000, 10))
    progress = PieceProgress(
        stage_in(tmp_path),
        [Piece("a", 60), Piece("b", 20)],
        ("responses", "unscored"),
        lambda line, share: lines.append((line, share)),
        lambda: float(next(ticks)),
    )
    progress.ended(PieceCounts(60, 1, 55, 5, 5_000))
    progress.ended(PieceCounts(20, 0, 20, 0, 1_000, 3))
    assert lines == [
        (
            "stage: 1/2 shards, about 10 s left, 60/80 responses, 6/s, 55 calls, 5 replies reused, 1 unscored, "
            "5,000 tokens",
            0.5,
        ),
        (
            "stage: 2/2 shards, 80/80 responses, 4/s, 75 calls, 5 replies reused, 1 unscored, 6,000 tokens, "
            "3 requests to the store",
            1.0,
        ),
    ]
