"""The record of a training: every batch is on disk before its rewards go out, and many batches make one shard.

A shard for every batch was seven files, and a training of days has many thousand batches. So each batch is put aside in
the run's folder (`_recent`), and those put aside become one shard now and then, and whenever somebody reads the record.
None is gathered twice, whoever is killed: a shard has the same name and rows each time. With the batches the run keeps
what items are rewarded by and evaluations of the policy, which a server that starts again reads.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.schema import Row, conform
from rubricflow.tasks.core.contracts.tables import BY_NAME
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.reward import HeldOutQuality, Rewards, TrainedCriteria
from rubricflow.tasks.core.store.files import cannot_write, locked
from rubricflow.tasks.core.store.part import reading
from rubricflow.tasks.core.store.warehouse import Rows, Run, Tables
from rubricflow.tasks.rewards.serve.answered import Qualities, RewardSum, TrainingRecord

TRAINER = "trainer"
"""The stage of a recorded run that holds what the trainer got."""
CURVES = "curves"
"""The stage that holds what its curves are drawn from."""
REPEATS = "repeats"
"""The stage that holds the second judgings."""
HELD_OUT = "held_out"
"""The stage that holds the evaluations."""
CRITERIA = "criteria"
"""The stage that holds what is looked for."""
RECENT = "_recent"
MOST_BATCHES = 64
"""Batches in one shard. The first shards have fewer, so that there is something to look at from the start."""
_OPEN, _FULL = "open", "full"
_logger = logging.getLogger(__name__)

StageTables = Mapping[str, Mapping[type[Row], Rows]]
"""Stage → its tables with their rows."""


class Recorder:
    """Records the batches of one process; others may record into the same run. Threads may share it."""

    def __init__(self, run: Run) -> None:
        """StoreError where nothing can be written."""
        self._run = run
        self._aside = self._recorded = 0
        gather(run)

    def add(self, batch: str, tables: StageTables) -> None:
        """Put a batch aside, and gather those that are where there are enough; StoreError where it cannot be.

        batch: its name, unlike any other, in order of time.
        """
        with _alone(self._run) as folder:
            _put_aside(folder / _OPEN, batch, tables)
            self._aside, self._recorded = self._aside + 1, self._recorded + 1
            if self._aside >= min(MOST_BATCHES, (self._recorded + 1) // 2):
                try:
                    _gathered(self._run, folder)
                    self._aside = 0
                except StoreError as error:  # the batch is on disk; what cannot be gathered now is with the next
                    _logger.warning("batches stay put aside: %s", error)

    def close(self) -> None:
        """Complete the record. Closing twice is harmless."""
        gather(self._run)


def gather(run: Run) -> None:
    """Make shards of all that is put aside, by whomever, so that the record is whole; StoreError where it cannot be."""
    with _alone(run) as folder:
        _gathered(run, folder)


@contextlib.contextmanager
def _alone(run: Run) -> Iterator[Path]:
    """The folder of what is put aside, as long as nobody else changes it."""
    with locked(run.folder / RECENT):
        yield run.folder / RECENT


def _put_aside(folder: Path, batch: str, tables: StageTables) -> None:
    """A batch as a folder with a file for each table: there whole, or not at all."""
    unseen = folder / f".{batch}"
    try:
        unseen.mkdir(parents=True, exist_ok=True)
        for stage, of_stage in tables.items():
            for row, rows in of_stage.items():
                table = conform(row, rows)
                with (
                    pa.OSFile(str(unseen / f"{stage}.{row.table}"), "wb") as file,
                    pa.ipc.new_file(file, table.schema) as writer,
                ):
                    writer.write_table(table)
        unseen.rename(folder / batch)
    except OSError as error:
        shutil.rmtree(unseen, ignore_errors=True)
        raise cannot_write(folder / batch, error) from error


def _gathered(run: Run, folder: Path) -> None:
    """Makes one shard a stage of all batches that are put aside.

    They are closed to others first and gone after, each in one step: a process that is killed in between makes the same
    shards anew, or none.
    """
    open_ = folder / _OPEN
    full = folder / _FULL
    try:
        if full.exists():
            _commit(run, full)
        if open_.exists():
            open_.rename(full)
            _commit(run, full)
    except OSError as error:
        raise cannot_write(full, error) from error


def _commit(run: Run, full: Path) -> None:
    batches = sorted(full.glob("[!.]*"))
    stages: defaultdict[str, defaultdict[type[Row], list[pa.Table]]] = defaultdict(lambda: defaultdict(list))
    for path in (path for batch in batches for path in sorted(batch.iterdir())):
        stage, _, table = path.name.partition(".")
        with reading(path, run.mend()):
            stages[stage][BY_NAME[table]].append(pa.ipc.open_file(path).read_all())
    for stage, of_stage in stages.items():
        tables: Tables = {row: pa.concat_tables(parts) for row, parts in of_stage.items()}
        run.commit(stage, batches[0].name, tables)
    gone = full.with_name(f".{full.name}")
    shutil.rmtree(gone, ignore_errors=True)  # what a process did not come to
    full.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def record_quality(run: Run, step: int, quality: Qualities) -> None:
    """Write an evaluation, in place of an earlier one of the same step."""
    rows = [{"step": step, "item_id": item_id, "quality": value} for item_id, value in sorted(quality.items())]
    run.commit(HELD_OUT, f"{step:09d}", {HeldOutQuality: rows})


def record_criteria(run: Run, bundles: Mapping[str, Bundle], shard: str = "all") -> None:
    """Write what items are rewarded by, so that a report can say it in words."""
    rows = [
        {"item_id": item_id, "criterion_id": criterion.id, "text": criterion.text, "weight": criterion.weight}
        for item_id, bundle in bundles.items()
        for criterion in bundle.criteria
    ]
    run.commit(CRITERIA, shard, {TrainedCriteria: rows})


def read_record(run: Run | None) -> TrainingRecord:
    """Rewards and held-out quality by step, as far as they were recorded."""
    if run is None:
        return TrainingRecord({}, {})
    gather(run)
    quality: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for row in run.table(HeldOutQuality, HELD_OUT).to_pylist() if run.shards(HELD_OUT) else ():
        quality[row["step"]][row["item_id"]] = row["quality"]
    return TrainingRecord(_rewards(run) if run.shards(TRAINER) else {}, dict(quality))


def _rewards(run: Run) -> dict[int, RewardSum]:
    """Step → what its rollouts were paid."""
    table = run.table(Rewards, TRAINER, ["response_id", "reward"])
    paid = dict(zip(table["response_id"].to_pylist(), table["reward"].to_pylist(), strict=True))
    rewards: dict[int, RewardSum] = {}
    for row in run.table(Responses, TRAINER, ["response_id", "groups"]).to_pylist(maps_as_pydicts="strict"):
        step = row["groups"].get("step")
        reward = paid.get(row["response_id"])
        if step is not None and reward is not None:
            rewards[int(step)] = rewards.get(int(step), RewardSum(0.0, 0)).plus(reward, 1)
    return rewards
