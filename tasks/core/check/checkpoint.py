"""A table held against its contract: its findings, stored, and found again where its content is the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path

from rubricflow.tasks.core.check.across import check_across
from rubricflow.tasks.core.check.finding import Finding, broken
from rubricflow.tasks.core.check.quarantine import refused
from rubricflow.tasks.core.check.results import keep
from rubricflow.tasks.core.check.suite import check_values, columns
from rubricflow.tasks.core.check.typed import Footer, batches, check_types, footers
from rubricflow.tasks.core.contracts.schema import Expectation, Row, TableRef, expectations
from rubricflow.tasks.core.contracts.tables.catalogue import BY_NAME
from rubricflow.tasks.core.contracts.tables.checks import Checks, Quarantine
from rubricflow.tasks.core.store.warehouse import Run


def stored_findings(run: Run, ref: TableRef) -> list[Finding]:
    """A table's findings, stored; none anew where an earlier run of this study found this content in order."""
    stage = f"check-{ref.stage}"
    if run.done(stage, ref.table) and (stored := _settled(run, ref)) is not None:
        return stored
    findings, files = check(run, ref)
    tables: dict[type[Row], list[dict[str, object]]] = {Checks: [finding.record(ref.stage) for finding in findings]}
    if rows := refused(findings, ref.stage, files):
        tables[Quarantine] = rows
    keep(run, ref.stage, findings)
    run.commit(stage, ref.table, tables)
    return findings


def check(run: Run, ref: TableRef) -> tuple[list[Finding], list[Footer]]:
    """Every rule of one table, and its files; types first, for with a wrong one the other rules cannot be read."""
    row, files = BY_NAME[ref.table], list[Footer]()
    # The finished shards' files, as the store reads them: that is what places are counted over.
    paths = run.files(ref.table, ref.stage) or sorted((run.warehouse.root / ref.path).glob("*.parquet"))
    try:
        files = footers(paths)
        types = check_types(row, files)
        wrong = any(finding.outcome != "passed" for finding in types)
        values = [] if wrong else check_values(row, batches(files, columns(row)))
    except (OSError, ValueError) as error:  # a file that is no Parquet, or is cut off; Arrow's errors are ValueErrors
        return _not_run(row, expectations(row), f"{type(error).__name__}: {error}"), files
    if wrong:
        other_rules = [rule for rule in expectations(row) if rule.rule != "type"]
        return types + _not_run(row, other_rules, "not run: a column of the table has another type"), files
    rows = sum(file.rows for file in files)
    across = check_across(row, files, lambda table: _parts(run, table), ref.digest, run.warehouse.root)
    findings = types + values + across
    lost = None if rows == ref.rows else f"the files hold {rows:,} rows, their done-marks say {ref.rows:,}"
    return [replace(finding, error=finding.error or lost) for finding in findings], files


def _not_run(row: type[Row], rules: Iterable[Expectation], error: str) -> list[Finding]:
    return [Finding(row, rule, 0, error=error) for rule in rules]


def _parts(run: Run, table: str) -> list[Path]:
    """Every stage's files of a table."""
    if run.warehouse.mirrored:
        return list(chain.from_iterable(run.files(table, stage) for stage in run.stages(BY_NAME[table])))
    return sorted((run.folder / table).glob("*/*.parquet"))


def _settled(run: Run, ref: TableRef) -> list[Finding] | None:
    """The stored findings, if they are of this content and contract, nothing in them stops a run and all could run."""
    # Its own shard alone: another process may be checking the stage's other tables right now.
    row, checks = BY_NAME[ref.table], run.shard(Checks, f"check-{ref.stage}", ref.table).to_pylist()
    stored = {(record["rule"], record["column"]): record for record in checks}
    findings = []
    for rule in expectations(row):
        record = stored.pop((rule.rule, ", ".join(rule.columns)), None)
        if record is None:
            return None
        finding = Finding(row, rule, record["rows"], record["unexpected"], tuple(record["first"]), digest=ref.digest)
        same_rows = rule.severity == "warning" or finding.rows == ref.rows
        if not same_rows or broken([finding]) or finding.record(ref.stage) != record:
            return None
        findings.append(finding)
    return None if stored else findings
