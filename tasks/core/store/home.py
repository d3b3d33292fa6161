"""A folder whose bytes are in it, or in a bucket of which it is the mirror: how either is opened, written and read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.store.files import Content, clear, write_atomically
from rubricflow.tasks.core.store.objects import Bucket, Folder, Objects, url_of

FORMAT = 1
MARKER = ".rubricflow.json"


_TOGETHER = 16
"""As many files are fetched at once."""


@dataclass(frozen=True)
class Home:
    """Where a warehouse is."""

    root: Path
    """The folder; a bucket's is its mirror on this machine."""
    objects: Objects
    """Where its bytes are."""
    replies_named: str = field(default_factory=lambda: os.environ.get("RUBRICFLOW_REPLIES", ""), repr=False)
    """Where replies are kept, if not in the folder; it may hold a password, which nothing shows."""

    @classmethod
    def open(cls, place: Path | str) -> Self:
        """Open or create a folder or `s3://bucket/prefix`; StoreError if it cannot be made or read, is foreign or is of
        another format.

        What killed processes put aside in it is cleared away.
        """
        url = url_of(place)
        bucket = Bucket(url) if url else mirrored_by(Path(place))
        root = mirrored_in(bucket.url) if bucket else Path(place)
        try:
            make_warehouse(bucket or Folder(root), bucket.url if bucket else root)
        except StoreError as error:
            if not isinstance(cause := error.__cause__, OSError):
                raise
            raise StoreError(f"warehouse {place} cannot be used: {cause.strerror or cause}") from error
        clear(root)
        return cls(root, bucket or Folder(root))

    def __reduce__(self) -> str | tuple[object, ...]:
        # On another machine a bucket has another mirror.
        return (_reopened, (type(self), self.place, self.replies_named)) if self.mirrored else super().__reduce__()

    @property
    def mirrored(self) -> bool:
        """Whether its bytes are elsewhere, and the folder is a mirror of them."""
        return isinstance(self.objects, Bucket)

    @property
    def place(self) -> str:
        """Where it is, for people and for commands: the folder, or the bucket's address."""
        return self.objects.url if isinstance(self.objects, Bucket) else str(self.root)

    def shown(self, value: object) -> str:
        """A value for people; a file of the mirror as the bucket's."""
        return str(value).replace(str(self.root), self.place) if self.mirrored else str(value)

    def write(self, path: Path, content: Content) -> None:
        """Store a file of the folder, for every machine to see."""
        self.objects.put(self._key(path), content)
        if self.mirrored:
            write_atomically(path, content)

    def share(self, path: Path) -> None:
        """Store what a library has written into the folder: a file, or all files below a folder."""
        if self.mirrored:
            files = sorted(path.rglob("*")) if path.is_dir() else [path]
            for file in files:
                if file.is_file():
                    self.objects.put(self._key(file), file.read_bytes())

    def write_new(self, path: Path, content: Content) -> bool:
        """Store a file of the folder where there is none; whether this content stands then, and no earlier one."""
        standing = self.objects.put_new(self._key(path), content)
        if self.mirrored:
            write_atomically(path, standing)
        return standing == content

    def names(self, folder: Path) -> list[str]:
        """The names right in a folder, in order."""
        return self.objects.names(self._key(folder))

    def versions(self, folder: Path) -> dict[str, str]:
        """The files below a folder by their paths relative to it, as `Objects.versions`."""
        return self.objects.versions(self._key(folder))

    def stored(self, path: Path) -> bytes | None:
        """What is stored as a file of the folder; None where nothing is."""
        return self.objects.get(self._key(path))

    def content(self, path: Path) -> bytes:
        """What is stored as a file of the folder; StoreError where nothing is."""
        content = self.stored(path)
        if content is None:
            raise StoreError(f"{self.shown(path)} is lost")
        return content

    def fetch(self, path: Path) -> Path:
        """The file of the folder, after it was brought from where the bytes are; where there is none, there is no
        file."""
        self.fetch_all([path])
        return path

    def fetch_all(self, paths: Iterable[Path]) -> None:
        """Bring several files, as `fetch`."""
        if self.mirrored:
            fetch(self.objects, self.root, paths)

    def fetch_missing(self, paths: Iterable[Path]) -> None:
        """Bring those of the files that are not in the folder: such as never change."""
        if self.mirrored:
            self.fetch_all([path for path in paths if not path.is_file()])

    def fetch_folder(self, folder: Path) -> list[Path]:
        """All files below a folder, brought from where the bytes are; in order."""
        files = [folder / name for name in self.versions(folder)]
        self.fetch_all(files)
        return [file for file in files if file.is_file()]

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Errors speak of the bucket, not of its mirror."""
        try:
            yield
        except StoreError as error:
            if not self.mirrored:
                raise
            raise StoreError(self.shown(error)) from error

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def _reopened(kind: type[Home], place: str, replies: str) -> Home:
    return replace(kind.open(place), replies_named=replies)


def mirrored_in(url: str) -> Path:
    """The folder that mirrors a bucket's prefix on this machine: it can stand for it wherever a folder is asked for."""
    folder = mirror_of(url)
    mark_mirror(folder, url)
    return folder


# The folder of this machine in which a warehouse in a bucket is read: what DuckDB, Arrow and libraries read are
# files.


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
            with suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
        elif not path.is_file() or path.read_bytes() != content:
            write_atomically(path, content)

    wanted = list(paths)
    if len(wanted) < 2:
        for path in wanted:
            bring(path)
        return
    with ThreadPoolExecutor(min(_TOGETHER, len(wanted))) as pool:
        list(pool.map(bring, wanted))


# The file that says that a place is a warehouse, and of which format; in a mirror, of which bucket it is one.


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
