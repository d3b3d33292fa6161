"""The folder of this machine in which a warehouse in a bucket is read: what DuckDB, Arrow and libraries read are files.

It keeps what was read or written here. Files of tables never change once they are named by a done-mark, and their bytes
are held against it; everything else is asked of the bucket again. It may be removed at any time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from tasks.contracts.errors import StoreError
from tasks.store.files import write_atomically
from tasks.store.objects import Objects

_TOGETHER = 16
"""As many files are fetched at once."""


def mirror_of(url: str) -> Path:
    """The folder for a bucket's prefix, in the user's cache ($XDG_CACHE_HOME, ~/.cache), which nobody else may read."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", url.removeprefix("s3://"))[:60]
    where = sha256(f"{os.environ.get('AWS_ENDPOINT_URL_S3') or os.environ.get('AWS_ENDPOINT_URL', '')} {url}".encode())
    folder = caches / "rubricflow" / f"{name}-{where.hexdigest()[:12]}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        rule = f"{url} is read by way of {folder}, which cannot be made: {error.strerror}"
        raise StoreError(f"{rule}; XDG_CACHE_HOME names another folder") from error
    return folder


def fetch(objects: Objects, root: Path, paths: Iterable[Path]) -> None:
    """Bring the contents of these paths below `root` into it; where there is none, there is no file afterwards."""

    def bring(path: Path) -> None:
        content = objects.get(path.relative_to(root).as_posix())
        if content is None:
            path.unlink(missing_ok=True)
        elif not path.is_file() or path.read_bytes() != content:
            write_atomically(path, content)

    wanted = list(paths)
    if len(wanted) < 2:
        for path in wanted:
            bring(path)
        return
    with ThreadPoolExecutor(min(_TOGETHER, len(wanted))) as pool:
        list(pool.map(bring, wanted))
