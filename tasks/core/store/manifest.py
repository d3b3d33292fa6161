"""The manifest: what a run was made from and what it made."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.contracts.tables.judging import Attempts
from rubricflow.tasks.core.store.catalogue import MANIFEST, catalogue, listed_in, manifest_of, refuse_other
from rubricflow.tasks.core.store.files import digest_of, file_digest, sealed
from rubricflow.tasks.core.store.warehouse import Run

ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = ("rubricflow", "prefect", "pyarrow", "duckdb", "numpy", "scikit-learn", "openvino", "torch", "transformers")
_BATCH = 50_000
"""Digests of rows that are held at a time."""


@cache
def code_digest() -> str:
    """SHA-256 over the pipeline's source files, so that no run resumes on tables that other code wrote."""
    files = [path for room in ("tasks", "flows") for path in (ROOT / room).rglob("*")]
    code = sorted(path for path in files if path.suffix in {".py", ".txt", ".yaml"})
    return digest_of([[path.relative_to(ROOT).as_posix(), file_digest(path)] for path in code])


def versions() -> dict[str, str]:
    """Python and the libraries that results rest on, those that are installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state() -> dict[str, Any]:
    """Commit and dirty flag of the checkout; empty where the package does not run from one, or git does not."""
    if not (ROOT / ".git").exists():
        return {}
    answers = []
    for words in (("rev-parse", "HEAD"), ("status", "--porcelain")):
        command = ["git", "-C", str(ROOT), *words]
        try:
            answers.append(subprocess.run(command, capture_output=True, text=True, timeout=10).stdout.strip())
        except (OSError, subprocess.TimeoutExpired):
            answers.append("")
    commit, changes = answers
    return {"commit": commit, "dirty": bool(changes)} if commit else {}


def graded_by(run: Run, target: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Exactly what can change a released score of a finished run.

    Digests of the texts with their items and calibration membership; of the bundle of every item; of every request
    (which covers prompts, model, sampling and order of asking); and of the human scores calibrated on. `settings` are
    the calibration's settings and the versions of the code that verifies, scores and calibrates. StoreError for a table
    that cannot be read.
    """
    return digests(run, target) | settings | {"target": target}


def digests(run: Run, target: str) -> dict[str, Any]:
    """The digests of `graded_by`, made of the tables as they are; StoreError for a table that cannot be read."""
    responses = "responses JOIN items USING (item_id) JOIN bundles USING (rubric_id)"
    rater = "rater_id = $target OR (rater_kind = 'human' AND $target = 'mean')"
    fitted = f"split IN {CALIBRATES}"
    label = f"{fitted} AND g.score IS NOT NULL AND ({rater})"
    parts = {
        "texts": f"SELECT response_id, item_id, text, {fitted} AS fitted FROM responses",
        "bundles": f"SELECT DISTINCT item_id, bundle_id FROM {responses}",
        "requests": "SELECT response_id, part, attempt, request_digest, reply, error FROM attempts",
        "labels": f"SELECT response_id, g.score FROM gradings g JOIN responses USING (response_id) WHERE {label}",
    }
    found: dict[str, str | None] = {}
    with catalogue(run) as connection:
        for name, query in parts.items():
            # SHA-256 over the digests of the rows, these in order, whatever the order of the rows; None of no rows.
            ordered = f"SELECT sha256(to_json(p)::VARCHAR) AS j FROM ({query}) p ORDER BY j"
            answer = connection.sql(ordered, params={"target": target} if "$target" in query else {})
            digest, count = hashlib.sha256(), 0
            for batch in answer.to_arrow_reader(_BATCH):
                digest.update("".join(batch["j"].to_pylist()).encode())
                count += len(batch)
            found[name] = digest.hexdigest() if count else None
    return found


def write_manifest(
    run: Run,
    identity: dict[str, Any],
    graded_by: dict[str, Any],
    tables: list[TableRef],
    base: Path,
    read_as: Mapping[str, str] | None = None,
    costs: Mapping[str, Any] | None = None,
) -> Path:
    """Write `<run>/manifest.json`.

    `identity` is what names the run (study, input digests, code). `graded_by` is exactly what can change a released
    score; its digest is the `grade_digest`. `base` is the folder that the study's files are named from;
    `read_as`: how each of them was read; `costs`: what models cost by whose table; `calls_changed`: which parameters
    the judge's server did not take. Tables that another flow of the same run wrote stay listed. StoreError where a
    table that the run finished with is another now.
    """
    path, paths = run.folder / MANIFEST, {ref.path for ref in tables}
    try:
        earlier = listed_in(manifest_of(run))
    except StoreError:  # it is written anew
        earlier = []
    for ref in earlier:
        refuse_other(run, ref)
    changed: set[str | None] = set()
    for stage in run.stages(Attempts):
        changed |= set(pc.unique(run.table(Attempts, stage, ["changed"])["changed"]).to_pylist())
    folder, mirrored = base.resolve(), run.warehouse.mirrored
    content = {
        "run_id": run.run_id,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "grade_digest": digest_of(graded_by),
        "graded_by": graded_by,
        "identity": identity,
        "read_as": dict(read_as or {}),
        "costs": dict(costs or {}),
        "calls_changed": sorted(filter(None, changed)),
        "versions": versions(),
        "git": git_state(),
        "tables": [ref.model_dump() for ref in (*tables, *(ref for ref in earlier if ref.path not in paths))],
        "study_folder": str(folder) if mirrored else os.path.relpath(folder, run.warehouse.root.resolve()),
    }
    run.warehouse.write(path, sealed(content))
    return path
