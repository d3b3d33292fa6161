"""The shards of the stage: what a phase reads of those before it, and how it passes over those that are there.

What a training run says while it runs: how much of a phase is done, how fast, and how long the rest will take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tasks.contracts.schema import Row
from tasks.contracts.settings.edit import Arm
from tasks.edit.phases import Record
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


_EVERY_S = 5.0
_SILENT_S = 30.0
"""Seconds after which a chunk that is still worked on is told of."""


class TrainingProgress:
    """Says a line now and then (plain text, so that it reads in any log)."""

    def __init__(self, label: str, total: int, done: int | None = None) -> None:
        """done: what an earlier session did, which does not count for the speed; None for what is reached first."""
        self._label, self._total, self._before = label, total, done
        self._start = self._last = self._heard = time.monotonic()

    def reached(self, done: int) -> None:
        """So many are done now; a line if the last one is long enough ago, or nothing is left."""
        now = self._heard = time.monotonic()
        if self._before is None:
            self._before, self._start = done, now
        if now - self._last < _EVERY_S and done < self._total:
            return
        self._last = now
        rate = (done - self._before) / max(now - self._start, 1e-9)
        remaining = f", {_words((self._total - done) / rate)} left" if rate and done < self._total else ""
        print(f"edit: {self._label} {done:,} of {self._total:,}, {rate:.3g}/s{remaining}")

    def look(self) -> None:
        """A line where nothing was reached for long: the chunk is still worked on."""
        now = time.monotonic()
        if now - max(self._heard, self._last) < _SILENT_S:
            return
        self._last = now
        silent = _words(now - self._heard)
        print(f"edit: {self._label}, {self._total:,} in all: at work on the same chunk for {silent}")


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
