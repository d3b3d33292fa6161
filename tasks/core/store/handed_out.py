"""Files that were handed out to people: they are written over only as long as nobody has changed them. And where the
pages of feedback are, for the report of their run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from rubricflow.tasks.core.contracts.errors import InputError, StoreError
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.store.warehouse import Run

RECORD = "handed_out.json"
"""In the warehouse: file → SHA-256 of what was written."""
FEEDBACK = "feedback.json"
"""In a run's folder: where its feedback is."""


def hand_out(house: Path, to: Path, content: bytes, overwrite: bool = False) -> None:
    """Write a file whole or not at all. InputError where another file is there, or the one that was written before was
    changed since, and nothing says to overwrite it."""
    path = to.resolve()
    written = _written(house)
    if not overwrite and path.exists() and written.get(str(path)) != _digest(path):
        rule = "is there already and is not as rubricflow wrote it: your own work may be in it"
        raise InputError(rule, file=to, hint="name another file, or add --overwrite")
    write_atomically(path, content)
    written[str(path)] = hashlib.sha256(content).hexdigest()
    write_atomically(house / RECORD, json.dumps(written, indent=1).encode())


def _written(house: Path) -> dict[str, str]:
    """A record that cannot be read protects every file."""
    try:
        record = json.loads((house / RECORD).read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


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
