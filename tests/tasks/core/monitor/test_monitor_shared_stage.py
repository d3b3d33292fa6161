"""Pieces that workers do: what a worker opens, which it passes over or refuses, and the line about all of them."""

from __future__ import annotations

import heapq
import pickle
from pathlib import Path

import numpy as np
import pytest
from builders.crew import CrewHere, piece_arguments
from builders.rows import response
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.backends import Choice
from rubricflow.tasks.core.contracts.errors import BackendError, StoreError
from rubricflow.tasks.core.contracts.settings.engine import Engine, Placement
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.llm.budget import sharing
from rubricflow.tasks.core.monitor.shared_stage import (
    FIRST,
    SHORTEST_S,
    Cutting,
    Piece,
    PieceCounts,
    PieceProgress,
    PieceResult,
    SharedStage,
    do_piece,
    require_visible,
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
    errors = share_out(
        stage, lambda _: PIECES, 5, DASK, lambda _, one: counts.append(one), prepare=lambda: opened.append("prepared")
    )
    assert errors == {f"digest {n}": "no_reply" for n in range(5)}
    assert sorted(crew.pieces) == [piece.name for piece in PIECES]
    assert opened == ["prepared", *[f"{tmp_path} shared by 4"] * 2]
    assert sorted(one.calls for one in counts) == list(range(5))
    assert stage.run.ref(Responses, "stage").rows == 5


def test_a_shard_that_is_there_is_passed_over(tmp_path: Path) -> None:
    stage = stage_in(tmp_path)
    arguments = piece_arguments(stage, code_digest(), PIECES[3])
    assert do_piece(*arguments).counts._replace(seconds=0) == PieceCounts(2, calls=3)
    assert do_piece(*arguments) == PieceResult(PieceCounts(2), {})


def test_a_finished_shard_that_is_not_here_ends_it_after_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew, stage = CrewHere(monkeypatch), stage_in(tmp_path, work=lose)

    def ended(piece: Piece, _: PieceCounts) -> None:
        require_visible(stage.run, ("stage", str(piece.shard)), ("other", "all"))

    with pytest.raises(StoreError, match="name a warehouse that all see"):
        share_out(stage, lambda _: PIECES, 5, DASK, ended)
    assert len(crew.pieces) == 1
    stage.run.commit("other", "all", {Responses: []})
    share_out(stage, lambda _: PIECES, 5, DASK, ended)


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


def test_the_last_line_counts_everything() -> None:
    lines: list[tuple[str, float]] = []
    ticks = iter(range(0, 1000, 10))
    progress = PieceProgress(
        "stage",
        80,
        ("responses", "unscored"),
        lambda line, share: lines.append((line, share)),
        lambda: float(next(ticks)),
    )
    progress.ended(PIECES[0], PieceCounts(60, 1, 55, 5, 5_000))
    progress.ended(PIECES[1], PieceCounts(20, 0, 20, 0, 1_000, 3))
    assert lines == [
        (
            "stage: 60/80 responses, 6/s, about 3 s left, 1 piece, 55 calls, 5 replies reused, 1 unscored, "
            "5,000 tokens",
            0.75,
        ),
        (
            "stage: 80/80 responses, 4/s, 2 pieces, 75 calls, 5 replies reused, 1 unscored, 6,000 tokens, "
            "3 requests to the store",
            1.0,
        ),
    ]


@settings(max_examples=40)
@given(
    left=st.integers(1, 5_000),
    workers=st.integers(1, 16),
    each=st.floats(0.001, 30),
    spread=st.floats(0, 0.5),
    calls=st.integers(1, 64),
    seed=st.integers(0, 2**32 - 1),
)
def test_workers_end_at_about_the_same_time(
    left: int, workers: int, each: float, spread: float, calls: int, seed: int
) -> None:
    plan = Choice(backend="openai", engine=Engine(model="m", concurrency=calls))
    rng, cutting = np.random.default_rng(seed), Cutting(left, workers, plan)
    free, busy, longest, sizes = [0.0] * workers, 0.0, 0.0, list[int]()
    while sum(sizes) < left:
        now = heapq.heappop(free)
        sizes.append(cutting.next_size(left - sum(sizes)))
        seconds = sizes[-1] * each * rng.uniform(1 - spread, 1 + spread)
        heapq.heappush(free, now + seconds)
        busy += seconds
        longest = max(longest, seconds)
        cutting.ended(sizes[-1], seconds)
    at_once = max(1, calls // workers)
    one = each * (1 + spread)
    # A piece that is taken last is a half of an even share of what is left, or the shortest that pays.
    late = max(busy / workers, 2 * SHORTEST_S, at_once * one, one) if left > 2 * workers else longest
    assert max(free) <= busy / workers + late
    if left > 20 * workers * max(FIRST, at_once) and one * left / workers > 20 * SHORTEST_S:
        assert max(free) <= 1.15 * busy / workers
    assert all(size % at_once == 0 for size in sizes[:-1])


def test_a_size_that_somebody_says_holds() -> None:
    cutting = Cutting(10, 4, size=3)
    assert [cutting.next_size(10 - at) for at in (0, 3, 6, 9)] == [3, 3, 3, 1]
