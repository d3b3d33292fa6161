"""The file that says that a place is a warehouse, and of which format; in a mirror, of which bucket it is one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tasks.contracts.errors import StoreError
from tasks.store.files import write_atomically
from tasks.store.objects import Bucket, Folder, Objects

FORMAT = 1
MARKER = ".rubricflow.json"


def make_warehouse(objects: Objects, place: str | Path) -> None:
    """Mark the place as a warehouse; StoreError if it cannot be made or read, is foreign or is of another format."""
    content = objects.get(MARKER)
    if content is None:
        foreign = any(not _opening(name) for name in objects.names(""))
        # Asked again: another process may have made the warehouse, and more in it, while this one looked.
        if foreign and objects.get(MARKER) is None:
            better_place = "an empty or new folder" if isinstance(objects, Folder) else "an empty or new prefix"
            raise StoreError(f"{place} holds other things and is no rubricflow warehouse; name {better_place}")
        content = json.dumps({"format": FORMAT}).encode()  # whoever is first, it is the same
        objects.put(MARKER, content)
    form = _said(content, place).get("format")
    if form is None:
        raise StoreError(f"warehouse {place} cannot be used: {place}/{MARKER} does not say its format")
    if form != FORMAT:
        raise StoreError(
            f"warehouse {place} has format {form}; this version reads format {FORMAT}: use the version of "
            "rubricflow that made it, or name a new folder"
        )


def mark_mirror(folder: Path, url: str) -> None:
    """Say of a folder that it mirrors a bucket: whoever opens it opens that."""
    content = json.dumps({"format": FORMAT, "mirror_of": url}).encode()
    if not (folder / MARKER).is_file() or (folder / MARKER).read_bytes() != content:
        write_atomically(folder / MARKER, content)


def mirrored_by(folder: Path) -> Bucket | None:
    """The bucket that a folder mirrors; None where it is none."""
    try:
        content = (folder / MARKER).read_bytes()
        url = json.loads(content).get("mirror_of")
    except (OSError, ValueError, AttributeError):  # no mirror; what else it is, `make_warehouse` says
        return None
    return Bucket(url) if url else None


def _said(content: bytes, place: str | Path) -> dict[str, Any]:
    try:
        record = json.loads(content)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise StoreError(f"warehouse {place} cannot be used: {place}/{MARKER} does not say its format")
    return record


def _opening(name: str) -> bool:
    """Whether a file is the marker of a warehouse, or on its way to be it."""
    return name == MARKER or (name.startswith(f".{MARKER}.") and name.endswith(".tmp"))
