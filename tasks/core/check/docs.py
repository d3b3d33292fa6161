"""Data Docs: Great Expectations' static pages of a run's validation results, so that they can be read offline.

They are built from the kept results, so nothing is validated again, and once: as long as those stay the same, so do the
pages.
"""

from __future__ import annotations

import hashlib
import html
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rubricflow.tasks.core.check.finding import CheckError
from rubricflow.tasks.core.check.results import folder
from rubricflow.tasks.core.check.suite import quiet_context
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.store.warehouse import Run

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult

VIEW = "rubricflow.tasks.core.check.pages"
"""The module that Great Expectations takes its pages from."""
MARK = "results.sha256"


def build(run: Run) -> Path:
    """The first page of the run's Data Docs, built unless they show these results; CheckError where they cannot be."""
    site = (run.folder / "data_docs").resolve()  # Great Expectations takes absolute paths only
    with run.alone():  # two runs of a study would build in one folder
        try:
            results = run.warehouse.fetch_folder(folder(run))
            if _build([file.read_bytes() for file in results], site):
                run.warehouse.share(run.folder / site.name)
        except OSError as error:
            raise StoreError(f"cannot write {site}: {error.strerror or error}; mend that and start again") from error
    return site / "index.html"


def _build(contents: Sequence[bytes], site: Path) -> bool:
    """Whether the pages had to be built."""
    digest = hashlib.sha256(b"".join(hashlib.sha256(content).digest() for content in contents)).hexdigest()
    if (site / MARK).is_file() and (site / MARK).read_text() == digest:
        return False
    unfinished = site.with_name(".data_docs.tmp")
    for old in (unfinished, site):
        shutil.rmtree(old, ignore_errors=True)
    _render([json.loads(content) for content in contents], unfinished)
    (unfinished / MARK).write_text(digest)
    unfinished.replace(site)
    return True


def _render(results: Sequence[dict[str, Any]], site: Path) -> None:
    context, name = quiet_context(), "checkpoints"
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.types.resource_identifiers import (
        ExpectationSuiteIdentifier,
        ValidationResultIdentifier,
    )

    context.add_data_docs_site(name, _site(site))  # type: ignore[arg-type]
    store = context.stores[context.validation_results_store_name]
    for result in results:
        suite, run_id = ExpectationSuiteIdentifier(result["suite_name"]), RunIdentifier(**result["meta"]["run_id"])
        table = result["meta"]["batch_spec"]["data_asset_name"]
        store.set(ValidationResultIdentifier(suite, run_id, table), _loaded(result))
    context.build_data_docs(site_names=[name])
    shutil.rmtree(site / "static")  # 3 MB of pictures and fonts that these pages do not show
    # What could not be rendered Great Expectations only logs.
    pages = list((site / "validations").rglob("*.html"))
    if len(pages) != len(results) or not all(page.stat().st_size for page in [site / "index.html", *pages]):
        raise CheckError(f"Data Docs: {len(pages)} pages of {len(results)} validation results could be rendered")


def _site(folder: Path) -> dict[str, Any]:
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


def _loaded(result: dict[str, Any]) -> ExpectationSuiteValidationResult:
    """A kept result as Great Expectations' object; it puts descriptions into its pages as they are, so escaped here."""
    from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResultSchema

    for part in result["results"]:
        config = part["expectation_config"]
        if config["description"] is not None:
            config["description"] = html.escape(config["description"]).replace("$", "&#36;")
    loaded: ExpectationSuiteValidationResult = ExpectationSuiteValidationResultSchema().load(result)
    return loaded
