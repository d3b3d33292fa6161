"""Shards judged by workers: the same tables as in one process, whoever judges them, in whatever order."""

from __future__ import annotations

import json
import pickle
from contextlib import suppress
from pathlib import Path

import pytest
from builders.bundles import bundle, criterion
from builders.cases import to_judge
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments, ShardInputs
from rubricflow.tasks.core.llm.backends.scripted import Scripted
from rubricflow.tasks.core.llm.budget import BudgetSpent
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.llm.terms import concurrency
from rubricflow.tasks.core.stats.scores import MEAN
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.core.store.workers import Desks
from rubricflow.tasks.grading.judge.assignment import Assignment, SentAssignment
from rubricflow.tasks.grading.judge.rows import Rater, item_counts, shard_cases
from rubricflow.tasks.grading.judge.worker import Shard, ShardJudge, ShardWorker, cut, cut_stage, sent_off, shards

PLAN = Judge(protocol="rulers", backend="replay", model="scripted")
SHARD = 3


def right(request: Request) -> Reply:
    quote = [{"unit": "s1", "quote": "plants need light"}]
    text = json.dumps({"decisions": {"P": {"evidence": quote, "level": 1}}})
    return Reply(text=text, prompt_tokens=700, completion_tokens=300)


def open_rater(assignment: Assignment, replies: ReplyStore) -> Rater:
    return Rater("scripted:test", "llm", Scripted(right))


def assigned(folder: Path) -> tuple[Assignment, list[Shard]]:
    """Three items of 1, 4 and 7 responses, some of them empty, and their shards of three."""
    run = Warehouse.open(folder / "house").run("run")
    texts = {
        item: {f"{item}-{n}": f"plants need light, {item} {n}" if n % 5 else "" for n in range(count)}
        for item, count in (("i1", 1), ("i2", 4), ("i3", 7))
    }
    items, responses, bundles = to_judge(run, bundle(criterion("P", text="light")), texts)
    assignment = Assignment(run, PLAN, folder, items, responses, bundles, None, MEAN, "judge")
    parted = shards(item_counts(run, responses), SHARD)
    return assignment, [Shard(name, sum(count for *_, count in parts), False) for name, parts in parted]


def written(run: Run) -> list[TableRef]:
    return [run.ref(row, "judge") for row in (Judgments, Gradings, Attempts)]


def judged_here(folder: Path) -> list[TableRef]:
    """What one process makes of it."""
    assignment, ordered = assigned(folder)
    with ReplyStore(":memory:") as replies:
        judge = ShardJudge(assignment, open_rater(assignment, replies), replies)
        tables = assignment.items, assignment.responses, assignment.bundles
        for name, cases in shard_cases(assignment.run, *tables, ordered):
            judge.judge(name, cases)
    return written(assignment.run)


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_workers_write_what_one_process_writes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("shared")
    assignment, ordered = assigned(folder)
    sent = pickle.dumps(sent_off(assignment, ordered, 2, None))
    names = data.draw(st.permutations([shard.name for shard in ordered]))
    again = data.draw(st.lists(st.sampled_from(names), max_size=3))
    workers = ShardWorker(Desks()), ShardWorker(Desks())
    for number, name in enumerate([*names, *again]):
        workers[number % 2].judge(sent, name, open_rater)
    assert written(assignment.run) == judged_here(folder / "alone")


def test_inputs_are_cut_once_and_hold_what_is_judged(tmp_path: Path) -> None:
    assignment, ordered = assigned(tmp_path)
    run, stage = assignment.run, cut_stage(assignment.responses, False)
    cut(run, assignment.responses, stage, ordered)
    kept = {path: path.stat().st_mtime_ns for path in (run.folder / "shard_inputs").rglob("*.parquet")}
    rows = [run.shard(ShardInputs, stage, shard.name).num_rows for shard in ordered]
    assert rows == [shard.responses for shard in ordered]
    assert sum(rows) == 12
    cut(run, assignment.responses, stage, ordered)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert cut_stage(assignment.responses, True) != stage


def test_a_killed_cut_goes_on_and_a_judged_shard_is_not_cut(tmp_path: Path) -> None:
    assignment, ordered = assigned(tmp_path)
    run, stage = assignment.run, cut_stage(assignment.responses, False)
    judged = [ordered[0]._replace(done=True), *ordered[1:]]
    cut(run, assignment.responses, stage, judged)
    assert [run.done(stage, shard.name) for shard in ordered] == [False] + [True] * (len(ordered) - 1)
    whole = run.shard(ShardInputs, stage, ordered[2].name)
    (run.folder / "_done" / stage / f"{ordered[2].name}.json").unlink()  # killed between file and mark
    cut(run, assignment.responses, stage, judged)
    assert run.shard(ShardInputs, stage, ordered[2].name) == whole


def test_a_budget_ends_the_shards_together_and_pays_for_nothing_twice(tmp_path: Path) -> None:
    assignment, ordered = assigned(tmp_path)
    calls = 0
    while not all(assignment.run.done("judge", shard.name) for shard in ordered):
        sent = pickle.dumps(sent_off(assignment, ordered, 2, 5_000))
        workers = ShardWorker(Desks()), ShardWorker(Desks())
        for number, shard in enumerate(ordered):
            with suppress(BudgetSpent):
                workers[number % 2].judge(sent, shard.name, open_rater)
        with ReplyStore(assignment.run.warehouse.replies) as store:
            assert 3 <= len(store) - calls <= 5 or len(store) == 8
            calls = len(store)
    assert calls == 8  # four of the twelve responses are empty
    assert written(assignment.run) == judged_here(tmp_path / "alone")


def test_a_worker_of_another_version_refuses(tmp_path: Path) -> None:
    assignment, ordered = assigned(tmp_path)
    sent = sent_off(assignment, ordered, 1, None)
    sent = sent._replace(terms=sent.terms._replace(code="another"))
    with pytest.raises(BackendError, match="has another version of rubricflow"):
        ShardWorker(Desks()).judge(pickle.dumps(sent), ordered[0].name, open_rater)


def test_a_worker_that_sees_another_warehouse_refuses(tmp_path: Path) -> None:
    assignment, ordered = assigned(tmp_path)
    sent = sent_off(assignment, ordered, 1, None)
    elsewhere = Warehouse.open(tmp_path / "elsewhere").run("run")
    moved = sent._replace(assignment=Assignment(**{**vars(sent.assignment), "run": elsewhere}))
    with pytest.raises(BackendError, match=r"does not see .*elsewhere.*folder that all machines share"):
        ShardWorker(Desks()).judge(pickle.dumps(moved), ordered[0].name, open_rater)


def test_what_is_sent_is_small_and_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assignment, ordered = assigned(Path("relative"))
    sent = sent_off(assignment, ordered, 1, None)
    assert len(pickle.dumps(sent)) < 8_000
    monkeypatch.chdir("/")
    back: SentAssignment = pickle.loads(pickle.dumps(sent))
    assert back.assignment.base == tmp_path / "relative"
    assert ShardWorker(Desks()).judge(pickle.dumps(back), ordered[0].name, open_rater).members == ordered[0].responses


def test_no_more_shards_at_once_than_the_server_takes_calls() -> None:
    asking = Judge(protocol="rulers", backend="openai", engine=Engine(model="m", concurrency=5))
    assert [concurrency(asking, room, 100) for room in (3, 8)] == [3, 5]
    assert [concurrency(PLAN, room, 4) for room in (3, 8)] == [3, 4]
