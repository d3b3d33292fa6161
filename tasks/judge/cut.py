"""What each shard judges, written once: a worker of a cluster then reads its own shard and no other file of answers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from tasks.contracts.reference import TableRef
from tasks.contracts.tables.judging import ShardInputs
from tasks.judge.rows import Case
from tasks.judge.tables import Sheet, case_of, in_shard_order
from tasks.store.warehouse import Run


class Shard(NamedTuple):
    """A shard of judging."""

    name: str
    responses: int
    done: bool
    """Whether its done-mark is there."""


def cut_stage(responses: TableRef, whole_items: bool) -> str:
    """Under which name the inputs of shards are written: of these responses, cut in one of two ways."""
    return f"cut-{'items-' if whole_items else ''}{responses.digest[:12]}"


def cut(run: Run, responses: TableRef, stage: str, shards: Sequence[Shard]) -> None:
    """Writes the input of every shard that is neither judged nor cut. shards: all of them, in order."""
    to_judge = {shard.name for shard in shards if not shard.done}
    lacking = to_judge - run.finished(stage, to_judge)
    if not lacking:
        return
    rows = in_shard_order(run, responses)
    for shard in shards:
        mine = list(islice(rows, shard.responses))
        if shard.name in lacking:
            run.commit(stage, shard.name, {ShardInputs: mine})


def cases_of_shard(run: Run, stage: str, name: str, sheets: dict[str, Sheet]) -> list[Case]:
    """The cases of a shard that was cut, in order; StoreError where it is not there."""
    rows = run.shard(ShardInputs, stage, name).to_pylist()
    return [case_of(row["response_id"], row["text"], *sheets[row["item_id"]], row["made_from"]) for row in rows]
