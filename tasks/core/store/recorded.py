"""A run's own records: its manifest, read and compared with the run, and where its pages of feedback are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.tables.catalogue import BY_NAME
from rubricflow.tasks.core.store.files import unsealed
from rubricflow.tasks.core.store.marks import listed_once
from rubricflow.tasks.core.store.warehouse import Run

MANIFEST, FEEDBACK = "manifest.json", "feedback.json"


def read_manifest(run: Run) -> dict[str, Any]:
    """The manifest of a finished run; StoreError where there is none, where it was changed since it was written, or
    where a table is not the one that it lists."""
    manifest = manifest_of(run)
    with listed_once():
        for listed in listed_in(manifest):
            refuse_other(run, listed)
    return manifest


def manifest_of(run: Run) -> dict[str, Any]:
    """The manifest as it was written, without a look at the tables; StoreError where there is none such."""
    path = run.fetched(MANIFEST)
    again = "grade the study again: its manifest is written anew, and no reply that arrived is asked for again"
    try:
        record = unsealed(path.read_bytes())
        listed_in(record)
    except FileNotFoundError as error:
        raise StoreError(f"run {run.run_id} did not finish: {run.place}/{MANIFEST} is not there; {again}") from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{run.place}/{MANIFEST} cannot be read: {error}; {again}") from error
    return record


def listed_in(manifest: dict[str, Any]) -> list[TableRef]:
    """The tables that a manifest lists."""
    return [TableRef.model_validate(ref) for ref in manifest["tables"]]


def refuse_other(run: Run, listed: TableRef) -> None:
    """StoreError unless the run's part of a table is the one that its manifest lists."""
    there = run.ref(BY_NAME[listed.table], listed.stage) if listed.table in BY_NAME else None
    if there is None or there.digest != listed.digest:
        raise StoreError(
            f"{run.place}/{listed.table}/{listed.stage} is not the table that the run's manifest lists: it was "
            f"changed, or written by another version of rubricflow; {run.mend()}"
        )


def remember_feedback(run: Run, folder: Path, pages: Mapping[str, str]) -> None:
    """Keep where the page of each answer's student is. pages: response → the page, relative to the folder."""
    record = {"folder": str(folder.resolve()), "pages": dict(pages)}
    run.warehouse.write(run.folder / FEEDBACK, json.dumps(record).encode())


def feedback_pages(run: Run) -> dict[str, str]:
    """Response → its student's page, as a link from the run's folder; none where no feedback was written, or it is gone
    since."""
    try:
        record = json.loads(run.fetched(FEEDBACK).read_bytes())
        folder, pages = Path(record["folder"]), record["pages"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    there = {path.relative_to(folder).as_posix() for path in folder.glob("*/*.html")}
    base = os.path.relpath(folder, run.folder.resolve())
    return {response: quote(f"{base}/{page}") for response, page in pages.items() if page in there}
