"""The door of check: what a stage wrote in, the same out, or a stop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from prefect import task

from tasks.check.across import check_across
from tasks.check.finding import Finding, stop_if_broken
from tasks.check.suite import check_values, columns
from tasks.check.typed import check_types, footers
from tasks.contracts.table import Expectation, Row, expectations
from tasks.contracts.tables import BY_NAME, Checks, TableRef
from tasks.store.warehouse import Run

READ = 8_192
"""Rows read at a time: a reader keeps several batches ready, and before they are reduced they may hold long texts."""
Written = TypeVar("Written", bound=TableRef | tuple[object, ...])


@task
def checked(run: Run, written: Written) -> Written:
    """Hold every table just written against its contract, store the results, and pass the references on.

    ContractError if a rule is broken, CheckError if a check could not run; both after the results are stored.
    """
    refs = [written] if isinstance(written, TableRef) else [part for part in written if isinstance(part, TableRef)]
    if not refs:
        raise TypeError(f"nothing to check in {type(written).__name__}: it holds no TableRef")
    for stage in dict.fromkeys(ref.stage for ref in refs):
        found = [finding for ref in refs if ref.stage == stage for finding in _once(run, ref)]
        stop_if_broken(found, stage)
    return written


def _once(run: Run, ref: TableRef) -> list[Finding]:
    """A table's findings, stored; none anew where an earlier run of this study found this content in order."""
    row, stage = BY_NAME[ref.table], f"check-{ref.stage}"
    passed = [Finding(row, rule, ref.rows, digest=ref.digest) for rule in expectations(row)]
    if run.done(stage, ref.table) and _same(_stored(run, ref), (finding.record(ref.stage) for finding in passed)):
        return passed
    found = check(run, ref)
    run.commit(stage, ref.table, {Checks: [finding.record(ref.stage) for finding in found]})
    return found


def check(run: Run, ref: TableRef) -> list[Finding]:
    """Every rule of one table; types first, for with a wrong one the other rules cannot be read."""
    row = BY_NAME[ref.table]
    own = sorted((run.warehouse.root / ref.path).glob("*.parquet"))
    try:
        files = footers(own)
        types = check_types(row, files)
        broken = any(finding.outcome != "passed" for finding in types)
        values = [] if broken else check_values(row, run.batches(ref, columns(row), READ))
    except (OSError, ValueError) as error:  # a file that is no Parquet, or is cut off; Arrow's errors are ValueErrors
        return _not_run(row, expectations(row), f"{type(error).__name__}: {error}")
    if broken:
        rest = [rule for rule in expectations(row) if rule.rule != "type"]
        return types + _not_run(row, rest, "not run: a column of the table has another type")
    rows = sum(file.rows for file in files)
    found = types + values + check_across(row, own, lambda table: _parts(run, table), rows, ref.digest)
    lost = None if rows == ref.rows else f"the files hold {rows:,} rows, their done-marks say {ref.rows:,}"
    return [replace(finding, error=finding.error or lost) for finding in found]


def _not_run(row: type[Row], rules: Iterable[Expectation], error: str) -> list[Finding]:
    return [Finding(row, rule, 0, error=error) for rule in rules]


def _parts(run: Run, table: str) -> list[Path]:
    """Every stage's files of a table."""
    return sorted((run.folder / table).glob("*/*.parquet"))


def _stored(run: Run, ref: TableRef) -> list[dict[str, object]]:
    checks = run.ref(Checks, f"check-{ref.stage}")
    return [record for record in run.read(checks).to_pylist() if record["table_name"] == ref.table]


def _same(stored: Iterable[dict[str, object]], wanted: Iterable[dict[str, object]]) -> bool:
    def order(record: dict[str, object]) -> str:
        return f"{record['rule']}:{record['column']}"

    return sorted(stored, key=order) == sorted(wanted, key=order)
