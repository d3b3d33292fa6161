"""What a checkpoint found, as a validation result in Great Expectations' own form: kept as JSON, shown as Data Docs.

The rules of a suite are as Great Expectations gave them, added up over batches. The others stand under its nearest name
for them, with who looked in `meta`: types were read by Arrow, keys and references asked in DuckDB.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rubricflow.tasks.core.check.finding import Finding, broken
from rubricflow.tasks.core.check.suite import SUITE, configuration
from rubricflow.tasks.core.contracts.schema import Expectation
from rubricflow.tasks.core.store.warehouse import Run


def folder(run: Run) -> Path:
    """Where a run keeps its validation results, one file for each stage and table."""
    return run.folder / "_validations"


def keep(run: Run, stage: str, findings: Sequence[Finding]) -> None:
    """Write the validation result of one table."""
    table = findings[0].row.table
    content = json.dumps(validation(findings, stage, run.run_id), ensure_ascii=False, indent=1)
    run.warehouse.write(folder(run) / f"{stage}-{table}.json", content.encode())


def validation(findings: Sequence[Finding], stage: str, run_id: str) -> dict[str, Any]:
    """The findings of one table as a validation result; success: nothing stops the run."""
    table, passed = findings[0].row.table, sum(finding.outcome == "passed" for finding in findings)
    return {
        "success": not broken(findings),
        "suite_name": f"{stage}.{table}",
        "suite_parameters": {},
        "statistics": {
            "evaluated_expectations": len(findings),
            "successful_expectations": passed,
            "unsuccessful_expectations": len(findings) - passed,
            "success_percent": 100 * passed / len(findings),
        },
        "results": [_result(finding) for finding in findings],
        "meta": {
            "great_expectations_version": version("great_expectations"),
            "run_id": {"run_name": run_id, "run_time": datetime.now(UTC).isoformat(timespec="seconds")},
            "batch_spec": {"data_asset_name": table},
        },
        "id": None,
    }


def _result(finding: Finding) -> dict[str, Any]:
    error = finding.detail if finding.outcome == "error" else None
    counted = {
        "element_count": finding.rows,
        "unexpected_count": finding.unexpected,
        "unexpected_percent": 100 * finding.unexpected / finding.rows if finding.rows else 0.0,
    }
    return {
        "success": finding.outcome == "passed",
        "expectation_config": _named(finding.expectation) | {"description": _description(finding)},
        "result": counted if error is None else {},
        "exception_info": {
            "raised_exception": error is not None,
            "exception_message": error,
            "exception_traceback": "not kept" if error is not None else None,
        },
        "meta": {},
    }


def _description(finding: Finding) -> str | None:
    """In words what Great Expectations cannot say of itself: a reference, a warning, and which rows break the rule."""
    if finding.expectation.rule != "references" and finding.outcome == "passed":
        return None
    columns = ", ".join(finding.expectation.columns)
    warning = "Warning only: " if finding.expectation.severity == "warning" else ""
    first = f"; first {' / '.join(finding.row.key)}: {'; '.join(finding.first)}" if finding.first else ""
    return f"{warning}{columns} {finding.demand}{first}"


def _named(rule: Expectation) -> dict[str, Any]:
    if rule.rule in SUITE:
        return configuration(rule)
    named: tuple[str, dict[str, Any], str]
    match rule.rule:
        case "type":
            named = "expect_column_values_to_be_of_type", {"column": rule.columns[0], "type_": rule.value}, "Arrow"
        case "unique" if len(rule.columns) == 1:
            named = "expect_column_values_to_be_unique", {"column": rule.columns[0]}, "DuckDB"
        case "unique":
            named = "expect_compound_columns_to_be_unique", {"column_list": list(rule.columns)}, "DuckDB"
        case _:
            table, target = rule.value
            query = f"SELECT * FROM {{batch}} WHERE {rule.columns[0]} NOT IN (SELECT {target} FROM {table})"
            named = "unexpected_rows_expectation", {"unexpected_rows_query": query}, "DuckDB"
    kind, arguments, by = named
    meta = {"rule": rule.rule, "checked_by": by}
    return {"type": kind, "kwargs": arguments, "meta": meta, "severity": rule.severity}
