"""Means and drift of logs: what was found is kept in the warehouse, where any client of DuckDB reads it.

A watch is a run that grows: a shard for each log, written whole or not at all. What speaks for drift is computed anew
from all of them at each look, so that a look that was killed has lost nothing and one that is repeated adds nothing.
A look waits for another one at the same watch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.tables.evaluation import Drifts, Means, WatchedValues
from rubricflow.tasks.core.monitor.artifacts import announce
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.store.catalogue import write_database
from rubricflow.tasks.core.store.files import digest_of, locked
from rubricflow.tasks.core.store.manifest import write_manifest
from rubricflow.tasks.core.store.part import LAST
from rubricflow.tasks.core.store.warehouse import ARMS, EXPERIMENTS, Run, Warehouse
from rubricflow.tasks.grading.trends.means import mean_rows
from rubricflow.tasks.grading.trends.moved import OBSERVED, Drift, drifted


@task("means")
def keep_means(warehouse: Warehouse, verdicts: pd.DataFrame, labels: pd.DataFrame) -> tuple[Run, list[Record]]:
    """The rows of `means` and the run that holds them, named by what went in; arguments as of `mean_rows`."""
    rows = mean_rows(verdicts, labels)
    names = sorted(map(str, verdicts["log"].unique()))
    run = warehouse.run(f"means-{digest_of([names, rows])[:12]}")
    run.once("means", lambda: {Means: rows})
    _finish(run, "means", Means, "means")
    return run, rows


@task("drift")
def keep_drift(
    warehouse: Warehouse, watch: str, old: Mapping[str, pd.DataFrame], new: Mapping[str, pd.DataFrame]
) -> tuple[Run, Drift, list[Record]]:
    """Adds the new logs that a watch does not hold yet, and tests all of its logs; the rows of `drifts`, those that
    moved first. Logs by name, in the order of time, each as `observed`. InputError for other old logs than the watch
    began with, or a log that it holds with other content."""
    run = warehouse.run(f"watch-{watch}")
    with locked(run.folder / "_looks"):  # one look after the other
        kept = [frame.assign(log=name) for name, frame in old.items()]
        if run.done("old", LAST):
            there = run.table(WatchedValues, "old").to_pandas()
            if _content(there) != _content(pd.concat(kept)):
                names = ", ".join(there["log"].unique())
                raise InputError(
                    f"watch {watch!r} began with other old logs ({names})", hint="name another: --watch NAME"
                )
        run.once("old", lambda: {WatchedValues: pd.concat(kept)[list(WatchedValues.model_fields)].to_dict("records")})
        known = _logs(run)
        for name, frame in new.items():
            if name not in known:
                known[name] = frame.assign(log=name)[list(WatchedValues.model_fields)]
                run.commit("watched", f"{len(known) - 1:05d}", {WatchedValues: known[name].to_dict("records")})
            elif _content(known[name]) != _content(frame.assign(log=name)):
                raise InputError(f"watch {watch!r} holds log {name!r} with other content", hint="a log keeps its name")
        found = drifted(list(old.values()), [frame[[*OBSERVED]] for frame in known.values()], grows=True)
        rows = drift_rows(found, list(known))
        if rows:
            run.commit("drift", f"{len(known):05d}", {Drifts: rows})
        _finish(run, watch, WatchedValues, "old")
    if found.found:
        announce("rubricflow.drift.found", run.run_id, moved=[row.channel for row in found.found], label=found.to_label)
    return run, found, rows


def drift_rows(found: Drift, logs: Sequence[str]) -> list[Record]:
    """Rows as of `drifts`, in the order of what was found. logs: names of the new ones."""
    rows = []
    for row in found.rows:
        values = row.change._asdict()
        since = values.pop("since")
        numbers = {name: None if value is None or value != value else value for name, value in values.items()}
        rows.append(
            {
                "log": logs[-1],
                "look": len(logs),
                "channel": row.channel,
                "slice": row.slice,
                "value_of": row.value_of,
                "evidence": row.evidence.log_peak,
                "bar": row.bar,
                "moved": row.is_found,
                **numbers,
                "since": logs[min(since, len(logs) - 1)],
            }
        )
    return rows


def _logs(run: Run) -> dict[str, pd.DataFrame]:
    """The new logs that a watch holds, in the order in which they were added."""
    shards = sorted(run.shards("watched"))
    frames = [run.shard(WatchedValues, "watched", name).to_pandas() for name in shards]
    return {str(frame["log"].iloc[0]): frame for frame in frames}


def _content(rows: pd.DataFrame) -> str:
    return digest_of(rows[list(WatchedValues.model_fields)].to_dict("records"))


def _finish(run: Run, name: str, row: type[Any], stage: str) -> None:
    """From now on the warehouse's database shows the run, which no command takes for the latest one."""
    identity = {"study": {"name": name, "judge": {"backend": "replay"}}, "limit": None}
    house = run.warehouse
    house.write(house.root / EXPERIMENTS / run.run_id / ARMS, json.dumps({stage: run.run_id}).encode())
    write_manifest(run, identity, {}, [run.ref(row, stage)], Path.cwd())
    write_database(run.warehouse)
