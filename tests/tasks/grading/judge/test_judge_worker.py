"""Shards judged by workers: the same tables as in one process, whoever judges them, in whatever order."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from builders.bundles import bundle, criterion
from builders.cases import to_judge
from builders.crew import CrewHere
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import HERE, Engine, Placement
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.budget import BudgetSpent, kept_budget, on_budget
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.monitor.shared_stage import concurrency
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.judge import shard_judge
from rubricflow.tasks.grading.judge import task as door
from rubricflow.tasks.grading.judge.rows import Rater
from rubricflow.tasks.grading.judge.shard_judge import Assignment
from rubricflow.tasks.grading.judge.task import JudgedTables, judge

PLAN = Judge(protocol="rulers", backend="replay", model="scripted")
DASK = Placement(engine="dask")


def right(request: Request) -> Reply:
    quote = [{"unit": "s1", "quote": "plants need light"}]
    text = json.dumps({"decisions": {"P": {"evidence": quote, "level": 1}}})
    return Reply(text=text, prompt_tokens=700, completion_tokens=300)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_judge, "rater", lambda *_: Rater("scripted:test", "llm", on_budget(Scripted(right))))
    monkeypatch.setattr(door, "SHARD", 3)


def assigned(folder: Path) -> Assignment:
    """Three items of 1, 4 and 7 responses, some of them empty: six shards of at most three."""
    run = Warehouse.open(folder / "house").run("run")
    texts = {
        item: {f"{item}-{n}": f"plants need light, {item} {n}" if n % 5 else "" for n in range(count)}
        for item, count in (("i1", 1), ("i2", 4), ("i3", 7))
    }
    return Assignment(run, PLAN, folder, *to_judge(run, bundle(criterion("P", text="light")), texts), None, "", "judge")


def judged(given: Assignment, placement: Placement = HERE, budget: int | None = None) -> JudgedTables:
    tables = given.items, given.responses, given.bundles
    with kept_budget(given.run.warehouse, given.run.run_id, budget, None):
        return judge.fn(given.run, given.plan, given.base, *tables, placement=placement)


@settings(max_examples=3)
@given(
    seed=st.integers(),
    workers=st.integers(1, 3),
    sizes=st.lists(st.none() | st.integers(1, 4), min_size=1, max_size=3),
    dies_after=st.integers(1, 4),
    ends_here=st.booleans(),
)
def test_workers_write_what_one_process_writes_however_it_is_cut_and_whenever_it_is_killed(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    workers: int,
    sizes: list[int | None],
    dies_after: int,
    ends_here: bool,
) -> None:
    folder = tmp_path_factory.mktemp("shared")
    given = assigned(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(shard_judge, "rater", lambda *_: Rater("scripted:test", "llm", Scripted(right)))
        patched.setattr(door, "SHARD", 5)
        alone = judged(assigned(folder / "alone"))
        tables = None
        for size in sizes:
            crew = CrewHere(patched, workers, seed, dies_after)
            with suppress(KeyboardInterrupt):
                tables = judged(given, Placement(engine="dask", piece=size))
            assert max(crew.sizes, default=0) < 8_000, "what a piece takes along"
        if tables is None:
            CrewHere(patched, workers, seed)
            tables = judged(given, HERE if ends_here else DASK)
        assert tables == alone
    there = Warehouse.open(folder / "alone" / "house").run("run")
    assert given.run.shards("judge").keys() == there.shards("judge").keys()
    assert list(given.run.folder.rglob("*parts*")) == []


def test_pairs_stay_with_their_question_whoever_judges_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def first(request: Request) -> Reply:
        return Reply(text=json.dumps({"comparison": "c", "winner": "1"}))

    monkeypatch.setattr(shard_judge, "rater", lambda *_: Rater("scripted:test", "llm", Scripted(first)))
    monkeypatch.setattr(door, "WHOLE_ITEMS", 4)
    made = []
    for name, placement in (("alone", HERE), ("shared", DASK)):
        run = Warehouse.open(tmp_path / name).run("run")
        texts = {item: {f"{item}-{n}": f"{item} {n}" for n in range(count)} for item, count in (("i1", 2), ("i2", 4))}
        of = bundle(criterion("P"), name="pairwise", final_score="judged")
        plan = Judge(protocol="pairwise", backend="replay", model="scripted")
        CrewHere(monkeypatch, workers=2, seed=1)
        made.append(judged(Assignment(run, plan, tmp_path, *to_judge(run, of, texts), None, "", "judge"), placement))
        assert made[-1].comparisons is not None
        assert made[-1].comparisons.rows == 2 * (1 + 6)
    assert made[0] == made[1]


def test_a_part_that_a_killed_command_left_to_a_worker_is_judged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = assigned(tmp_path)
    CrewHere(monkeypatch, dies_after=3)
    with pytest.raises(KeyboardInterrupt):
        judged(given, Placement(engine="dask", piece=2))
    monkeypatch.setattr(door, "SHARD", 3)
    finished = sorted(given.run.shards(given.parts))
    late = next(name for name in finished if name.endswith("000000-000002"))
    tables = {row: given.run.shard(row, given.parts, late) for row in door.WRITTEN}
    whole = late.replace("000000-000002", "000001-000002")
    last = {row: table.slice(0, 0) for row, table in tables.items()}
    given.run.commit(given.parts, whole, last)  # it overlaps what is there, and does not count
    rest = CrewHere(monkeypatch)
    assert judged(given, DASK) == judged(assigned(tmp_path / "alone"))
    assert not set(rest.pieces) & {f"judge {name}" for name in finished}


def test_a_budget_ends_the_shards_together_and_pays_for_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, calls, budget, tables = assigned(tmp_path), 0, 0, None
    while tables is None:
        CrewHere(monkeypatch)
        budget += 3_500
        with suppress(BudgetSpent):
            tables = judged(given, DASK, budget=budget)
        with ReplyStore(given.run.warehouse.replies) as store:
            calls = len(store)
        assert budget - 2 * 1_500 <= 1_000 * calls <= budget or calls == 8
    assert calls == 8  # four of the twelve responses are empty
    assert tables == judged(assigned(tmp_path / "alone"))


def test_a_trained_grader_judges_where_the_command_runs(tmp_path: Path) -> None:
    given = assigned(tmp_path)
    with pytest.raises(InputError, match=r"run\.engine.*engine: local"):
        judge.fn(
            given.run, PLAN, tmp_path, given.items, given.responses, given.bundles, grader=object(), placement=DASK
        )


def test_no_more_shards_at_once_than_the_server_takes_calls() -> None:
    asking = Judge(protocol="rulers", backend="openai", engine=Engine(model="m", concurrency=5))
    assert [concurrency(asking, room, 100) for room in (3, 8)] == [3, 5]
    assert [concurrency(PLAN, room, 4) for room in (3, 8)] == [3, 4]
