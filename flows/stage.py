"""A stage of a run: its task, the checkpoint behind it, and one line of the log that says what came of both."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from rubricflow.flows.plan import Plan, record
from rubricflow.tasks.core.check.checkpoint import tally
from rubricflow.tasks.core.check.task import checked, data_docs
from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.monitor.artifacts import announce
from rubricflow.tasks.core.monitor.runs import completed, credential, log, quiet
from rubricflow.tasks.core.store.objects import in_words, requests_sent
from rubricflow.tasks.core.store.part import listed_once
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.ingest.task import Ingested, ingest
from rubricflow.tasks.grading.lock.task import Locked, lock

P = ParamSpec("P")
Written = TypeVar("Written", bound=TableRef | tuple[object, ...])


class _NoTraceback(logging.Filter):
    """Of an error that a user can mend Prefect's loggers print the message, once, and no traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], UserError):
            record.exc_info = record.exc_text = None
        return True


for _name in ("prefect.flow_runs", "prefect.task_runs"):
    logging.getLogger(_name).addFilter(_NoTraceback())


def staged(run: Run, task: Callable[Concatenate[Run, P], Written], *args: P.args, **kwargs: P.kwargs) -> Written:
    """What a stage's task wrote into a run, held against its contract; the log says what it wrote, and how long it
    took; nothing of one that was done before.

    Where the checkpoint stops the run, the log and an event of Prefect's say so before the error ends it.
    """
    with listed_once():
        start = time.monotonic()
        requests = requests_sent()
        shards = len(run.marks())
        written = task(run, *args, **kwargs)
        tables = list(references(written))
        stage = tables[0].stage
        was_done = len(run.marks()) == shards
        with quiet(was_done):
            try:
                checked(run, written)
            except UserError:
                failed = tally(run, stage)
                log(f"{stage}: stopped at its checkpoint; {failed}", logging.ERROR)
                announce("rubricflow.checkpoint.failed", run.run_id, stage=stage, quarantined=failed.quarantined)
                raise
            words = [f"{stage}: {rows_of(tables)}", str(tally(run, stage)), say.duration(time.monotonic() - start)]
            sent = requests_sent() - requests
            log("; ".join([*words, in_words(sent)] if sent else words))
        return written


def finished(job: Plan, tables: list[TableRef], report: Callable[[Run, Path], str]) -> str:
    """Ends a command whose stages are done with what they wrote and a report of it, which gives the line of the state
    that Prefect shows; returns the run's id."""
    data_docs(job.run)
    return completed(job.run.run_id, report(job.run, record(job, tables)))


def references(values: object) -> Iterator[TableRef]:
    """The references to tables among values, in order."""
    if isinstance(values, TableRef):
        yield values
    elif isinstance(values, Mapping | tuple | list):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from references(value)


def rows_of(tables: Iterable[TableRef]) -> str:
    """Rows by table, in words: 6 items, 160 responses; tables without rows are left out."""
    rows: Counter[str] = Counter()
    for table in {(table.table, table.path): table for table in tables}.values():
        rows[say.worded(table.table)] += table.rows
    return ", ".join(say.plural(number, words.removesuffix("s"), words) for words, number in rows.items() if number)


def read_and_lock(job: Plan) -> tuple[Ingested, Locked]:
    """Data and bundles of a run, checked; what is finished is passed over."""
    data = staged(job.run, ingest, study=job.study, base=job.base, limit=job.limit)
    return data, lock_rubrics(job, data)


def lock_rubrics(job: Plan, data: Ingested) -> Locked:
    """Bundles of a run's rubrics, checked."""
    return staged(
        job.run,
        lock,
        study=job.study,
        base=job.base,
        items=data.items,
        responses=data.responses,
        people=data.gradings,
        marks=data.judgments,
        key_of=credential,
    )
