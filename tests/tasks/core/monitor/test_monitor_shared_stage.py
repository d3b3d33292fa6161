"""Pieces that workers do: what a worker opens, which it passes over or refuses, and the line about all of them."""

from __future__ import annotations

import heapq
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
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
from rubricflow.tasks.core.llm.budget import Sharing, sharing
from rubricflow.tasks.core.llm.calls import METERS, CallMeters
from rubricflow.tasks.core.llm.ledger import CallLedger, Lane
from rubricflow.tasks.core.llm.opening import Machine
from rubricflow.tasks.core.llm.reply_store import open_replies
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.monitor import shared_stage
from rubricflow.tasks.core.monitor.piece_progress import Lookout, PieceCounts, PieceProgress
from rubricflow.tasks.core.monitor.shared_stage import (
    FIRST,
    ROUNDS,
    SHORTEST_S,
    Cutting,
    Piece,
    PieceResult,
    SharedStage,
    Terms,
    do_piece,
    expectation,
    require_visible,
    share_out,
    telling,
    with_absolute_paths,
)
from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

DASK = Placement(engine="dask")
PIECES = [Piece(f"stage {n}", 2, f"{n:05d}", content=n) for n in range(5)]
opened: list[str] = []


def open_folder(assignment: str) -> str:
    opened.append(f"{assignment} shared by {len(sharing().lanes)}")
    return assignment


def write(folder: str, piece: Piece) -> PieceResult:
    Warehouse.open(folder).run("run").commit("stage", str(piece.shard), {Responses: [response(f"r{piece.content}")]})
    return PieceResult(PieceCounts(2, calls=piece.content), {f"digest {piece.content}": "no_reply"})


def lose(folder: str, piece: Piece) -> PieceResult:
    return PieceResult(PieceCounts(), {})


def stage_in(folder: Path, choice: Choice | None = None, work=write) -> SharedStage:
    run = Warehouse.open(folder).run("run")
    run.commit("ingest", "all", {Responses: []})
    return SharedStage(
        "stage", "stage", ("responses", "unscored"), run, str(folder), ("ingest", "all"), open_folder, work, choice
    )


def test_every_piece_is_done_once_and_a_worker_opens_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.clear()
    stage, counts = stage_in(tmp_path), list[PieceCounts]()
    crew = CrewHere(monkeypatch, seed=1)
    errors = share_out(
        stage, lambda _: PIECES, 10, 5, DASK, lambda _, one: counts.append(one), lambda: opened.append("prepared")
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


class Model:
    """Something large."""


models: list[weakref.ref[Model]] = []


def open_model(_: object) -> Model:
    assert not any(model() for model in models), "another one is let go before"
    model = Model()
    models.append(weakref.ref(model))
    return model


@pytest.mark.parametrize("sent", ["aab", "abab", "b"])
def test_a_process_holds_the_model_of_the_last_command_alone_whichever_thread_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    models.clear()
    monkeypatch.setattr(shared_stage, "KEPT", {})
    piece = PIECES[0]._replace(shard=None)
    stages = {name: replace(stage_in(tmp_path / name, work=lose), open=open_model) for name in sent}
    for name in sent:
        arguments = piece_arguments(stages[name], code_digest(), piece)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda _, words=arguments: do_piece(*words), range(8)))
    assert len(models) == 1 + sum(before != after for before, after in pairwise(sent))
    assert models[-1]() is not None


def test_a_finished_shard_that_is_not_here_ends_it_after_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew, stage = CrewHere(monkeypatch), stage_in(tmp_path, work=lose)

    def ended(piece: Piece, _: PieceCounts) -> None:
        require_visible(stage.run, ("stage", str(piece.shard)), ("other", "all"))

    with pytest.raises(StoreError, match="name a warehouse that all see"):
        share_out(stage, lambda _: PIECES, 10, 5, DASK, ended)
    assert len(crew.pieces) == 1
    stage.run.commit("other", "all", {Responses: []})
    share_out(stage, lambda _: PIECES, 10, 5, DASK, ended)


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
    clock = [0.0]
    progress = PieceProgress(
        "stage", 80, ("responses", "unscored"), lambda line, share: lines.append((line, share)), lambda: clock[0]
    )
    for seconds, counts in (
        (10, PieceCounts(60, 1, 55, 5, 5_000)),
        (1, PieceCounts(10, 0, 10, 0, 500, 3)),  # so soon that nobody reads it
        (9, PieceCounts(10, 0, 10, 0, 500)),
    ):
        clock[0] += seconds
        progress.ended(counts)
    assert lines == [
        (
            "stage: 60/80 responses, 6/s, about 3 s left, 55 calls, 5 replies reused, 1 unscored, 5,000 tokens",
            0.75,
        ),
        (
            "stage: 80/80 responses, 4/s, 3 pieces, 75 calls, 5 replies reused, 1 unscored, 6,000 tokens, "
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
    if left > 20 * workers * max(FIRST, ROUNDS * at_once) and one * left / workers > 20 * SHORTEST_S:
        assert max(free) <= 1.15 * busy / workers
    assert all(size % at_once == 0 for size in sizes[:-1])


def test_a_size_that_somebody_says_holds() -> None:
    cutting = Cutting(10, 4, size=3)
    assert [cutting.next_size(10 - at) for at in (0, 3, 6, 9)] == [3, 3, 3, 1]


def test_lanes_share_the_calls_and_a_worker_that_goes_on_gets_those_of_one_that_ended(tmp_path: Path) -> None:
    ledger = CallLedger(tmp_path / "ledger.sqlite")
    ledger.make()
    ledger.open_lanes("command", 3)
    workers = [Sharing(range(3), set(), ledger) for _ in range(2)]
    terms, own = Terms(3, None, {}, "", "command"), CallMeters()
    with telling(terms, workers[0], "p0", 0, own), telling(terms, workers[1], "p1", 1, own):
        with telling(terms, workers[1], "p2", 2, own):  # a worker of two threads
            assert [worker.part(32) for worker in workers] == [11, 21]
            assert [worker.part(1) for worker in workers] == [1, 1]  # or nobody could ask a second model
        ledger.close_lanes("command", 2, 3)
        for lane, worker in enumerate(workers):
            worker.lanes = ledger.tell("command", lane, "w", f"p{lane}", {})
        assert [worker.part(32) for worker in workers] == [16, 16]
        ledger.close_lanes("command", 0, 1)
        workers[1].lanes = ledger.tell("command", 1, "w", "p1", {})
        assert workers[1].part(32) == 32
    ledger.close_lanes("command", 0, 3)
    assert ledger.lanes("command") == []


def test_a_lost_worker_is_told_once_and_who_takes_its_piece() -> None:
    said: list[str] = []

    def lane(piece: str, worker: str) -> Lane:
        return Lane(0, worker, piece, {"calls m": 3, "open m": 2})

    looks = [lane("p1", ""), lane("p1", "A"), *[lane("p1", "B")] * 3, lane("p2", "B"), lane("p3", "C")]
    lookout, before = Lookout(lambda: [looks.pop(0)], said.append), METERS.counted()
    while looks:
        lookout.look()
    assert METERS.counted() - before == {"calls m": 3}  # that A made and nobody else tells
    assert [("A" in line, "B" in line, "p1" in line) for line in said] == [(True, True, True)]
    assert (lookout.asked({"p3": 1}), lookout.asked({"p2": 1})) == ({"calls m": 3, "open m": 2}, {})


def test_a_line_comes_from_inside_pieces_and_its_time_begins_with_the_first_worker() -> None:
    lines, clock = list[tuple[str, float]](), [0.0]
    names = "responses", "unscored"
    progress = PieceProgress("stage", 100, names, lambda line, share: lines.append((line, share)), lambda: clock[0])

    def look(seconds: float, has_begun: bool, waited_s: float = 0.0, **counts: float) -> None:
        clock[0] += seconds
        asked = {f"{what} {'http://judge' if what == 'absent' else 'm'}": count for what, count in counts.items()}
        progress.look(asked, 50, waited_s, has_begun)

    look(2, False)
    look(58, False)
    assert len(lines) == 1
    look(10, True, calls=20, open=30, prompt_tokens=1000, completion_tokens=100)
    assert lines[1] == (
        "stage: about 20/100 responses, 2/s, about 40 s left, 20 calls, 30 open, 0 replies reused, "
        "0 unscored, 1,100 tokens",
        0.2,
    )
    look(6, True, calls=20, open=30, prompt_tokens=1000, completion_tokens=100)  # nothing came: in four seconds again
    look(4, True, 12.0, calls=20, open=30, prompt_tokens=1000, completion_tokens=100, absent=1)
    assert len(lines) == 3
    assert "waiting for replies of http://judge, 12 s" in lines[2][0]
    progress.ended(PieceCounts(50, 0, 60, 0, 4_000))
    look(10, True, calls=30, open=30)
    assert "about 75/100 responses, 2.5/s, about 10 s left, 90 calls" in lines[-1][0]


def test_what_it_may_take_is_said_beforehand_where_a_model_was_asked_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUBRICFLOW_REPLIES", raising=False)
    stage = stage_in(tmp_path, Choice(backend="openai", engine=Engine(model="m", concurrency=32)))
    placement = Placement(engine="dask", workers=4)
    monkeypatch.setattr(shared_stage, "this_machine", lambda: Machine(2, 0.0, None, {}, False))
    assert "first pieces" in expectation(stage, placement, 2_400)
    with open_replies(stage.run.warehouse.replies) as replies:
        replies.put_many([("a", "m", Reply(text="x", latency_s=1.0)), ("b", "m", Reply(text="y", latency_s=3.0))])
    words = expectation(stage, placement, 2_400)
    assert "local: about 3 min; 4 workers: about 3 min and 20 s to start" in words  # 2,400 calls of 2 s, 32 at once
    assert "first pieces" in expectation(stage_in(tmp_path), placement, 2_400)
    ledger = CallLedger(tmp_path / "ledger.sqlite")
    ledger.make()
    ledger.started("dask 4", 70.0)
    ledger.started("dask 4", 43.2)
    assert "4 workers: about 3 min and 43 s to start" in expectation(stage, placement, 2_400, ledger.start("dask 4"))
    monkeypatch.setattr(shared_stage, "this_machine", lambda: Machine(2, 6.0, None, {}, False))
    assert ledger.start("dask 2") is None
    assert "and 60 s to start" in expectation(stage, placement, 2_400)
