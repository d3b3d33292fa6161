"""The door of judge: items, responses and bundles in; judgments, gradings and attempts out, a shard at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset as ds
from prefect import task

from tasks.contracts.bundle import Bundle
from tasks.contracts.study import Judge
from tasks.contracts.tables import Attempts, Gradings, Judgments, TableRef
from tasks.judge.grade import grade_batch
from tasks.judge.progress import Progress
from tasks.judge.rater import foreign_scores, rater, rescale
from tasks.judge.rows import Case
from tasks.llm.replies import ReplyStore
from tasks.store.warehouse import Run
from tasks.text.units import units

SHARD = 2_000
"""Responses in a shard: some whole small items, or a part of a large one."""


class Judged(NamedTuple):
    """What judge writes."""

    judgments: TableRef
    gradings: TableRef
    attempts: TableRef


@task
def judge(run: Run, plan: Judge, base: Path, items: TableRef, responses: TableRef, bundles: TableRef) -> Judged:
    """Grade every response, shard by shard; finished shards are passed over, and no reply is asked for twice."""
    known = {row["item_id"]: row for row in run.read(items).to_pylist()}
    locked = {row["rubric_id"]: row for row in run.read(bundles).to_pylist()}
    counts = Counter(run.read(responses, ["item_id"])["item_id"].to_pylist())
    todo = [(name, parts) for name, parts in shards(counts) if not run.done("judge", name)]
    if todo:
        with ReplyStore(run.warehouse.replies) as replies:
            progress = Progress(sum(count for _, parts in todo for *_, count in parts), print)
            who = progress.watch(rater(plan, base, replies))
            recorded = foreign_scores(plan.foreign, base) if plan.foreign else {}
            for name, parts in todo:
                cases = [
                    case
                    for item_id, at, count in parts
                    for case in cases_of(run, responses, known[item_id], locked[known[item_id]["rubric_id"]], at, count)
                ]
                graded = grade_batch(cases, who, replies, progress.wave)
                for made in graded.gradings:
                    case = made.case
                    if plan.foreign and (value := recorded.get(case.response_id)) is not None:
                        made.signals["recorded"] = rescale(value, plan.foreign, case.item_id, case.bundle.scale)
                run.commit("judge", name, graded.tables())
                progress.graded(graded)
            progress.end()
    return Judged(*(run.ref(row, "judge") for row in (Judgments, Gradings, Attempts)))


def shards(counts: Mapping[str, int], size: int = SHARD) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """(name, parts as (item, first position, number of responses)) of every shard, items in the order of their ids."""
    packed: list[list[tuple[str, int, int]]] = []
    room = 0
    for item_id in sorted(counts):
        for at in range(0, counts[item_id], size):
            count = min(size, counts[item_id] - at)
            if count > room:
                packed.append([])
                room = size
            packed[-1].append((item_id, at, count))
            room -= count
    return [(f"{number:05d}", parts) for number, parts in enumerate(packed)]


def cases_of(
    run: Run, responses: TableRef, item: dict[str, Any], locked: dict[str, Any], at: int = 0, count: int | None = None
) -> list[Case]:
    """The cases of an item from position `at` of its responses in the order of their ids.

    ContractError for a bundle that was changed.
    """
    rows = run.read(responses, ["response_id", "text"], ds.field("item_id") == item["item_id"])
    bundle = Bundle.unlock(locked["bundle_id"], locked["content"])
    return [
        Case(
            response_id=row["response_id"],
            item_id=item["item_id"],
            text=row["text"],
            units=tuple(units(row["text"])),
            question=item["question"],
            context=item["context"],
            bundle=bundle,
            bundle_id=locked["bundle_id"],
        )
        for row in rows.sort_by("response_id").slice(at, count).to_pylist()
    ]
