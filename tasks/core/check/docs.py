"""Validation results in Great Expectations' own form, kept as JSON, and its static pages (Data Docs) of them.

The rules of a suite are as Great Expectations gave them, added up over batches. The others stand under its nearest name
for them, with `checked_by` in `meta`: types were read by Arrow, keys and references asked in DuckDB. The pages are made
from the kept results, so nothing is validated again; as long as those stay the same, so do the pages.
"""

from __future__ import annotations

import hashlib
import html
import json
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rubricflow.tasks.core.check.suite import SUITE, CheckError, Finding, broken, configuration, quiet_context
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.schema import Expectation
from rubricflow.tasks.core.store.warehouse import Run

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult

VIEW = "rubricflow.tasks.core.check.pages"
"""The module that Great Expectations takes its pages from."""
MARK = "results.sha256"
_version = cache(version)


def build(run: Run) -> Path:
    """The first page of the run's Data Docs, built unless they show these results; CheckError where they cannot be."""
    site = (run.folder / "data_docs").resolve()  # Great Expectations takes absolute paths only
    mark = site / MARK
    unfinished = site.with_name(".data_docs.tmp")
    with run.alone():  # two runs of a study would build in one folder
        try:
            contents = [file.read_bytes() for file in run.warehouse.fetch_folder(folder(run))]
            digest = hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in contents)).hexdigest()
            if not mark.is_file() or mark.read_text() != digest:
                for old in (unfinished, site):
                    shutil.rmtree(old, ignore_errors=True)
                _render([json.loads(content) for content in contents], unfinished)
                (unfinished / MARK).write_text(digest)
                unfinished.replace(site)
                run.warehouse.share(run.folder / site.name)
        except OSError as error:
            raise StoreError(f"cannot write {site}: {error.strerror or error}; mend that and start again") from error
    return site / "index.html"


def _render(results: Sequence[Record], site: Path) -> None:
    context, name = quiet_context(), "checkpoints"
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    context.add_data_docs_site(name, _site(site))  # type: ignore[arg-type]
    store = context.stores[context.validation_results_store_name]
    for result in results:
        suite = ExpectationSuiteIdentifier(result["suite_name"])
        run_id = RunIdentifier(**result["meta"]["run_id"])
        table = result["meta"]["batch_spec"]["data_asset_name"]
        store.set(ValidationResultIdentifier(suite, run_id, table), _loaded(result))
    context.build_data_docs(site_names=[name])
    shutil.rmtree(site / "static")  # 3 MB of pictures and fonts that these pages do not show
    # What could not be rendered Great Expectations only logs.
    pages = list((site / "validations").rglob("*.html"))
    if len(pages) != len(results) or not all(page.stat().st_size for page in [site / "index.html", *pages]):
        raise CheckError(f"Data Docs: {len(pages)} pages of {len(results)} validation results could be rendered")
    for page in [site / "index.html", *pages]:  # headings without a gap below the page's own
        text = page.read_text(encoding="utf-8")
        for theirs, ours in (("h5", "h2"), ("h6", "h3")):
            text = text.replace(f"<{theirs}", f"<{ours}").replace(f"</{theirs}>", f"</{ours}>")
        page.write_text(text, encoding="utf-8")


def _site(folder: Path) -> Record:
    def view(name: str) -> dict[str, str]:
        return {"module_name": VIEW, "class_name": name}

    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(folder)},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "view": view("Index")},
        "site_section_builders": {
            "expectations": "None",
            "profiling": "None",
            "validations": {"class_name": "DefaultSiteSectionBuilder", "view": view("ValidationPage")},
        },
    }


def _loaded(result: Record) -> ExpectationSuiteValidationResult:
    """A kept result as Great Expectations' object; it puts descriptions into its pages as they are, so escaped here."""
    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResultSchema

    for part in result["results"]:
        config = part["expectation_config"]
        if config["description"] is not None:
            config["description"] = html.escape(config["description"]).replace("$", "&#36;")
    loaded: ExpectationSuiteValidationResult = ExpectationSuiteValidationResultSchema().load(result)
    return loaded


def folder(run: Run) -> Path:
    """Where a run keeps its validation results, one file for each stage and table."""
    return run.folder / "_validations"


def keep(run: Run, stage: str, findings: Sequence[Finding]) -> None:
    content = json.dumps(validation(findings, stage, run.run_id), ensure_ascii=False)
    run.warehouse.write(folder(run) / f"{stage}-{findings[0].row.table}.json", content.encode())


def validation(findings: Sequence[Finding], stage: str, run_id: str) -> Record:
    """The findings of one table as a validation result; success: nothing stops the run."""
    table = findings[0].row.table
    passed = sum(finding.outcome == "passed" for finding in findings)
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
            "great_expectations_version": _version("great_expectations"),
            "run_id": {"run_name": run_id, "run_time": datetime.now(UTC).isoformat(timespec="seconds")},
            "batch_spec": {"data_asset_name": table},
        },
        "id": None,
    }


def _result(finding: Finding) -> Record:
    rule, passed = finding.expectation, finding.outcome == "passed"
    error = finding.detail if finding.outcome == "error" else None
    counted = {
        "element_count": finding.rows,
        "unexpected_count": finding.unexpected,
        "unexpected_percent": 100 * finding.unexpected / finding.rows if finding.rows else 0.0,
    }
    description = None
    if rule.rule == "references" or not passed:  # what Great Expectations cannot say of itself
        warning = "Warning only: " if rule.severity == "warning" else ""
        description = f"{warning}{', '.join(rule.columns)} {finding.demand}{finding.first_keys}"
    return {
        "success": passed,
        "expectation_config": _named(rule) | {"description": description},
        "result": counted if error is None else {},
        "exception_info": {
            "raised_exception": error is not None,
            "exception_message": error,
            "exception_traceback": "not kept" if error is not None else None,
        },
        "meta": {},
    }


def _named(rule: Expectation) -> Record:
    if rule.rule in SUITE:
        return configuration(rule)
    named: tuple[str, Record, str]
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
