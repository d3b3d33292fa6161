"""A table held against its contract: its findings, stored, and found again where its content is the same; the rows
that it refused, for `quarantine`; and the numbers of a stage's checkpoint.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.check.across import Footer, batches, check_across, check_types, footers
from rubricflow.tasks.core.check.docs import keep
from rubricflow.tasks.core.check.finding import Finding, broken, shown
from rubricflow.tasks.core.check.suite import check_values, columns
from rubricflow.tasks.core.contracts.schema import Row, TableRef, expectations
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
    row, files = BY_NAME[ref.table], []
    # The finished shards' files, as the store reads them: that is what places are counted over.
    paths = run.files(ref.table, ref.stage) or sorted((run.warehouse.root / ref.path).glob("*.parquet"))
    try:
        files = footers(paths)
        types = check_types(row, files)
        wrong = any(finding.outcome != "passed" for finding in types)
        values = [] if wrong else check_values(row, batches(files, columns(row)))
    except (OSError, ValueError) as error:  # a file that is no Parquet, or is cut off; Arrow's errors are ValueErrors
        cause = f"{type(error).__name__}: {error}"
        return [Finding(row, rule, 0, error=cause) for rule in expectations(row)], files
    if wrong:
        cause = "not run: a column of the table has another type"
        others = [Finding(row, rule, 0, error=cause) for rule in expectations(row) if rule.rule != "type"]
        return types + others, files

    def every_file_of(table: str) -> list[Path]:
        if run.warehouse.mirrored:
            return list(chain.from_iterable(run.files(table, stage) for stage in run.stages(BY_NAME[table])))
        return sorted((run.folder / table).glob("*/*.parquet"))

    findings = types + values + check_across(row, files, every_file_of, ref.digest, run.warehouse.root)
    rows = sum(file.rows for file in files)
    lost = None if rows == ref.rows else f"the files hold {rows:,} rows, their done-marks say {ref.rows:,}"
    return [replace(finding, error=finding.error or lost) for finding in findings], files


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


LONGEST_KEY = 1_000
"""Characters of a row's key that are kept."""
LONGEST_CONTENT = 10_000
"""Characters of a row's JSON that are kept."""


def refused(findings: Iterable[Finding], stage: str, files: Sequence[Footer]) -> list[dict[str, object]]:
    """The rows of a table that break a rule which stops the run, REFUSED at most for each rule; a key that comes again
    is numbered."""
    findings_with_rows = [finding for finding in broken(findings) if finding.places]
    key = findings_with_rows[0].row.key if findings_with_rows else ()
    places = set(chain.from_iterable(finding.places for finding in findings_with_rows))
    rows_by_place = _rows_at(files, places, key)
    records: list[dict[str, object]] = []
    for finding in findings_with_rows:
        times: Counter[str] = Counter()
        for row_key, content in (rows_by_place[place] for place in finding.places):
            times[row_key] += 1
            records.append(
                {
                    "stage": stage,
                    "table_name": finding.row.table,
                    "row_key": row_key + (f" ({times[row_key]})" if times[row_key] > 1 else ""),
                    "rule": finding.expectation.rule,
                    "column": ", ".join(finding.expectation.columns),
                    "reason": finding.demand,
                    "content": content,
                }
            )
    return records


def _rows_at(files: Sequence[Footer], places: set[int], key: Sequence[str]) -> dict[int, tuple[str, str]]:
    """Place, counted over all files → the key and the content of the row there."""
    rows: dict[int, tuple[str, str]] = {}
    start = 0
    for batch in batches(files) if places else ():
        for place in places.intersection(range(start, start + batch.num_rows)):
            [row] = batch.slice(place - start, 1).to_pylist(maps_as_pydicts="lossy")
            row_key = shown(" / ".join(str(row.get(name)) for name in key), LONGEST_KEY)
            rows[place] = row_key, json.dumps(row, ensure_ascii=False, default=str)[:LONGEST_CONTENT]
        start += batch.num_rows
    return rows


class Tally(NamedTuple):
    """Rows that were refused, and expectations that warn."""

    quarantined: int
    warnings: int

    def __str__(self) -> str:
        return f"{self.quarantined:,} quarantined, {self.warnings:,} warning{'' if self.warnings == 1 else 's'}"


def tally(run: Run, stage: str) -> Tally:
    """The numbers of a stage's checkpoint; zeros where it was not checked yet."""
    checkpoint = f"check-{stage}"
    if not run.shards(checkpoint):
        return Tally(0, 0)
    quarantined = sum(part.rows for part in run.parts(Quarantine, checkpoint).values())
    checks = run.table(Checks, checkpoint, ["severity", "outcome"]).to_pylist()
    return Tally(quarantined, sum(row["severity"] == "warning" and row["outcome"] != "passed" for row in checks))
