"""The shards of the stage: what a phase reads of those before it, and how it passes over those that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tasks.contracts.schema import Row
from tasks.contracts.settings.edit import Arm
from tasks.edit.phases import Record
from tasks.edit.progress import TrainingProgress
from tasks.edit.rollout import Sample
from tasks.llm.calls import looking
from tasks.store.digest import digest_of
from tasks.store.shards import Rows
from tasks.store.warehouse import Run

STAGE = "edit"
CHUNK = 128
"""Responses that are worked on together; after a kill at most so many of one phase are worked on again."""
Tables = dict[type[Row], Rows]
Fill = Callable[[str, Sequence[Sample]], Tables]
"""Name of a shard and its samples → its tables."""


def chunks(name: str, samples: Sequence[Sample]) -> list[tuple[str, Sequence[Sample]]]:
    """Shards of a phase with their samples."""
    starts = range(0, len(samples), CHUNK)
    return [(f"{name}-{number:05d}", samples[start : start + CHUNK]) for number, start in enumerate(starts)]


def in_chunks(run: Run, name: str, samples: Sequence[Sample], fill: Fill, label: str, each: int = 1) -> None:
    """Fill every chunk that is not done. label, each: the line about it, and what a sample counts in it."""
    todo = [(shard, part) for shard, part in chunks(name, samples) if not run.done(STAGE, shard)]
    done = len(samples) - sum(len(part) for _, part in todo)
    progress = TrainingProgress(label, len(samples) * each, done * each)
    with looking(progress.look):
        for shard, part in todo:
            run.commit(STAGE, shard, fill(shard, part))
            done += len(part)
            progress.reached(done * each)


def sampling_seed(shard: str) -> int:
    """The seed of a shard's sampling: by its name, so that it is the same whatever was done before it."""
    return int(digest_of([STAGE, shard])[:8], 16)


def table_of(run: Run, row: type[Row], where: pc.Expression | None = None) -> pa.Table:
    """Rows of this stage, shard by shard."""
    return run.read(run.ref(row, STAGE), where=where)


def rows_of(run: Run, row: type[Row], where: pc.Expression | None = None) -> list[Record]:
    """`table_of` as records."""
    return list(table_of(run, row, where).to_pylist())


def of_arm(arm: Arm, seed: int, samples: Sequence[Sample] | None = None) -> pc.Expression:
    """Rows of an arm and a seed, on these samples where they are given."""
    condition = (pc.field("arm") == arm) & (pc.field("seed") == seed)
    if samples is None:
        return condition
    return condition & pc.field("response_id").isin([sample.response_id for sample in samples])
