"""Digests of values and files, and JSON files that carry their own: a seal over all the rest of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SEAL = "seal"


def digest_of(value: Any) -> str:
    """SHA-256 of a JSON value, keys sorted."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(record: Mapping[str, Any]) -> bytes:
    """The record as a JSON file with its seal; ValueError where it has a key of that name."""
    if SEAL in record:
        raise ValueError(f"a record has a key '{SEAL}' of its own")
    content = {**record, SEAL: digest_of(record)}
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False).encode()


def unsealed(content: bytes) -> tuple[dict[str, Any], bool]:
    """The record of such a file, and whether it had a seal: files of earlier versions have none.

    ValueError where it is no JSON object or is not what was sealed.
    """
    record = json.loads(content)
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    seal = record.pop(SEAL, None)
    if seal is not None and seal != digest_of(record):
        raise ValueError("it was changed since it was written")
    return record, seal is not None
